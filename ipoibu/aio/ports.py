# SPDX-License-Identifier: BSD-2-Clause
"""The sockets of an endpoint by their ports, and which of them gets a datagram."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

from ipoibu.aio.address import Flow, error
from ipoibu.aio.ends import Ends
from ipoibu.base.limits import AIO_PORT_FIRST, AIO_PORT_TRIES


class Ports:
    """The open sockets. A port has several if their addresses differ, or if all allow it (`reuse_port`)."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._sockets: dict[int, list[Ends]] = {}
        self._rng = rng or random.SystemRandom()  # RFC 6056: a stranger cannot guess the port

    def __len__(self) -> int:
        return sum(map(len, self._sockets.values()))

    def __iter__(self) -> Iterator[Ends]:
        return iter([it for sockets in self._sockets.values() for it in sockets])

    def add(self, new: Ends, port: int) -> int:
        """Give the socket this port, or an ephemeral one for 0; return it. EADDRINUSE if it is taken."""
        if port == 0:
            port = self._free(new)
        elif self._is_taken(new, port):
            raise error(errno.EADDRINUSE, port)
        self._sockets.setdefault(port, []).append(new)
        return port

    def remove(self, old: Ends, port: int) -> None:
        sockets = self._sockets.get(port, [])
        if old in sockets:
            sockets.remove(old)
        if not sockets:
            self._sockets.pop(port, None)

    def _free(self, new: Ends) -> int:
        for _ in range(AIO_PORT_TRIES):
            port = self._rng.randrange(AIO_PORT_FIRST, 1 << 16)
            if not self._sockets.get(port):
                return port
        for port in range(AIO_PORT_FIRST, 1 << 16):
            if not self._is_taken(new, port):
                return port
        raise error(errno.EADDRINUSE, "no port is free")

    def _is_taken(self, new: Ends, port: int) -> bool:
        return any(
            new.overlaps(old) and not (new.reuse_port and old.reuse_port)
            for old in self._sockets.get(port, ())
        )

    def at(self, port: int) -> list[Ends]:
        return self._sockets.get(port, [])

    def all_for(self, flow: Flow) -> list[Ends]:
        """Return every socket that takes a datagram to a group or to all hosts."""
        return [it for it in self.at(flow.destination.port) if it.hears(flow)]

    def best_for(self, flow: Flow) -> Ends | None:
        """Return the socket that names most of the two ends; of equal ones always the same for a flow."""
        best: list[Ends] = []
        most = -1
        for each in self.at(flow.destination.port):
            score = each.score(flow)
            if score > most:
                best, most = [each], score
            elif score == most >= 0:
                best.append(each)
        if most < 0:
            return None
        return best[hash(flow.source) % len(best)]
