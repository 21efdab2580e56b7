# SPDX-License-Identifier: BSD-2-Clause
"""The differences between RoCE and InfiniBand ports of RDMA devices: GID, groups, paths and the CM."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Protocol

from ipoibu.base.errors import LinkError, NotPermitted
from ipoibu.base.limits import RDMACM_ACK_TIMEOUT_CODE, RDMACM_RETRIES, RDMACM_RNR_RETRIES
from ipoibu.fabric.cm.gsi import GsiPort, UmadGsiPort
from ipoibu.fabric.cm.gsi_cm import GsiCm
from ipoibu.fabric.cm.librdmacm import SocketAddress
from ipoibu.fabric.cm.rdma_cm import RcTimeouts, RdmaCm
from ipoibu.fabric.cm.rdma_cm_ib import IbRdmaCm
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.verbs.native import native
from ipoibu.fabric.verbs.objects import PortState, VerbsDevice
from ipoibu.fabric.verbs.roce_gid import GidEntry, choose_gid, local_addresses
from ipoibu.proto.cm.cm import CmConfig

if TYPE_CHECKING:  # the compiled module may be missing
    from ipoibu._verbs import Membership

_log = logging.getLogger(__name__)


class LinkLayer(Protocol):
    """A port's link layer. `entry` is the GID from which we send.

    `resolves`: making an address handle may take a second, because the kernel resolves a MAC address.
    `has_lids`: groups are attached by their LID, and unicast needs no GRH on the subnet.
    """

    entry: GidEntry
    resolves: bool
    has_lids: bool

    @property
    def sa(self) -> SaClient | None: ...

    @property
    def netdev(self) -> str | None:
        """The net device below, or None."""
        ...

    def has_gid(self) -> bool:
        """Return whether the port still has the GID of `entry`."""
        ...

    def choose(self, state: PortState) -> None:
        """Choose the `entry` to use from now on; `LinkError` gives the reason if there is none."""
        ...

    def membership(self) -> Membership | NoMembership: ...

    def cm(self) -> CmService: ...

    def open_gsi(self) -> GsiPort:
        """Open queue pair 1 for a communication manager; `LinkError`: the kernel's has it."""
        ...

    def close(self) -> None: ...


def open_link_layer(device: VerbsDevice, port: int, state: PortState) -> LinkLayer:
    """Open the port's link layer; `LinkError`: the port cannot carry IP over InfiniBand."""
    if state.link_layer == "InfiniBand":
        return InfinibandLinkLayer(device, port, state)
    return RoceLinkLayer(device, port, state)


class RoceLinkLayer:
    """Each GID is an IPv6 address of the net device, each group one of its IPv6 groups."""

    resolves = True
    has_lids = False
    sa = None

    def __init__(self, device: VerbsDevice, port: int, state: PortState) -> None:
        self._device, self._port = device, port
        self._place = f"{device.name}/{port}"
        self.choose(state)

    def choose(self, state: PortState) -> None:
        gids = self._device.gids(self._port, state.gid_count)
        self.entry = choose_gid(gids, local_addresses(), self._place)

    @property
    def netdev(self) -> str:
        try:
            return socket.if_indextoname(self.entry.ifindex)
        except OSError as error:
            raise LinkError(
                f"{self._place}: its net device is not in this network namespace; run there: "
                "ip netns exec NAME ..."
            ) from error

    def has_gid(self) -> bool:
        entry = self.entry
        in_table = self._device.gid(self._port, entry.index) == entry.gid
        return in_table and (entry.ifindex, entry.gid) in local_addresses()

    def membership(self) -> Membership | NoMembership:
        """Open the IPv6 memberships: the net device drops the packets of groups without one."""
        membership: Membership = native().Membership(self.entry.ifindex)
        return membership

    def cm(self) -> CmService:
        timeouts = RcTimeouts(RDMACM_ACK_TIMEOUT_CODE, RDMACM_RETRIES, RDMACM_RNR_RETRIES)
        return RdmaCm(self._device.name, self._address, timeouts)

    def open_gsi(self) -> GsiPort:
        raise LinkError(
            f"{self._place}: queue pair 1 of a RoCE port belongs to the kernel's rdma_cm"
        )

    def _address(self) -> SocketAddress:
        """Return the address by which rdma_cm knows the port."""
        return SocketAddress(self.entry.gid.ip, scope=self.entry.ifindex)

    def close(self) -> None:
        """Do nothing: the link layer has nothing open."""


class InfinibandLinkLayer:
    """The GID is the port's first one; groups and paths come from the subnet administrator (B1)."""

    resolves = False
    has_lids = True
    netdev = None

    def __init__(self, device: VerbsDevice, port: int, state: PortState) -> None:
        self._device, self._port = device, port
        self._mtu_bytes = state.active_mtu_bytes
        self._read()
        self.sa = SaClient.start(lambda: SaClient.open(device.name, port))

    def choose(self, state: PortState) -> None:
        """Take the first GID, which consists of the subnet's prefix and the port's GUID (A3)."""
        self._read()

    def _read(self) -> None:
        gid = self._device.gid(self._port, 0)
        self.entry = GidEntry(index=0, gid=gid, is_roce_v2=False, ifindex=0)

    def has_gid(self) -> bool:
        return self._device.gid(self._port, 0) == self.entry.gid

    def membership(self) -> Membership | NoMembership:
        """Return memberships that do nothing: `SaSubnet` joins groups at the subnet administrator."""
        return NoMembership()

    def cm(self) -> CmService:
        """Start our own manager; if the kernel's is loaded, use that (`IbRdmaCm`), which only connects."""
        timeouts = RcTimeouts(RDMACM_ACK_TIMEOUT_CODE, RDMACM_RETRIES, RDMACM_RNR_RETRIES)
        info = self.sa.info
        try:
            services = self.open_gsi()
        except (LinkError, NotPermitted) as error:
            _log.warning("%s; we can connect to peers, but they cannot connect to us", error)
            return IbRdmaCm(self._device.name, lambda: self.entry.gid, timeouts)
        config = CmConfig(
            gid=info.gid,
            lid=info.lid,
            ca_guid=info.guid,
            path_mtu_bytes=self._mtu_bytes,
            ack_timeout=timeouts.ack_timeout,
            connection_retries=timeouts.retries,
            rnr_retries=timeouts.rnr_retries,
        )
        return GsiCm(services, config)

    def open_gsi(self) -> GsiPort:
        return UmadGsiPort(self._device.name, self._port, lambda: self.sa.info)

    def close(self) -> None:
        self.sa.close()


class NoMembership:
    """In place of memberships that a group needs besides attaching, where it needs none."""

    def join(self, group: bytes) -> int:
        return 0

    def leave(self, group: bytes, number: int) -> None: ...

    def close(self) -> None: ...
