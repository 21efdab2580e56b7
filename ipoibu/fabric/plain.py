# SPDX-License-Identifier: BSD-2-Clause
"""The answers of a port and a fabric without features.

A device derives from `PlainPort` and `PlainFabric`. A class that wraps others names one by one the features
that it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ipoibu.base.addr import Gid, HwAddr, IpAddress, Qpn
from ipoibu.base.errors import LinkError, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.base import (
    Capabilities,
    Fabric,
    MeshOptions,
    PeersUnderlay,
    Port,
    RcQueuePair,
    TxQueue,
)

if TYPE_CHECKING:
    from ipoibu.fabric.cm.gsi import GsiPort
    from ipoibu.fabric.cm.service import CmService
    from ipoibu.fabric.sa.client import SaClient
    from ipoibu.wire.mesh import Locator


class MeshlessPort(Port):
    def open_mesh(self, params: PartitionParams, options: MeshOptions) -> Fabric:
        raise UsageError(f"{self._place}: this device has no mesh")


class PlainPort(MeshlessPort):
    """A port of datagrams alone, on no subnet."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    @property
    def socket_fd(self) -> int | None:
        return None

    @property
    def sa(self) -> SaClient | None:
        return None

    @property
    def underlay(self) -> PeersUnderlay | None:
        return None

    def may_control(self) -> bool:
        return True

    def why_down(self) -> str:
        return ""

    def speed_mbps(self) -> int | None:
        return None

    def open_connected(self, params: PartitionParams) -> Fabric:
        raise LinkError(f"{self._place}: this device has no connected mode")

    def cm(self) -> CmService:
        raise LinkError(f"{self._place}: this device has no connected mode")

    def open_gsi(self) -> GsiPort:
        raise LinkError(f"{self._place}: this device has no queue pair 1")


class SilentFabric(Fabric):
    """A fabric that reports no events."""

    @property
    def event_fd(self) -> int | None:
        return None


class OneQueueFabric(Fabric):
    """A fabric by which one pump sends."""

    def open_tx_queues(self, count: int) -> Sequence[TxQueue]:
        raise LinkError("this device has one TX queue only")


class GuestlessFabric(Fabric):
    """A fabric that has no queue pairs for guests."""

    def open_guest_queue_pairs(self, count: int) -> Sequence[Qpn]:
        return ()


class PeerlessFabric(Fabric):
    """A fabric with multicast: it knows no peers, and admits all hosts."""

    def admits(self, hwaddr: HwAddr) -> bool:
        return True

    def announce(self, addresses: Iterable[IpAddress]) -> None:
        pass

    def listen(
        self,
        learned: Callable[[HwAddr, tuple[IpAddress, ...]], None],
        gone: Callable[[HwAddr], None],
    ) -> None:
        pass

    def set_peers(self, peers: Sequence[str]) -> None:
        raise UsageError("this link has no list of peers")

    def peers(self) -> list[dict[str, Any]]:
        return []

    def met(self) -> Mapping[Locator, HwAddr]:
        return {}

    def meet_again(self, met: Mapping[Locator, HwAddr]) -> None:
        pass


class PlainFabric(SilentFabric, OneQueueFabric, GuestlessFabric, PeerlessFabric):
    """A fabric of datagrams alone, which follows the port's GID."""

    @property
    def is_stale(self) -> bool:
        return False

    def open_connection(self) -> RcQueuePair:
        raise LinkError("this device has no connected mode")

    def drop_sources(self) -> dict[str, Gid]:
        return {}
