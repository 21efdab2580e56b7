# SPDX-License-Identifier: BSD-2-Clause
"""The two contracts of a device: `Port` and `Fabric`.

docs/understand/adding-a-fabric.md shows how to write both.

An endpoint opens a port, learns the parameters of the partition, and opens a fabric on the port: the
queue pairs of one interface. Packets pass through a C vtable (ext/fabric/fabric.h), which only the pump
calls, on its own thread. These classes are the control side; the engine's thread calls them.

Every member is abstract, so that a class that wraps a port or a fabric cannot forget one. A device derives
from `PlainPort` and `PlainFabric` (`fabric.plain`), which have the answers of a device without a feature;
`Port.capabilities` says which features there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ipoibu.base.addr import Gid, HwAddr, IpAddress, PKey, Qpn
from ipoibu.base.errors import UsageError
from ipoibu.base.ib import PartitionParams, PortInfo, RcAttributes
from ipoibu.base.limits import MESH_PORT

if TYPE_CHECKING:
    from ipoibu.fabric.cm.gsi import GsiPort
    from ipoibu.fabric.cm.service import CmService
    from ipoibu.fabric.mesh.peer_key import PeerKey
    from ipoibu.fabric.sa.client import SaClient
    from ipoibu.wire.mesh import Locator


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The features that a port has besides datagrams."""

    rc: bool = False  # connected mode: `Port.open_connected`, `Port.cm`, `Fabric.open_connection`
    mesh: bool = False  # connections to all peers replace multicast: `Port.open_mesh`
    tx_queues: bool = False  # several pumps can send: `Fabric.open_tx_queues`
    rails: bool = False  # a queue pair may wait beside that of another port: `fabric.rails`
    multicast: bool = True  # without it, links need peers: `fabric.unicast`


@dataclass(frozen=True, slots=True)
class KeptPort:
    """Holds what an earlier process has left of a port, for `open_port`.

    `socket_fd` is that of `Port.socket_fd`, and stays the caller's; `qpns` has the queue pair number of
    each partition's interface. The port calls `forget` if the socket is that of another device: the caller
    then gives up what keeps it open.
    """

    socket_fd: int
    qpns: Mapping[PKey, Qpn]
    forget: Callable[[], None]


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """The places where a mesh, or a link without multicast, finds its peers.

    Each of `peers`, and each line of `file`, is HOST[:PORT]; `port` is the TCP port on which we listen, 0
    for the default. With a `key`, only hosts that know it become peers (not on iWARP).
    """

    peers: tuple[str, ...] = ()
    file: Path | None = None
    port: int = 0
    key: PeerKey | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.peers, tuple) or not all(isinstance(it, str) for it in self.peers):
            raise TypeError(f"peers is a tuple of texts such as 192.0.2.1:4790, not {self.peers!r}")
        if self.file is not None and not isinstance(self.file, Path):
            raise TypeError(f"file is the Path of a file, not {self.file!r}")
        if type(self.port) is not int:
            raise TypeError(f"port is the number of a TCP port, not {self.port!r}")
        if not 0 <= self.port <= 0xFFFF:
            raise UsageError(f"port {self.port}: expected 0 to 65535")

    @property
    def listen_port(self) -> int:
        return self.port or MESH_PORT


class LinkPeers(Protocol):
    """What a link without multicast knows of its peers; any thread may read it."""

    @property
    def named(self) -> Sequence[IpAddress]:
        """The addresses of the peers that the operator names, as of the last look at them."""
        ...

    @property
    def refused(self) -> IpAddress | None:
        """The GID of the host that the link refused last because its GID has the other IP version."""
        ...

    @property
    def has_peers(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class UnderlayChoice:
    """`address` becomes the GID because of the route to `peer`, by `router` unless that is None."""

    address: IpAddress
    peer: IpAddress
    router: IpAddress | None = None

    def __str__(self) -> str:
        way = f" by the router {self.router}" if self.router is not None else ""
        return f"the route to the peer {self.peer}{way}"


class PeersUnderlay(Protocol):
    """Chooses the GID of a port by the peers of its links."""

    def choose(self, now: IpAddress | None = None) -> UnderlayChoice | None:
        """Return the choice, None where any address will do; `now` is the present GID, of an open port."""
        ...

    def enter(self, link: LinkPeers) -> Callable[[], None]:
        """Consider the peers of this link, too, until the caller calls the result."""
        ...


class Port(ABC):
    """An open port of a device, which does not know the partition's parameters yet.

    Only one thread at a time calls a port.
    """

    @property
    @abstractmethod
    def info(self) -> PortInfo: ...

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    @property
    @abstractmethod
    def socket_fd(self) -> int | None:
        """The descriptor by which a later process goes on with this port (`KeptPort`); None if it cannot."""

    @property
    @abstractmethod
    def sa(self) -> SaClient | None:
        """The client of the subnet administrator; None on a port that belongs to no subnet."""

    @property
    @abstractmethod
    def underlay(self) -> PeersUnderlay | None:
        """What chooses the GID by the peers of links without multicast; None where nothing does."""

    @abstractmethod
    def may_control(self) -> bool:
        """Return whether our queue pairs may use a controlled Q_Key (B3)."""

    @abstractmethod
    def active(self) -> bool:
        """Return whether the port carries traffic now. The endpoint calls this about once a second.

        The call updates `info.gid` if the port's GID has changed; the fabrics then send from the new
        GID, or are stale (`Fabric.is_stale`). `LinkError`: the device is gone for good.
        """

    @abstractmethod
    def why_down(self) -> str:
        """Return why the port carries no traffic, and the remedy; empty if the device gives no reason."""

    @abstractmethod
    def speed_mbps(self) -> int | None:
        """Return the port's speed now in Mb/s, None where it is unknown; does not block."""

    @abstractmethod
    def open_ud(self, params: PartitionParams) -> Fabric:
        """Open a UD queue pair in the partition, ready to send and receive, or raise `LinkError`."""

    @abstractmethod
    def open_connected(self, params: PartitionParams) -> Fabric:
        """Open a UD queue pair as `open_ud` does, in a fabric that makes connections, too.

        `LinkError` without connected mode.
        """

    @abstractmethod
    def open_mesh(self, params: PartitionParams, options: MeshOptions) -> Fabric:
        """Open a fabric that connects to the peers that `options` name, in place of a UD queue pair;
        `UsageError` without a mesh."""

    @abstractmethod
    def cm(self) -> CmService:
        """Return the communication manager for all interfaces of the port; `close` ends it. `LinkError`
        without connected mode."""

    @abstractmethod
    def open_gsi(self) -> GsiPort:
        """Open queue pair 1 for a program that is its own communication manager; the caller closes it before
        the port. `LinkError`: the port has none, or another manager has it, such as that of `cm`."""

    @abstractmethod
    def close(self) -> None:
        """Give the device back. The caller has closed the fabrics."""

    @property
    def _place(self) -> str:
        return f"{self.info.device}/{self.info.port}"


class PeerDirectory(ABC):
    """The peers of a mesh, or of a link without multicast, and what they tell each other."""

    @abstractmethod
    def announce(self, addresses: Iterable[IpAddress]) -> None:
        """Send the interface's addresses to every peer, now and when a peer connects."""

    @abstractmethod
    def listen(
        self,
        learned: Callable[[HwAddr, tuple[IpAddress, ...]], None],
        gone: Callable[[HwAddr], None],
    ) -> None:
        """Call `learned` with the addresses that a peer announces, and `gone` with the address (without
        flags) of a host that is no peer any more; on any thread."""

    @abstractmethod
    def set_peers(self, peers: Sequence[str]) -> None:
        """Look for these peers from now on, besides those in the file and those that have been met.

        Any thread may call it. `UsageError` on a link that has no list of peers.
        """

    @abstractmethod
    def peers(self) -> list[dict[str, Any]]:
        """Describe every connection, as `Endpoint.peers` does."""

    @abstractmethod
    def met(self) -> Mapping[Locator, HwAddr]:
        """Return where the hosts listen that are peers, or were."""

    @abstractmethod
    def meet_again(self, met: Mapping[Locator, HwAddr]) -> None:
        """Dial the peers of the directory whose place this one takes."""


class Fabric(PeerDirectory):
    """The queue pairs of one interface on one port: a UD queue pair, and those of its connections.

    Only the engine's thread calls it, and one fabric serves one pump in its life. The order at the end:
    the pump stops, `close` destroys the queue pairs (nothing writes to the pump's memory any more), and
    the pump frees its memory.
    """

    @property
    @abstractmethod
    def qpn(self) -> Qpn:
        """The number of the UD queue pair."""

    @property
    @abstractmethod
    def native(self) -> object:
        """A capsule around `struct ipu_fabric`. It keeps the C object alive, even after `close`."""

    @property
    @abstractmethod
    def event_fd(self) -> int | None:
        """A descriptor that is readable while the device has events, until `Port.active` takes them.
        None: the endpoint asks `active` once a second."""

    @property
    @abstractmethod
    def is_stale(self) -> bool:
        """True if the port has another GID since, which this fabric cannot follow: the endpoint opens another
        fabric in its place."""

    @abstractmethod
    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        """Receive the group's datagrams, or raise `LinkError`; does not block.

        `mlid` is the group's LID where a subnet administrator assigned one. The caller attaches a
        group again when its LID has changed.
        """

    @abstractmethod
    def detach(self, mgid: Gid) -> None:
        """Stop receiving the group's datagrams; does nothing for a group that is not attached."""

    @abstractmethod
    def open_tx_queues(self, count: int) -> Sequence[TxQueue]:
        """Open `count` TX queues or none (`LinkError`). The endpoint calls this at most once, and before
        it makes the pump.

        The queues share the fabric's counters, follow its port and end with it.
        """

    @abstractmethod
    def open_guest_queue_pairs(self, count: int) -> Sequence[Qpn]:
        """Open up to `count` queue pairs for guests behind a TAP: datagrams to them come to the fabric's own
        queue pair, and it sends as them. The endpoint calls this at most once, and before it makes the pump;
        none if the device cannot, or `LinkError`. They end with the fabric.
        """

    @abstractmethod
    def open_connection(self) -> RcQueuePair:
        """Open a connection's queue pair, in INIT; all connections share one receive queue. `LinkError`
        without connected mode."""

    @abstractmethod
    def admits(self, hwaddr: HwAddr) -> bool:
        """Return whether this host may ask us for a connection; any thread may call it."""

    @abstractmethod
    def counters(self) -> dict[str, int]: ...

    @abstractmethod
    def drop_sources(self) -> dict[str, Gid]:
        """Return, by counter, the GID that the last dropped packet names as its sender's, as far as the
        fabric knows."""

    @abstractmethod
    def close(self) -> None:
        """Destroy the queue pairs. Safe to repeat."""


class TxQueue(Protocol):
    """A queue by which a further pump sends. It receives nothing, and its packets come from the
    fabric's queue pair number (E8)."""

    @property
    def native(self) -> object:
        """The compiled object, as that of `Fabric.native`; the pump posts no receives to it."""
        ...


class RcQueuePair(ABC):
    """The queue pair of one connection. Only the engine's thread calls it; the pump releases it before
    `close`."""

    @property
    @abstractmethod
    def qpn(self) -> Qpn: ...

    @property
    @abstractmethod
    def native(self) -> object:
        """A capsule around `struct ipu_connection`. It keeps the C object alive, even after `close`."""

    @property
    @abstractmethod
    def retries(self) -> int | None:
        """The number of retransmitted packets; None if the device does not count them."""

    @abstractmethod
    def program(self, attributes: RcAttributes) -> None:
        """Move the queue pair from INIT to RTR and RTS, or raise `LinkError`; does not block."""

    @abstractmethod
    def stop(self) -> None:
        """Move the queue pair to the error state: posted work fails, and nothing more arrives."""

    @abstractmethod
    def close(self) -> None:
        """Destroy the queue pair. Safe to repeat."""
