# SPDX-License-Identifier: BSD-2-Clause
"""What RoCE and InfiniBand ports of RDMA devices do differently: the GID, groups, who is asked for paths."""

from __future__ import annotations

import logging
import socket
from typing import Protocol

from ipoibu.errors import LinkError
from ipoibu.fabric.cm.gsi import UmadGsiPort
from ipoibu.fabric.cm.gsi_cm import GsiCm
from ipoibu.fabric.cm.librdmacm import SocketAddress
from ipoibu.fabric.cm.rdma_cm import Patience, RdmaCm
from ipoibu.fabric.cm.rdma_cm_ib import IbRdmaCm
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.verbs.native import native
from ipoibu.fabric.verbs.objects import PortState, VerbsDevice
from ipoibu.fabric.verbs.roce_gid import GidEntry, choose_gid, local_addresses
from ipoibu.limits import RDMACM_ACK_TIMEOUT_CODE, RDMACM_RETRIES, RDMACM_RNR_RETRIES
from ipoibu.proto.cm import CmConfig

_log = logging.getLogger(__name__)


class Membership(Protocol):
    """What a group needs besides being attached; `LinkError` is not known here, `OSError` is."""

    def join(self, group: bytes) -> int:
        """A number to leave by."""
        ...

    def leave(self, group: bytes, number: int) -> None: ...

    def close(self) -> None: ...


class LinkLayer(Protocol):
    """A port's link layer. `entry` is the GID that is sent from.

    `resolves`: making an address handle may take a second, since the kernel looks for a MAC.
    `has_lids`: groups are attached by their LID, and unicast needs no GRH on the subnet.
    """

    entry: GidEntry
    resolves: bool
    has_lids: bool

    @property
    def sa(self) -> SaClient | None: ...

    @property
    def netdev(self) -> str | None:
        """The net device below, where there is one."""
        ...

    def has_gid(self) -> bool:
        """Whether `entry` is still the port's."""
        ...

    def choose(self, state: PortState) -> None:
        """Take the `entry` to use from now on; `LinkError` says why there is none."""
        ...

    def membership(self) -> Membership: ...

    def cm(self) -> CmService: ...

    def close(self) -> None: ...


def open_link_layer(device: VerbsDevice, port: int, state: PortState) -> LinkLayer:
    """The port's; `LinkError` says why it cannot carry IP over InfiniBand."""
    if state.link_layer == "InfiniBand":
        return InfinibandLinkLayer(device, port, state)
    return RoceLinkLayer(device, port, state)


class RoceLinkLayer:
    """A GID is an IPv6 address of the net device, a group one of its IPv6 groups."""

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

    def membership(self) -> Membership:
        """IPv6 group memberships: without one, nothing arrives."""
        membership: Membership = native().Membership(self.entry.ifindex)
        return membership

    def cm(self) -> CmService:
        patience = Patience(RDMACM_ACK_TIMEOUT_CODE, RDMACM_RETRIES, RDMACM_RNR_RETRIES)
        return RdmaCm(self._device.name, self._address, patience)

    def _address(self) -> SocketAddress:
        """What rdma_cm knows the port by."""
        return SocketAddress(self.entry.gid.ip, scope=self.entry.ifindex)

    def close(self) -> None:
        """Nothing is held."""


class InfinibandLinkLayer:
    """The GID is the port's first, groups and paths are the subnet administrator's (B1)."""

    resolves = False
    has_lids = True
    netdev = None

    def __init__(self, device: VerbsDevice, port: int, state: PortState) -> None:
        self._device, self._port = device, port
        self._mtu_bytes = state.active_mtu_bytes
        self._read()
        self.sa = SaClient.start(lambda: SaClient.open(device.name, port))

    def choose(self, state: PortState) -> None:
        """The first GID is made of the subnet's prefix and the port's GUID (A3)."""
        self._read()

    def _read(self) -> None:
        gid = self._device.gid(self._port, 0)
        self.entry = GidEntry(index=0, gid=gid, is_roce_v2=False, ifindex=0)

    def has_gid(self) -> bool:
        return self._device.gid(self._port, 0) == self.entry.gid

    def membership(self) -> Membership:
        """None on this host: it is the administrator's to know, and `Subnet`'s to ask for."""
        return _Nothing()

    def cm(self) -> CmService:
        """Our own manager, unless the kernel has one: that does not let others answer (`rdmacm_ib`)."""
        patience = Patience(RDMACM_ACK_TIMEOUT_CODE, RDMACM_RETRIES, RDMACM_RNR_RETRIES)
        info = self.sa.info
        try:
            services = UmadGsiPort(self._device.name, self._port, lambda: self.sa.info)
        except LinkError as error:
            _log.warning("%s; only connections that we ask for are made", error)
            return IbRdmaCm(self._device.name, lambda: self.entry.gid, patience)
        config = CmConfig(
            gid=info.gid,
            lid=info.lid,
            ca_guid=info.guid,
            path_mtu_bytes=self._mtu_bytes,
            ack_timeout=patience.ack_timeout,
            connection_retries=patience.retries,
            rnr_retries=patience.rnr_retries,
        )
        return GsiCm(services, config)

    def close(self) -> None:
        self.sa.close()


class _Nothing:
    def join(self, group: bytes) -> int:
        return 0

    def leave(self, group: bytes, number: int) -> None: ...

    def close(self) -> None: ...
