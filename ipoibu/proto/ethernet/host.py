# SPDX-License-Identifier: BSD-2-Clause
"""The hand-off between guests behind a TAP and the link: what the pump cannot decide alone.

The pump passes on by itself what it knows: a guest's frame to a MAC that is published (`next_hop_of`) or
to a published group, from an address of that guest; a packet of the link to the address of a guest. All
else comes here:

    `host_packet`  frames of ARP, neighbour discovery, DHCP, IGMP and MLD, to an unknown MAC or group, and
                   from an unknown address
    `arp`, `nd`    messages of the link
    `link_packet`  packets of the link for an address that no guest has
    `dhcp_reply`   replies of DHCP, which go to the guest that asked
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import HwAddr, IpAddress, Mac
from ipoibu.base.errors import BadFrame, UsageError
from ipoibu.base.limits import (
    ETHERNET_ANSWER_S,
    ETHERNET_CHECKS,
    ETHERNET_SEARCHES_BURST,
    ETHERNET_SEARCHES_PER_S,
    ETHERNET_WAITING_BYTES,
    ETHERNET_WAITING_MAX,
    ETHERNET_WAITING_TOTAL_BYTES,
)
from ipoibu.proto.context import EngineContext, FrameSource, is_host
from ipoibu.proto.effects import Deliver, SendPacket, SetGuest, SetNeighbour, SetQueuePair
from ipoibu.proto.ethernet.arp import GuestArp
from ipoibu.proto.ethernet.dhcp import GuestDhcp
from ipoibu.proto.ethernet.guests import GuestInfo, Guests
from ipoibu.proto.ethernet.listeners import GuestListeners
from ipoibu.proto.ethernet.macs import Macs, NeighbourInfo, mac_of_next_hop
from ipoibu.proto.ethernet.nd import GuestNd
from ipoibu.proto.ethernet.queue_pairs import QueuePairs
from ipoibu.proto.ethernet.refusals import RefusalInfo
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.groups.groups import Groups
from ipoibu.proto.host_side import HostSide
from ipoibu.proto.inputs import EnginePart, engine_input
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.waiting import Waiting
from ipoibu.proto.neigh.host_addresses import ALL_IPV4
from ipoibu.proto.neigh.proxy_networks import ALL_IPV6
from ipoibu.wire import dhcp, ethernet, icmp, ip, mld, ndisc
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame, group_mac
from ipoibu.wire.mgid import LIMITED_BROADCAST

_ND_KINDS: Final = frozenset(ndisc.Kind)
_MLD_KINDS: Final = frozenset(mld.Kind)
_UDP: Final = 17


@dataclass(slots=True)
class _Search:
    """An address for which packets wait, while we ask the guests who has it."""

    asked: int = 0


class EthernetHost(HostSide, EnginePart):
    """Every next hop of a packet is a MAC, and packets of the host are frames of guests."""

    def __init__(self, context: EngineContext, groups: Groups, config: EthernetConfig) -> None:
        self._context = context
        self._groups = groups
        self._is_up = False
        self._macs = Macs(context, self._is_guest)
        self._queue_pairs = QueuePairs(context)
        self._guests = Guests(
            context,
            groups,
            config.static,
            ask=self._ask,
            announce=self._announce,
            queue_pairs=self._queue_pairs,
        )
        self.arp = GuestArp(context, self._macs, self._guests, self._queue_pairs)
        self.nd = GuestNd(context, self._macs, self._guests, self._queue_pairs)
        self.receive_arp_untrusted = self.arp.receive_untrusted
        self.receive_nd_untrusted = self.nd.receive_untrusted
        self._dhcp = GuestDhcp(context)
        self._listeners = GuestListeners(context, groups, self._macs)
        self._searches: OrderedDict[IpAddress, _Search] = OrderedDict()
        self._waiting: Waiting[IpAddress, tuple[Mac, bytes]] = Waiting(
            ETHERNET_WAITING_BYTES, ETHERNET_WAITING_TOTAL_BYTES, self._note_lost
        )
        self._budget = TokenBucket(ETHERNET_SEARCHES_PER_S, ETHERNET_SEARCHES_BURST)
        context.own(ALL_IPV4)
        if context.config.carries_ipv6:
            context.own(ALL_IPV6)

    @property
    def mac(self) -> Mac:
        """The interface's own MAC: the source of packets of hosts that have none yet."""
        return self._macs.own

    @engine_input
    def bind(self, now: float, config: EthernetConfig) -> None:
        """Take other bindings of the administrator."""
        self._guests.bind(now, config.static)

    # -- the link --------------------------------------------------------------------------------

    def link_up(self, now: float) -> None:
        self._is_up = True
        self._dhcp.watch()
        self._listeners.link_up(now, self.nd.own_address)
        self._guests.link_up(now)

    def note_renewed(self) -> None:
        self._queue_pairs.note_renewed()

    @engine_input
    def note_rewired(self, now: float) -> None:
        """The TAP is in another bridge, or up again: other guests may be behind it."""
        if self._is_up:
            self._listeners.ask_again(now)

    def link_down(self) -> None:
        """The link is down: guests and MACs stay, destinations and waiting packets go."""
        self._is_up = False
        self._macs.link_down()
        self._guests.link_down()
        self._listeners.link_down()
        for address in list(self._searches):
            self._end_search(address)

    # -- from guests -----------------------------------------------------------------------------

    def miss(self, now: float, next_hop: IpAddress, packet: bytes) -> None:
        self.host_packet(now, packet)

    def host_packet(self, now: float, packet: bytes) -> None:
        """Take a frame of a guest that the pump does not pass on by itself."""
        if not self._is_up:
            self._context.count("link_down")
            return
        try:
            parsed = ethernet.parse_untrusted(packet)
            if parsed.source in self._macs:
                self._context.drop(now, parsed.source, "ethernet_spoofed")
            else:
                self._guest_untrusted(now, parsed, packet)
        except BadFrame as error:
            self._context.count(error.reason)

    def _guest_untrusted(self, now: float, parsed: Frame, frame: bytes) -> None:
        match parsed.ethertype:
            case EtherType.ARP:
                self.arp.note_sent_untrusted(now, parsed)
                self._note_found(now, parsed.source)
            case EtherType.IPV4 | EtherType.IPV6:
                self._guest_packet_untrusted(now, parsed, frame)
            case EtherType.RARP:  # a hypervisor's notice of a guest that migrated
                self._guests.note_arrived(now, parsed.source)
            case _:
                self._context.count("ethernet_type")

    def _guest_packet_untrusted(self, now: float, parsed: Frame, frame: bytes) -> None:
        packet = ip.parse_untrusted(parsed.payload)
        if packet.source.version != (4 if parsed.ethertype == EtherType.IPV4 else 6):
            raise BadFrame("ip_version")
        if isinstance(packet, ip.Ipv6) and not self._context.config.carries_ipv6:
            self._context.count("ipv6_refused")
            return
        upper = packet.upper_untrusted()
        kind = upper.payload[0] if upper.payload else 0
        is_icmp6 = isinstance(packet, ip.Ipv6) and upper.protocol == ip.ICMPV6
        if is_icmp6 and kind in _ND_KINDS and not upper.fragment_offset_bytes:
            self.nd.note_sent_untrusted(now, parsed)
            self._note_found(now, parsed.source)
            return
        if not self._may_send(now, parsed, packet):
            return
        is_igmp = isinstance(packet, ip.Ipv4) and packet.protocol == ip.IGMP
        if is_igmp or (is_icmp6 and kind in _MLD_KINDS):
            version = packet.source.version
            self._listeners.report_untrusted(now, parsed.source, version, parsed.payload)
        elif _is_dhcp_request(packet, upper):
            changed = self._dhcp.sent(now, parsed.source, parsed.payload)
            if changed is None:
                return
            frame = frame[: ethernet.HEADER_LEN] + changed
        self._send(now, parsed, packet, frame)

    def _may_send(self, now: float, parsed: Frame, packet: ip.Packet) -> bool:
        """Note the source of a guest's packet; return whether the guest may use it."""
        source = packet.source
        if source.is_unspecified:
            return True  # DHCP, IGMP, MLD
        if not is_host(source):
            self._context.drop(now, parsed.source, "ethernet_spoofed")
            return False
        if not self._guests.note_seen(now, source, parsed.source):
            self._context.drop(now, parsed.source, "ethernet_spoofed")
            return False
        self._note_found(now, parsed.source)
        return True

    def _send(self, now: float, parsed: Frame, packet: ip.Packet, frame: bytes) -> None:
        receiver, destination = parsed.destination, packet.destination
        if receiver == BROADCAST:
            self._groups.miss(now, LIMITED_BROADCAST, frame)
        elif receiver.is_group:
            if destination.is_multicast:
                self._groups.miss(now, destination, frame)
            else:
                self._context.count("ethernet_destination")
        elif (next_hop := self._macs.use(now, receiver)) is not None:
            self._context.emit(SendPacket(frame, next_hop))
        elif receiver == self._macs.own or self._guests.is_guest(receiver):
            self._context.count("ethernet_foreign")  # a bridge floods frames to MACs new to it
        else:
            self._context.count("ethernet_unknown_mac")
            self._search_link(now, packet.source, destination)

    def _search_link(self, now: float, source: IpAddress, target: IpAddress) -> None:
        """Ask the link who has `target`: after our restart guests still know the host's MAC."""
        if not is_host(target) or self._guests.mac(target) or not self._budget.take(now):
            return
        if isinstance(source, IPv4Address) and isinstance(target, IPv4Address):
            self.arp.search(source, target)
        elif isinstance(source, IPv6Address) and isinstance(target, IPv6Address):
            self.nd.search(source, target)

    # -- from the link ---------------------------------------------------------------------------

    @engine_input
    def link_packet(self, now: float, source: FrameSource | None, packet: bytes) -> None:
        """The pump knows no guest for an IP packet of the link. Without a `source` it comes from the
        interface's own MAC."""
        self._note_wanted(now, source, packet)

    def dhcp_reply(self, now: float, packet: bytes) -> None:
        self._note_wanted(now, None, packet)

    def _note_wanted(self, now: float, source: FrameSource | None, packet: bytes) -> None:
        if not self._is_up:
            self._context.count("link_down")
            return
        try:
            self._note_wanted_untrusted(now, source, packet)
        except BadFrame as error:
            self._context.count(error.reason)

    def _note_wanted_untrusted(self, now: float, source: FrameSource | None, packet: bytes) -> None:
        header = ip.parse_untrusted(packet)
        sender = self._macs.own if source is None else self.nd.sender_mac(now, source)
        destination = header.destination
        reply = self._dhcp.received(packet)
        if reply is not None:
            self._deliver(reply[0], sender, reply[1])
        elif destination.is_multicast or destination == LIMITED_BROADCAST:
            self._deliver(group_mac(destination), sender, packet)
        elif (mac := self._guests.mac(destination)) is not None:
            self._deliver(mac, sender, packet)
        elif not is_host(destination):
            self._context.count("ethernet_destination")
        else:
            self._search_guest(now, destination, sender, packet)

    def _search_guest(self, now: float, target: IpAddress, sender: Mac, packet: bytes) -> None:
        """Ask all guests who has `target`, and keep the packet for the answer."""
        if target not in self._searches:
            if len(self._searches) >= ETHERNET_WAITING_MAX or not self._budget.take(now):
                self._context.count("ethernet_unknown_guest")
                return
            self._searches[target] = _Search()
            self._ring_search(now, target)
        if not self._waiting.add(target, (sender, packet), len(packet)):
            self._note_lost(target, 1)

    def _ring_search(self, now: float, target: IpAddress) -> None:
        search = self._searches[target]
        if search.asked >= ETHERNET_CHECKS:
            self._end_search(target)
            return
        search.asked += 1
        if self._guests.prober(target) is None:  # which would take our question for a conflict
            self._ask(target, BROADCAST)
        self._context.timers.arm(self._ring_search, target, now + ETHERNET_ANSWER_S)

    def _end_search(self, target: IpAddress) -> None:
        self._context.timers.cancel(self._ring_search, target)
        del self._searches[target]
        self._note_lost(target, len(self._waiting.take(target)))

    def _note_lost(self, target: IpAddress, packets: int) -> None:
        self._context.count("ethernet_unknown_guest", packets)

    def _note_found(self, now: float, mac: Mac) -> None:
        """Deliver what waits for addresses that a guest has just named."""
        for target in [it for it in self._searches if self._guests.mac(it) == mac]:
            self._context.timers.cancel(self._ring_search, target)
            del self._searches[target]
            for sender, packet in self._waiting.take(target):
                self._deliver(mac, sender, packet)

    def _deliver(self, receiver: Mac, sender: Mac, packet: bytes) -> None:
        kind = EtherType.IPV4 if packet[0] >> 4 == 4 else EtherType.IPV6
        self._context.emit(Deliver(Frame(receiver, sender, kind, packet).pack()))

    # -- what the pump reports -------------------------------------------------------------------

    def too_big(self, now: float, next_hop: IpAddress, packet: bytes, mtu_bytes: int) -> None:
        try:
            parsed = ethernet.parse_untrusted(packet)
            self._context.count("ethernet_too_long")
            error = icmp.too_big_untrusted(parsed.payload, mtu_bytes)
        except BadFrame as bad:
            self._context.count(bad.reason)
            return
        if error is not None and parsed.source.is_host:
            self._deliver(parsed.source, self._macs.own, error)

    @engine_input
    def note_spoofed(self, now: float, address: IpAddress, mac: Mac) -> None:
        """The pump dropped a packet of `mac` from the address of another guest, and has counted it."""
        self._guests.note_spoofed(now, address, mac)

    def note_used(self, now: float, next_hop: IpAddress) -> None:
        pass

    def note_neigh_refused(self, now: float, next_hop: IpAddress, error: int) -> None:
        mac = mac_of_next_hop(next_hop)
        if mac is not None:
            self._macs.note_refused(mac, error)

    def pin(self, now: float, ip: IpAddress, hwaddr: HwAddr, replaces: bool) -> None:
        raise UsageError("the neighbours of this interface belong to its guests")

    # -- snapshots -------------------------------------------------------------------------------

    @property
    def watches_dhcp(self) -> bool:
        return True

    def pump_entries(self) -> list[SetGuest | SetQueuePair | SetNeighbour]:
        """Return what another pump has to know: destinations come back with packets of guests."""
        return [
            *self._guests.pump_entries(),
            *self._queue_pairs.pump_entries(),
            *self._macs.pump_entries(),
        ]

    @property
    def guest_count(self) -> int:
        """The number of addresses of guests."""
        return len(self._guests)

    def guests(self, now: float) -> list[GuestInfo]:
        return list(self._guests.snapshot(now))

    def neighbours(self, now: float) -> list[NeighbourInfo]:
        return list(self._macs.snapshot(now))

    def refusals(self, now: float) -> list[RefusalInfo]:
        return list(self._guests.refusals(now))

    def groups(self) -> Mapping[IpAddress, int]:
        """The groups that guests receive, with the number of guests."""
        return self._listeners.members()

    # -- inside ----------------------------------------------------------------------------------

    def _is_guest(self, mac: Mac) -> bool:
        return self._guests.is_guest(mac)

    def _ask(self, target: IpAddress, mac: Mac) -> None:
        if isinstance(target, IPv4Address):
            self.arp.ask(target, mac)
        else:
            self.nd.ask(target, mac)

    def _announce(self, address: IpAddress, is_router: bool) -> None:
        if not self._is_up:
            return
        if isinstance(address, IPv4Address):
            self.arp.announce(address)
        else:
            self.nd.announce(address, is_router)


def _is_dhcp_request(packet: ip.Packet, upper: ip.Upper) -> bool:
    if isinstance(packet, ip.Ipv6) or upper.protocol != _UDP or upper.fragment_offset_bytes:
        return False
    return upper.payload[2:4] == dhcp.SERVER_PORT.to_bytes(2, "big")
