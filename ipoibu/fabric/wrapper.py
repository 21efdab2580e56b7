# SPDX-License-Identifier: BSD-2-Clause
"""A wrapper around a fabric, which forwards the calls that its subclass does not carry out itself."""

from __future__ import annotations

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.fabric.base import Fabric, RcQueuePair
from ipoibu.fabric.peered import PeeredFabric


class FabricWrapper(PeeredFabric):
    """Forwards everything but `native`, TX queues, queue pairs of guests, and counters. `close` closes the
    inner fabric, too."""

    def __init__(self, inner: Fabric) -> None:
        self._inner = self._directory = inner

    @property
    def qpn(self) -> Qpn:
        return self._inner.qpn

    @property
    def event_fd(self) -> int | None:
        return self._inner.event_fd

    @property
    def is_stale(self) -> bool:
        return self._inner.is_stale

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        self._inner.attach(mgid, mlid)

    def detach(self, mgid: Gid) -> None:
        self._inner.detach(mgid)

    def open_connection(self) -> RcQueuePair:
        return self._inner.open_connection()

    def admits(self, hwaddr: HwAddr) -> bool:
        return self._inner.admits(hwaddr)

    def drop_sources(self) -> dict[str, Gid]:
        return self._inner.drop_sources()

    def close(self) -> None:
        self._inner.close()
