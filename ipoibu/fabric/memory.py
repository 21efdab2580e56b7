# SPDX-License-Identifier: BSD-2-Clause
"""An in-process fabric, with which applications test without a device.

docs/understand/adding-a-fabric.md explains this file as the example of a complete fabric.
"""

from __future__ import annotations

from collections import Counter

from ipoibu._core import MemoryPort as _NativePort
from ipoibu._core import MemorySwitch
from ipoibu.base.addr import Gid, Qpn
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.fabric.base import Capabilities
from ipoibu.fabric.plain import PlainFabric, PlainPort

__all__ = ["MemoryPort", "MemorySwitch", "MemoryUd"]


class MemoryPort(PlainPort):
    """A port of a `MemorySwitch`: every endpoint on the same switch is on the same link.

    `gid` must be unique on the switch. `active_mtu_bytes` is one of 256, 512, 1024, 2048, 4096.
    """

    def __init__(self, switch: MemorySwitch, gid: Gid, *, active_mtu_bytes: int = 2048) -> None:
        self._switch = switch
        self.up = True  # a test sets it False to pull the cable
        self._info = PortInfo(
            device="memory",
            port=1,
            gid=gid,
            guid=gid.interface_id,
            active_mtu_bytes=active_mtu_bytes,
            link_layer="InfiniBand",
            netdev=None,
        )

    @property
    def info(self) -> PortInfo:
        return self._info

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(tx_queues=True, rails=True)

    def active(self) -> bool:
        return self.up

    def open_ud(self, params: PartitionParams) -> MemoryUd:
        return MemoryUd(self._switch, self._info)

    def close(self) -> None:
        """Do nothing: the switch ends with the last object that refers to it."""


class MemoryUd(PlainFabric):
    """A UD queue pair on a `MemorySwitch`."""

    def __init__(self, switch: MemorySwitch, info: PortInfo) -> None:
        try:
            self._port = _NativePort(switch, info.gid.raw, mtu_bytes=info.active_mtu_bytes)
        except OSError as error:
            raise LinkError(f"memory port {info.gid}: {error.strerror}") from error
        self._switch, self._info = switch, info
        self._tx_queues: list[_NativePort] = []
        self._attached: set[Gid] = set()

    @property
    def qpn(self) -> Qpn:
        return Qpn(self._port.qpn)

    @property
    def native(self) -> object:
        return self._port.native

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        if mgid not in self._attached:
            self._port.attach(mgid.raw)
            self._attached.add(mgid)

    def detach(self, mgid: Gid) -> None:
        if mgid in self._attached:
            self._attached.discard(mgid)
            self._port.detach(mgid.raw)

    def open_tx_queues(self, count: int) -> list[_NativePort]:
        """Each TX queue has a queue pair number of its own, as on an RDMA device."""
        info = self._info
        try:
            for _ in range(count):
                tx_queue = _NativePort(self._switch, info.gid.raw, mtu_bytes=info.active_mtu_bytes)
                self._port.add_tx_queue(tx_queue.qpn)
                self._tx_queues.append(tx_queue)
        except OSError as error:
            raise LinkError(f"memory port {info.gid}: tx_queue: {error.strerror}") from error
        return list(self._tx_queues)

    def break_queue_pair(self) -> None:
        """Put the queue pair in the error state, for a test; the pump recovers it."""
        self._port.break_queue_pair()

    def counters(self) -> dict[str, int]:
        total = Counter(self._port.counters())
        for tx_queue in self._tx_queues:
            total.update(tx_queue.counters())
        return dict(total)

    def close(self) -> None:
        for mgid in list(self._attached):
            self.detach(mgid)
        for tx_queue in self._tx_queues:
            tx_queue.break_queue_pair()
        self._port.break_queue_pair()  # returns the posted receives
