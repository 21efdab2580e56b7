# SPDX-License-Identifier: BSD-2-Clause
"""The host side of a device of IP packets: the local stack, or an application, is behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.base.errors import BadFrame, UsageError
from ipoibu.proto.context import EngineContext, is_host
from ipoibu.proto.effects import Deliver, Effect, Forward
from ipoibu.proto.groups.groups import Groups
from ipoibu.proto.groups.link import IpoibLink
from ipoibu.proto.groups.listeners import Listeners
from ipoibu.proto.host_side import HostSide
from ipoibu.proto.neigh.arp import ArpResolver
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.proto.neigh.icmp_errors import IcmpErrors
from ipoibu.proto.neigh.ndisc import NdResolver
from ipoibu.proto.neigh.neighbours import Neighbours
from ipoibu.wire import ip, udp
from ipoibu.wire.mgid import LIMITED_BROADCAST

if TYPE_CHECKING:
    from ipoibu.proto.dhcp.client import DhcpClient
    from ipoibu.proto.dhcp.client6 import Dhcp6Client
    from ipoibu.proto.dhcp.other_clients import DhcpClients


class IpHost(HostSide):
    """Next hops are neighbours or groups; packets of the host are IP packets."""

    def __init__(
        self,
        context: EngineContext,
        link: IpoibLink,
        *,
        neighbours: Neighbours,
        addresses: Addresses,
        groups: Groups,
        memberships: Listeners,
        resolvers: tuple[ArpResolver, NdResolver],
        errors: IcmpErrors,
        clients: tuple[DhcpClient | None, Dhcp6Client | None],
    ) -> None:
        self._context = context
        self._link = link
        self._neighbours = neighbours
        self._addresses = addresses
        self._groups = groups
        self._memberships = memberships
        self._errors = errors
        self._dhcp, self._dhcp6 = clients
        self._others: DhcpClients | None = None
        arp, nd = resolvers
        self.receive_arp_untrusted = arp.receive_untrusted
        self.receive_nd_untrusted = nd.receive_untrusted

    # -- the link, which the engine opens and closes for neighbours, addresses and groups --------

    def link_up(self, now: float) -> None:
        pass

    def link_down(self) -> None:
        pass

    def note_renewed(self) -> None:
        pass

    # -- packets ---------------------------------------------------------------------------------

    def miss(self, now: float, next_hop: IpAddress, packet: bytes) -> None:
        if not self._link.is_up:
            self._context.count("link_down")
        elif next_hop.version == 6 and not self._context.config.carries_ipv6:
            self._context.count("ipv6_refused")
        elif self._addresses.is_directed_broadcast(next_hop):
            self._groups.miss(now, next_hop, packet, via=LIMITED_BROADCAST)
        elif self._addresses.is_group(next_hop):
            self._groups.miss(now, next_hop, packet)
        elif next_hop in self._addresses or not is_host(next_hop):
            self._context.count("next_hop_invalid")
        else:
            self._neighbours.miss(now, next_hop, packet)

    def host_packet(self, now: float, packet: bytes) -> None:
        """Send a packet of the local stack on: an IGMP or MLD packet after its report, a DHCP request with
        what an IPoIB host writes into it."""
        try:
            self._host_packet_untrusted(now, packet)
        except BadFrame as error:
            self._context.count(error.reason)

    def _host_packet_untrusted(self, now: float, packet: bytes) -> None:
        header = ip.parse_untrusted(packet)
        if isinstance(header, ip.Ipv4) and header.protocol == udp.PROTOCOL:
            self._context.emit(Forward(self._other_clients().sent(packet)))
            return
        version = header.source.version
        if version == 4 or self._context.config.carries_ipv6:
            self._memberships.report_untrusted(now, version, packet)
        self.miss(now, header.destination, packet)

    def dhcp_reply(self, now: float, packet: bytes) -> None:
        """Take the reply for a client of ours, or deliver it as another client expects it."""
        try:
            if not self._link.is_up or not self._take_reply_untrusted(now, packet):
                others = self._others
                self._context.emit(Deliver(packet if others is None else others.received(packet)))
        except BadFrame as error:
            self._context.count(error.reason)

    def _take_reply_untrusted(self, now: float, packet: bytes) -> bool:
        if self._dhcp6 is not None and self._dhcp6.receive_untrusted(now, packet):
            return True
        return self._dhcp is not None and self._dhcp.receive_untrusted(now, packet)

    def _other_clients(self) -> DhcpClients:
        """Return the DHCP clients of other programs, from the first request of one on."""
        if self._others is None:
            from ipoibu.proto.dhcp.other_clients import DhcpClients  # few hosts have such a client

            self._others = DhcpClients(self._context)
        return self._others

    def too_big(self, now: float, next_hop: IpAddress, packet: bytes, mtu_bytes: int) -> None:
        self._errors.too_big(now, packet, mtu_bytes, self._speaker(next_hop))

    def _speaker(self, next_hop: IpAddress) -> IpAddress | None:
        """Return the address of ours for an error about an IPv6 packet to a group (RFC 4443 §2.2); None: the
        packet's destination speaks."""
        if next_hop.version == 4 or not next_hop.is_multicast:
            return None
        ours = [address for address, _ in self._addresses.snapshot() if address.version == 6]
        return min(ours, key=lambda it: it.is_link_local, default=None)

    # -- next hops -------------------------------------------------------------------------------

    def note_used(self, now: float, next_hop: IpAddress) -> None:
        self._neighbours.note_used(now, next_hop)

    def note_neigh_refused(self, now: float, next_hop: IpAddress, error: int) -> None:
        self._neighbours.note_refused(now, next_hop, error)

    def pin(self, now: float, ip: IpAddress, hwaddr: HwAddr, replaces: bool) -> None:
        if not is_host(ip) or ip in self._addresses or self._addresses.is_group(ip):
            raise UsageError(f"{ip} is not the address of another host")
        if ip.version == 6 and not self._context.config.carries_ipv6:
            raise UsageError(f"{ip}: the MTU of this link is too small for IPv6")
        if hwaddr.gid.is_multicast or hwaddr.same_queue_pair(self._context.hwaddr):
            raise UsageError(f"{hwaddr} is not the hardware address of another host")
        self._neighbours.pin(now, ip, hwaddr, replaces=replaces)

    # -- what a pump needs -----------------------------------------------------------------------

    @property
    def watches_dhcp(self) -> bool:
        clients = (self._dhcp, self._dhcp6, self._others)
        return any(it is not None and it.is_watching for it in clients)

    def pump_entries(self) -> Sequence[Effect]:
        return ()
