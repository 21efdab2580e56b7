# SPDX-License-Identifier: BSD-2-Clause
"""The fabric contract: what an endpoint needs of a device, and nothing more.

A fabric has two faces. Packets go through a C vtable (`ext/fabric.h`) that only the pump calls, on its own
thread; `native` is the capsule that carries it. Control goes through this class, on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ipoibu.addr import Gid, HwAddr, IpAddress, PKey, Qpn

if TYPE_CHECKING:
    from ipoibu.fabric.communication import Communication


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

    @property
    def needs_grh(self) -> bool:
        """Only what stays on an InfiniBand subnet and is for one port goes without (E4, B6)."""
        return self.dlid == 0 or self.hop_limit > 1 or self.gid.is_multicast


@dataclass(frozen=True, slots=True)
class RcAttributes:
    """What takes a connected queue pair from INIT to RTR (ready to receive) and RTS (to send).

    `destination` is the address vector with the peer's queue pair. `receive_psn` is what the peer sends
    first, `send_psn` what we do. `ack_timeout` is a code, 4.096 µs times 2 to its power; so is
    `rnr_timer`, by a table of its own (0 is the longest, 655 ms).
    """

    destination: Destination
    path_mtu_bytes: int
    receive_psn: int
    send_psn: int
    ack_timeout: int
    retries: int = 0
    rnr_retries: int = 0
    rnr_timer: int = 12  # 640 µs


@dataclass(frozen=True, slots=True)
class GroupParams:
    """What an administrator gave one multicast group apart from the broadcast group's parameters."""

    mgid: Gid
    sl: int
    traffic_class: int
    flow_label: int


@dataclass(frozen=True, slots=True)
class PartitionParams:
    """What every member of the IPoIB link agrees on; from the broadcast group or from configuration (B1).

    `mtu_bytes` is the InfiniBand MTU (256..4096): the IP MTU of datagram mode is 4 less. `pkey` is
    the link's and always full (E7); `is_limited` is this port's own membership.
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
    is_limited: bool = False
    groups: tuple[GroupParams, ...] = ()

    @property
    def own_pkey(self) -> PKey:
        """The key of this port's table that the queue pair uses: limited for a limited member."""
        return PKey(self.pkey & 0x7FFF) if self.is_limited else self.pkey


IWARP = "iWARP"  # a link layer


@dataclass(frozen=True, slots=True)
class PortInfo:
    """A port as found when it was opened. `active_mtu_bytes` is its InfiniBand MTU (256..4096).

    `guid` is the port GUID as it stands in the GID's low 64 bits (A3); `link_layer` is "InfiniBand"
    or "Ethernet", as `rdma link` has it, or "iWARP", whose MTU is that of the mesh (docs/mesh.md);
    `netdev` is the net device below, where there is one.
    """

    device: str
    port: int
    gid: Gid
    guid: bytes
    active_mtu_bytes: int
    link_layer: str
    netdev: str | None


class Port(Protocol):
    """An open port of a device, before the partition's parameters are known.

    Calls come from one thread at a time.
    """

    @property
    def info(self) -> PortInfo: ...

    def active(self) -> bool:
        """Whether the port carries traffic now; asked about once a second, so it may cost a call.

        It may find that `info.gid` has changed, which its queue pairs then send from. `LinkError`:
        the device is gone for good.
        """
        ...

    def open_ud(self, params: PartitionParams) -> Fabric:
        """A UD queue pair in the partition, ready to send and receive; `LinkError` if it cannot."""
        ...

    def close(self) -> None:
        """Give the device back; queue pairs are closed before."""
        ...


class ConnectedPort(Port, Protocol):
    """A port that also has connected mode."""

    def open_connected(self, params: PartitionParams) -> ConnectedFabric:
        """As `open_ud`, with the means for connections."""
        ...

    def communication(self) -> Communication:
        """The port's communication manager, for all interfaces on it; it ends with the port."""
        ...


class MeshPort(Port, Protocol):
    """A port whose stations are connected with one another, and have to be found first."""

    def open_mesh(self, params: PartitionParams, options: MeshOptions) -> MeshFabric:
        """As `open_ud`: looks for peers from the start."""
        ...


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """Where peers are: each of `peers`, and each line of the `file`, is HOST[:PORT]; `port` is where we
    listen, 0 for the default."""

    peers: tuple[str, ...] = ()
    file: Path | None = None
    port: int = 0


class Fabric(Protocol):
    """One UD queue pair on one port.

    Calls come from the engine's thread only. `close` destroys the queue pair: nothing is received
    into the pump's memory any more; the pump is stopped before and freed after. One fabric serves
    one pump in its life.
    """

    @property
    def qpn(self) -> Qpn: ...

    @property
    def native(self) -> object:
        """A capsule around `struct ipu_fabric` that keeps what is behind it alive, closed or not."""
        ...

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        """Receive the group's datagrams; returns at once. `LinkError` says why not.

        `mlid` is the group's LID, where an administrator told it; a group that it has moved is
        attached anew.
        """
        ...

    def detach(self, mgid: Gid) -> None: ...

    def counters(self) -> dict[str, int]: ...

    def close(self) -> None: ...


class MeshFabric(Fabric, Protocol):
    """A fabric of connections that says who is there."""

    def announce(self, addresses: Iterable[IpAddress]) -> None:
        """The interface's addresses, which peers are told."""
        ...

    def listen(self, learned: Callable[[HwAddr, tuple[IpAddress, ...]], None]) -> None:
        """Call it, on whatever thread, with what a station says of itself."""
        ...

    def peers(self) -> list[dict[str, Any]]:
        """Every connection, as `Endpoint.connections` has them."""
        ...


class Lane(Protocol):
    """Where a further pump sends: it receives nothing, and what it sends is the fabric's (E8)."""

    @property
    def native(self) -> object:
        """As a fabric's; the pump posts no receives."""
        ...


class LaneFabric(Fabric, Protocol):
    """A fabric that more than one pump can send by."""

    def open_lanes(self, count: int) -> Sequence[Lane]:
        """So many lanes, once, before any pump is made. They end with the fabric, share its counters
        and follow its port. `LinkError`: then there are none."""
        ...


class ConnectedFabric(Fabric, Protocol):
    """A fabric that also has connections: the `connected` face of its `native` is there."""

    def open_connection(self) -> Connection:
        """A queue pair in INIT that receives from the queue all share; `LinkError` if it cannot."""
        ...


class Connection(Protocol):
    """A queue pair of connected mode, made by `ConnectedFabric.open_connection`; the engine's thread only.

    The pump has to let go of it before `close`.
    """

    @property
    def qpn(self) -> Qpn: ...

    @property
    def native(self) -> object:
        """A capsule around `struct ipu_connection` that keeps what is behind it alive, closed or not."""
        ...

    @property
    def retries(self) -> int | None:
        """Packets sent again; None where the device does not say."""
        ...

    def program(self, attributes: RcAttributes) -> None:
        """From INIT to RTR and RTS; `LinkError` if the device refuses. Does not block."""
        ...

    def stop(self) -> None:
        """To the error state: what is posted fails, nothing more arrives."""
        ...

    def close(self) -> None: ...
