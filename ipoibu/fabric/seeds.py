# SPDX-License-Identifier: BSD-2-Clause
"""The peers that the operator names: hosts, a file that is read again when it changes, DNS names."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from ipoibu.errors import UsageError
from ipoibu.limits import MESH_ADDRESSES_MAX, MESH_PORT, MESH_RESOLVE_S, MESH_SEEDS_S
from ipoibu.wire.mesh import MeshAddress, parse_seed

_log = logging.getLogger(__name__)

FILE_MAX_BYTES: Final = 1 << 16


def check_seed(text: str) -> str:
    """`HOST[:PORT]`; `UsageError` for anything else."""
    try:
        parse_seed(text, MESH_PORT)
    except ValueError as error:
        raise UsageError(f"peer {error}") from error
    return text


@dataclass(frozen=True, slots=True)
class Seeds:
    """Each of `peers` is HOST[:PORT]; `file` has one on each line, `#` begins a comment.

    A name stands for all of its addresses. `port` is where we listen, and where peers do unless their
    own says otherwise.
    """

    peers: tuple[str, ...] = ()
    file: Path | None = None
    port: int = MESH_PORT

    @property
    def any(self) -> bool:
        return bool(self.peers) or self.file is not None

    def read(self) -> list[str]:
        """What is named now; `UsageError` names the file and the line."""
        return list(self.peers) + ([] if self.file is None else _lines(self.file))


def _lines(file: Path) -> list[str]:
    try:
        with file.open("rb") as stream:
            text = stream.read(FILE_MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    if len(text) > FILE_MAX_BYTES:
        raise UsageError(f"{file}: too large for a list of peers")
    found = []
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        try:
            found.append(check_seed(entry))
        except UsageError as error:
            raise UsageError(f"{file}, line {number}: {error}") from error
    return found


Resolve = Callable[[str, int], list[MeshAddress]]


def resolve(host: str, port: int) -> list[MeshAddress]:
    """All addresses of a host; `OSError` if there are none. May take seconds."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    texts = {
        f"{address[0]}%{address[3]}" if len(address) > 3 and address[3] else str(address[0])
        for *_, address in found
    }
    return [MeshAddress(ip_address(text), port) for text in sorted(texts)]


class SeedWatch:
    """Reads the seeds again and again, on a thread of its own: resolving names takes time.

    `deliver` hears all addresses, on that thread, whenever they have changed. A file that cannot be
    read, or a name that cannot be resolved, leaves what it said before.
    """

    def __init__(
        self,
        seeds: Seeds,
        deliver: Callable[[frozenset[MeshAddress]], None],
        resolver: Resolve = resolve,
    ) -> None:
        self._seeds, self._deliver, self._resolve = seeds, deliver, resolver
        self._names = seeds.read()
        self._of_name: dict[str, list[MeshAddress]] = {}
        self._resolved_at: dict[str, float] = {}
        self._told: frozenset[MeshAddress] | None = None
        self._complaint = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ipoibu-seeds", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def look(self, now: float) -> None:
        """Once; `now` is monotonic."""
        complaint = ""
        try:
            self._names = self._seeds.read()
        except UsageError as error:
            complaint = str(error)
        for name in self._names:
            if now - self._resolved_at.get(name, -MESH_RESOLVE_S) < MESH_RESOLVE_S:
                continue
            self._resolved_at[name] = now
            try:
                self._of_name[name] = self._resolve(*parse_seed(name, self._seeds.port))
            except OSError as error:
                complaint = f"{name}: {error.strerror or error}"
        if complaint != self._complaint:
            self._complaint = complaint
            _log.warning("peers: %s", complaint or "read again")
        found = [address for name in self._names for address in self._of_name.get(name, [])]
        addresses = frozenset(found[:MESH_ADDRESSES_MAX])
        if addresses != self._told:
            self._told = addresses
            self._deliver(addresses)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look(time.monotonic())
            except Exception:  # a defect of ours: the peers that are known stay
                _log.exception("the peers were not read")
            self._stop.wait(MESH_SEEDS_S)

    def close(self) -> None:
        """Does not wait for a name that is being resolved."""
        self._stop.set()
