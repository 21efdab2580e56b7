# SPDX-License-Identifier: BSD-2-Clause
"""A wrapper around a fabric, which forwards the calls that its subclass does not carry out itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ipoibu.addr import Gid, HwAddr, IpAddress, Qpn
from ipoibu.fabric.base import Fabric, RcQueuePair


class WrappedFabric(Fabric):
    """Forwards everything but `native`, TX queues and counters; `close` closes the inner fabric, too."""

    def __init__(self, inner: Fabric) -> None:
        self._inner = inner

    @property
    def qpn(self) -> Qpn:
        return self._inner.qpn

    @property
    def event_fd(self) -> int | None:
        return self._inner.event_fd

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        self._inner.attach(mgid, mlid)

    def detach(self, mgid: Gid) -> None:
        self._inner.detach(mgid)

    def open_connection(self) -> RcQueuePair:
        return self._inner.open_connection()

    def admits(self, hwaddr: HwAddr) -> bool:
        return self._inner.admits(hwaddr)

    def announce(self, addresses: Iterable[IpAddress]) -> None:
        self._inner.announce(addresses)

    def listen(
        self,
        learned: Callable[[HwAddr, tuple[IpAddress, ...]], None],
        gone: Callable[[HwAddr], None],
    ) -> None:
        self._inner.listen(learned, gone)

    def set_peers(self, peers: Sequence[str]) -> None:
        self._inner.set_peers(peers)

    def peers(self) -> list[dict[str, Any]]:
        return self._inner.peers()

    def drop_sources(self) -> dict[str, Gid]:
        return self._inner.drop_sources()

    def close(self) -> None:
        self._inner.close()
