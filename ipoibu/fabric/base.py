# SPDX-License-Identifier: BSD-2-Clause
"""The fabric contract: what an endpoint needs of a device, and nothing more.

A fabric has two faces. Packets go through a C vtable (`ext/fabric/fabric.h`) that only the pump
calls, on its own thread; `native` is the capsule that carries it. Control goes through this class,
on the engine's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ipoibu.addr import Gid, HwAddr, IpAddress, Qpn
from ipoibu.ib import PartitionParams, PortInfo, RcAttributes

if TYPE_CHECKING:
    from ipoibu.fabric.cm.service import CmService


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


class RcPort(Port, Protocol):
    """A port that also has connected mode."""

    def open_connected(self, params: PartitionParams) -> RcFabric:
        """As `open_ud`, with the means for connections."""
        ...

    def communication(self) -> CmService:
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


class TxQueue(Protocol):
    """Where a further pump sends: it receives nothing, and what it sends is the fabric's (E8)."""

    @property
    def native(self) -> object:
        """As a fabric's; the pump posts no receives."""
        ...


class TxQueueFabric(Fabric, Protocol):
    """A fabric that more than one pump can send by."""

    def open_tx_queues(self, count: int) -> Sequence[TxQueue]:
        """Open `count` TX queues, once, before any pump is made. They end with the fabric, share its counters
        and follow its port. `LinkError`: then there are none."""
        ...


class RcFabric(Fabric, Protocol):
    """A fabric that also has connections: the `connected` face of its `native` is there."""

    def open_connection(self) -> RcQueuePair:
        """A queue pair in INIT that receives from the queue all share; `LinkError` if it cannot."""
        ...


class RcQueuePair(Protocol):
    """A queue pair of connected mode, made by `RcFabric.open_connection`; the engine's thread only.

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
