# SPDX-License-Identifier: BSD-2-Clause
"""The fabric contract: what an endpoint needs of a device, and nothing more.

A fabric has two faces. Packets go through a C vtable (`ext/fabric.h`) that only the pump calls, on its own
thread; `native` is the capsule that carries it. Control goes through this class, on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ipoibu.addr import Gid, PKey, Qpn


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a datagram goes on the fabric: the address vector and the queue pair. Units as in a path record.

    `dlid` is 0 where the fabric routes by GID (RoCE, soft); `qpn` is 0xFFFFFF for a multicast `gid` (E5).
    """

    gid: Gid
    qpn: Qpn
    dlid: int = 0
    sl: int = 0
    static_rate: int = 0
    hop_limit: int = 64
    traffic_class: int = 0
    flow_label: int = 0


@dataclass(frozen=True, slots=True)
class PartitionParams:
    """What every member of the IPoIB link agrees on; from the broadcast group or from configuration (B1).

    `mtu_bytes` is the InfiniBand MTU (256..4096): the IP MTU of datagram mode is 4 less.
    """

    pkey: PKey
    qkey: int
    mtu_bytes: int
    scope: int = 2
    sl: int = 0
    hop_limit: int = 64
    traffic_class: int = 0
    flow_label: int = 0
    rate: int = 0


@dataclass(frozen=True, slots=True)
class PortInfo:
    """The port an endpoint sits on. `active_mtu_bytes` is the port's InfiniBand MTU."""

    device: str
    port: int
    gid: Gid
    guid: bytes
    qpn: Qpn
    active_mtu_bytes: int
    link_layer: str
    netdev: str | None


class Fabric(Protocol):
    """One UD queue pair on one port. Calls come from the engine's thread only, except `close`.

    `attach` and `detach` take a group's MGID and return at once; failures raise `LinkError`.
    """

    @property
    def port(self) -> PortInfo: ...

    @property
    def native(self) -> object:
        """The capsule around `struct ipu_fabric`; the fabric outlives every pump that uses it."""
        ...

    def attach(self, mgid: Gid) -> None: ...

    def detach(self, mgid: Gid) -> None: ...

    def counters(self) -> dict[str, int]: ...

    def on_port_event(self, callback: Callable[[str], None]) -> None:
        """`callback('down' | 'up' | 'gid')` on the engine's thread."""
        ...

    def close(self) -> None: ...
