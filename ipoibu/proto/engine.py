# SPDX-License-Identifier: BSD-2-Clause
"""The engine of one IPoIB interface, sans-IO: every input returns effects, in order.

`now` is monotonic seconds and never runs backwards. The caller passes randomness in; the engine uses no
socket, clock or thread. One caller at a time. A packet of a peer or of the local stack never makes an
input raise: a bad one ends in a `Count`. An input raises only for a caller's mistake.

    frame ----> arp, ndisc ----> neighbours (neigh) ---.
                     '---------> addresses (dad) ------+----> effects
    miss, used ----> neighbours, groups (group) -------'
    host_packet, memberships_changed ---> listeners ----> groups
    host_packet, dhcp_reply ---> dhcp, dhcp6, dhcp_clients
    with Ethernet hand-off: frame, miss, host_packet, dhcp_reply, link_packet ---> ethernet
    attached, port_event ----> link: opens and closes groups and addresses
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address

from ipoibu.base.addr import Gid, HwAddr, IpAddress, IpInterface, Mac, Qpn
from ipoibu.base.errors import BadFrame, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import IPV6_MIN_MTU
from ipoibu.proto.context import Dad, EngineContext, FrameSource, LinkConfig, Resolver, is_host
from ipoibu.proto.dhcp.client import DhcpClient
from ipoibu.proto.dhcp.client6 import Dhcp6Client
from ipoibu.proto.dhcp.other_clients import DhcpClients
from ipoibu.proto.effects import (
    AskProxy,
    Deliver,
    Effect,
    Forward,
    LinkChanged,
    Log,
    SetGuest,
    SetNeighbour,
    SetQueuePair,
)
from ipoibu.proto.ethernet.guests import GuestInfo
from ipoibu.proto.ethernet.handoff import Handoff
from ipoibu.proto.ethernet.macs import NeighbourInfo
from ipoibu.proto.ethernet.refusals import RefusalInfo
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.groups import link
from ipoibu.proto.groups.groups import GroupInfo, Groups
from ipoibu.proto.groups.link import IpoibLink
from ipoibu.proto.groups.listeners import ALL_HOSTS, Listeners
from ipoibu.proto.machine.transition import Observer, ignore
from ipoibu.proto.neigh import dad
from ipoibu.proto.neigh.arp import ArpResolver
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.proto.neigh.host_addresses import ArpPolicy, Delivery, HostAddresses
from ipoibu.proto.neigh.icmp_errors import IcmpErrors
from ipoibu.proto.neigh.moves import Moves
from ipoibu.proto.neigh.ndisc import NdResolver
from ipoibu.proto.neigh.neighbours import Neighbours, NeighInfo
from ipoibu.proto.neigh.pings import Pings
from ipoibu.proto.neigh.proxy_entries import ProxyEntries
from ipoibu.proto.neigh.proxy_networks import ProxyNetworks, ProxyRoute, ProxyRules
from ipoibu.proto.neigh.routers import Routers
from ipoibu.proto.sa.path import PathInfo, SaPath
from ipoibu.wire import dhcp, dhcp6, encap, ip, udp
from ipoibu.wire.arp import Arp
from ipoibu.wire.encap import EtherType
from ipoibu.wire.mgid import LIMITED_BROADCAST, solicited_node
from ipoibu.wire.ndisc import ALL_NODES

__all__ = ["AddressInfo", "Engine", "FrameSource", "LinkConfig"]


@dataclass(frozen=True, slots=True)
class AddressInfo:
    """One of our addresses; `state` is TENTATIVE, PREFERRED or DUPLICATE."""

    address: IpAddress
    state: dad.State


class Engine:
    """All decisions of an interface beside the pump's hit path; see the module."""

    def __init__(self, config: LinkConfig, rng: random.Random, observe: Observer = ignore) -> None:
        self._context = context = EngineContext(config, rng, observe)
        resolvers: dict[int, Resolver] = {}
        self._errors = IcmpErrors(context)
        self._neighbours = Neighbours(context, resolvers, self._errors.unreachable)
        self._addresses = Addresses(context, resolvers, self._is_joined, self._decided)
        self._host = HostAddresses(context, self._addresses)
        self._groups = Groups(context)
        self._proxies = ProxyEntries(context, self._groups)
        answers: dict[int, Callable[[AskProxy], None]] = {}
        self._proxied = ProxyNetworks(context, self._groups, resolvers, answers)
        self._moves = Moves(context, self._announce_again)
        self._is_moving = False
        self._arp = ArpResolver(
            context,
            self._neighbours,
            self._addresses,
            self._host,
            proxies=self._proxies,
            proxied=self._proxied,
            moves=self._moves,
        )
        self._routers = Routers(
            context, self._ask_router, self._neighbours.solicit, self._neighbours.is_reachable
        )
        self._neighbours.watcher = self._routers
        self._nd = NdResolver(
            context,
            self._neighbours,
            self._addresses,
            self._routers,
            proxies=self._proxies,
            proxied=self._proxied,
            moves=self._moves,
        )
        resolvers.update({4: self._arp, 6: self._nd})
        answers.update({4: self._arp.answer, 6: self._nd.answer})
        self.pings = Pings(context, self._neighbours, self._addresses)
        self._memberships = Listeners(self._groups)
        self._other_clients = DhcpClients(context)
        identity = config.dhcp
        self.dhcp = DhcpClient(context, self._addresses, identity) if identity else None
        self.dhcp6: Dhcp6Client | None = None
        if config.dhcp6 is not None:
            self.dhcp6 = Dhcp6Client(
                context, self._addresses, config.dhcp6, self._hold, self._leave
            )
        self._dhcp_clients = [it for it in (self.dhcp, self.dhcp6) if it is not None]
        self.handoff: Handoff | None = None
        if config.ethernet is not None:
            self.handoff = Handoff(context, self._groups, config.ethernet)
        arp, nd = self._arp, self._nd
        self._receive_arp = (arp if self.handoff is None else self.handoff.arp).receive_untrusted
        self._receive_nd = (nd if self.handoff is None else self.handoff.nd).receive_untrusted
        self._explicit: Counter[IpAddress] = Counter()
        self._link = IpoibLink(self._act, observe)
        for group in (LIMITED_BROADCAST, ALL_HOSTS, ALL_NODES):
            if group.version == 4 or config.carries_ipv6:
                self._groups.join(0.0, group)

    # -- the link --------------------------------------------------------------------------------

    def start(self, now: float) -> list[Effect]:
        """Join the broadcast group; everything else waits for it (B1)."""
        self._link.feed(now, link.Input.START)
        return self._context.take(now)

    def stop(self, now: float) -> list[Effect]:
        """Leave all groups; addresses and group users stay for another `start`."""
        self._link.feed(now, link.Input.STOP)
        return self._context.take(now)

    def port_event(self, now: float, event: str, hwaddr: HwAddr | None = None) -> list[Effect]:
        """The port's state changed: `down`, `up`, or `gid` with our new hardware address."""
        if event not in link.PORT_EVENTS:
            raise ValueError(f"{event!r} is not a port event")
        self._context.hwaddr = hwaddr or self._context.hwaddr
        self._link.feed(now, link.PORT_EVENTS[event])
        return self._context.take(now)

    def keep_ours(self) -> None:
        """Announce our addresses without further probes when the link comes up next: the interface gets
        another queue pair on the same link, and nobody had time to take them."""
        self._addresses.keep_ours()
        self._is_moving = True

    def renewed(
        self,
        params: PartitionParams,
        hwaddr: HwAddr,
        mtu_bytes: int,
        guest_qpns: tuple[Qpn, ...] = (),
    ) -> None:
        """Take another queue pair with those of the guests, and perhaps another link; the caller does so only
        while the port is down.

        `UsageError` if IPv6 fits now and did not before, or the other way round: then the interface must
        start again, because the engine has refused addresses and groups for that reason.
        """
        config = replace(
            self._context.config,
            params=params,
            hwaddr=hwaddr,
            mtu_bytes=mtu_bytes,
            guest_qpns=guest_qpns,
        )
        if config.carries_ipv6 != self._context.config.carries_ipv6:
            raise UsageError(
                f"the link's MTU went from {self._context.config.mtu_bytes} to {mtu_bytes}, "
                f"and IPv6 needs {IPV6_MIN_MTU}: start the interface again"
            )
        self._context.renew(config)
        if self.handoff is not None:
            self.handoff.renewed()

    def moved(self, now: float, hwaddr: HwAddr) -> list[Effect]:
        """Another queue pair of ours, which is in the same groups, carries the traffic: announce our
        addresses with its hardware address. Neighbours and leases stay."""
        self._context.hwaddr = hwaddr
        self._context.config = replace(self._context.config, hwaddr=hwaddr)
        if self._link.is_up:
            self._addresses.moved(now)
            self._proxied.link_down()
            self._proxied.link_up(now)
            self._moves.moved(now)
        return self._context.take(now)

    def _announce_again(self) -> None:
        self._addresses.announce_again()
        self._proxied.announce_again()

    def router_changed(self, is_router: bool) -> None:
        """Set the Router flag of our neighbour advertisements (RFC 4861 §4.4)."""
        self._context.config = replace(self._context.config, is_router=is_router)

    def learned(self, now: float, hwaddr: HwAddr, addresses: Iterable[IpAddress]) -> list[Effect]:
        """A peer announces its own addresses, as hosts of a mesh do when they connect."""
        for address in addresses:
            if address in self._addresses:
                self._addresses.claimed(now, address, hwaddr)
            elif is_host(address) and not self._addresses.is_directed_broadcast(address):
                self._neighbours.introduced(now, address, hwaddr)
        return self._context.take(now)

    def attached(self, now: float, mgid: Gid, path: SaPath | None = None) -> list[Effect]:
        """The fabric receives the group's datagrams; under an SA `path` is the path to the group."""
        if self._context.paths is not None and path is not None:
            self._context.paths.joined(now, mgid, path)
        self._groups.attached(now, mgid)
        is_broadcast = mgid == self._context.mgid(LIMITED_BROADCAST)
        if is_broadcast and self._groups.is_member(LIMITED_BROADCAST):
            self._link.feed(now, link.Input.BROADCAST_JOINED)
        self._addresses.group_joined(now)
        return self._context.take(now)

    def attach_failed(self, now: float, mgid: Gid, reason: str) -> list[Effect]:
        """The fabric refused the group, for `reason`; the engine asks again after a while."""
        if self._context.paths is not None and mgid != self._context.mgid(LIMITED_BROADCAST):
            self._context.paths.resigned(now, mgid)  # B4: a join to send may create it again
        self._groups.attach_failed(now, mgid, reason)
        return self._context.take(now)

    # -- the subnet administrator ----------------------------------------------------------------

    def path_resolved(self, now: float, gid: Gid, path: SaPath) -> list[Effect]:
        """The SA's answer to `FindPath` or `JoinToSend`."""
        if self._context.paths is not None:
            self._context.paths.path_resolved(now, gid, path)
        return self._context.take(now)

    def path_unresolved(self, now: float, gid: Gid, reason: str) -> list[Effect]:
        """The SA refused, or did not answer; the engine asks again after a while."""
        if self._context.paths is not None:
            self._context.paths.refused(now, gid, reason)
        return self._context.take(now)

    def sa_changed(self, now: float) -> list[Effect]:
        """The SA may have forgotten us, or another SA took over: a light flush. The engine joins all groups
        and asks for all paths again, and uses the present ones meanwhile."""
        if self._context.paths is not None:
            self._groups.renew()
            self._context.paths.revalidate(now)
        return self._context.take(now)

    def group_changed(self, now: float, mgid: Gid, *, exists: bool) -> list[Effect]:
        """The SA reports that the group exists now, or that it is gone (M2)."""
        if self._context.paths is not None:
            if not exists:
                self._groups.renew(mgid)
            self._context.paths.changed(now, mgid, exists=exists)
        return self._context.take(now)

    # -- packets ---------------------------------------------------------------------------------

    def frame(self, now: float, source: FrameSource, frame: bytes) -> list[Effect]:
        """Take an ARP message or an ND packet from the fabric, the encapsulation header included."""
        if not self._link.is_up:
            self._context.count("link_down")
        elif self._context.is_echo(source):
            self._context.count("echo")
        else:
            try:
                self._frame_untrusted(now, source, frame)
            except BadFrame as error:
                self._context.drop(now, source, error.reason)
        return self._context.take(now)

    def miss(self, now: float, next_hop: IpAddress, packet: bytes) -> list[Effect]:
        """The pump has no entry for `next_hop`, the next hop of `packet`, which is a guest's frame with
        Ethernet hand-off."""
        if self.handoff is not None:
            self.handoff.from_guest(now, packet)
            return self._context.take(now)
        self._miss(now, next_hop, packet)
        return self._context.take(now)

    def link_packet(self, now: float, source: FrameSource | None, packet: bytes) -> list[Effect]:
        """With Ethernet hand-off: the pump knows no guest for an IP packet of the link."""
        if self.handoff is not None:
            self.handoff.wanted(now, source, packet)
        return self._context.take(now)

    def rewired(self, now: float) -> list[Effect]:
        """With Ethernet hand-off: the TAP is in another bridge, or up again."""
        if self.handoff is not None:
            self.handoff.rewired(now)
        return self._context.take(now)

    def guests_bound(self, now: float, config: EthernetConfig) -> list[Effect]:
        """With Ethernet hand-off: take other bindings of the administrator."""
        if self.handoff is not None:
            self.handoff.bind(now, config)
        return self._context.take(now)

    def spoofed(self, now: float, address: IpAddress, mac: Mac) -> list[Effect]:
        """With Ethernet hand-off: the pump dropped a packet of the guest `mac` from another guest's
        address, and has counted it."""
        if self.handoff is not None:
            self.handoff.spoofed(now, address, mac)
        return self._context.take(now)

    def neigh_refused(self, now: float, next_hop: IpAddress, error: int) -> list[Effect]:
        """The pump did not take an entry, for the reason `error` (errno): its table is full."""
        if self.handoff is not None:
            self.handoff.neigh_refused(next_hop, error)
        else:
            self._neighbours.refused(now, next_hop, error)
        return self._context.take(now)

    def control_limited(self, now: float, source: FrameSource) -> list[Effect]:
        """The pump refuses ARP and ND messages of this second, the first one of them from `source`."""
        text = f"too many ARP and ND messages: ignored some, the first from {source}"
        self._context.warn("control_limited", now, text)
        return self._context.take(now)

    def resolution_limited(self, now: float, next_hop: IpAddress) -> list[Effect]:
        """The pump drops packets of this second to addresses that it does not know, the first one of them to
        `next_hop`."""
        text = f"too many new addresses: dropped packets to some, the first to {next_hop}"
        self._context.warn("resolution_limited", now, text)
        return self._context.take(now)

    def dropped(self, now: float, source: FrameSource, counter: str) -> list[Effect]:
        """The pump dropped a datagram of `source`, and has counted it under `counter`."""
        self._context.note_drop(now, source, counter)
        return self._context.take(now)

    def wanted(self, now: float, next_hop: IpAddress) -> list[Effect]:
        """The pump has no entry for one of several next hops, and sends by another one meanwhile."""
        is_ours = next_hop in self._addresses or not is_host(next_hop)
        is_refused = next_hop.version == 6 and not self._context.config.carries_ipv6
        if self._link.is_up and not is_ours and not is_refused:
            self._neighbours.wanted(now, next_hop)
        return self._context.take(now)

    def gateway_changed(self, now: float, gateway: IpAddress, *, is_used: bool) -> list[Effect]:
        """A route of our host leads to the gateway, or the last such route is gone."""
        self._neighbours.set_gateway(now, gateway, is_used)
        return self._context.take(now)

    def rerouted(self, now: float, is_affected: Callable[[IpAddress], bool]) -> list[Effect]:
        """Routes have changed: look up again the packets that wait and whose destination `is_affected`,
        and forget that such a neighbour did not answer."""
        self._neighbours.rerouted(now, is_affected)
        if self._context.paths is not None:
            self._context.paths.rerouted(is_affected)
        return self._context.take(now)

    def used(self, now: float, next_hop: IpAddress) -> list[Effect]:
        """The pump sent by a NOTIFY entry, for the first time since the engine published it."""
        if self._is_group(next_hop):
            self._groups.used(now, next_hop)
        elif self.handoff is None:
            self._neighbours.used(now, next_hop)
        return self._context.take(now)

    def host_packet(self, now: float, packet: bytes) -> list[Effect]:
        """Take a packet of the local stack and send it on: an IGMP or MLD packet after its report, a
        DHCP request with what an IPoIB host writes into it. With Ethernet hand-off it is any frame of a
        guest that the pump does not pass on by itself."""
        if self.handoff is not None:
            self.handoff.from_guest(now, packet)
            return self._context.take(now)
        try:
            header = ip.parse_untrusted(packet)
            if isinstance(header, ip.Ipv4) and header.protocol == udp.PROTOCOL:
                self._context.emit(Forward(self._other_clients.sent(packet)))
                return self._context.take(now)
            version = header.source.version
            if version == 4 or self._context.config.carries_ipv6:
                self._memberships.report_untrusted(now, version, packet)
            self._miss(now, header.destination, packet)
        except BadFrame as error:
            self._context.count(error.reason)
        return self._context.take(now)

    def unreachable(self, now: float, next_hop: IpAddress, packet: bytes) -> list[Effect]:
        """The pump dropped `packet` at the UNREACHABLE entry of `next_hop`."""
        self._errors.unreachable(now, next_hop, packet)
        return self._context.take(now)

    def too_big(
        self, now: float, next_hop: IpAddress, packet: bytes, mtu_bytes: int
    ) -> list[Effect]:
        """The pump dropped `packet`, which is larger than the `mtu_bytes` of `next_hop` (C13); with
        Ethernet hand-off it is a frame."""
        if self.handoff is not None:
            self.handoff.too_big(now, packet, mtu_bytes)
            return self._context.take(now)
        self._errors.too_big(now, packet, mtu_bytes, self._speaker(next_hop))
        return self._context.take(now)

    def ping(self, now: float, ip: IpAddress, hwaddr: HwAddr | None = None) -> list[Effect]:
        """Ask for `ip`, all hosts or `hwaddr` alone: `Answered` follows each answer until `pings.end`."""
        self.pings.ask(now, ip, hwaddr)
        return self._context.take(now)

    # -- DHCP ------------------------------------------------------------------------------------

    def dhcp_reply(self, now: float, packet: bytes) -> list[Effect]:
        """Take a reply of DHCP or DHCPv6 of the link: our client's, or deliver it as another client expects
        it."""
        if self.handoff is not None:
            self.handoff.wanted(now, None, packet)
            return self._context.take(now)
        try:
            if self.dhcp6 is not None and self._link.is_up:
                answer = dhcp6.parse_untrusted(packet)
                if answer is not None and self.dhcp6.receive_untrusted(now, answer):
                    return self._context.take(now)
            if self.dhcp is not None and self._link.is_up:
                reply = dhcp.parse_untrusted(packet)
                if reply is not None and self.dhcp.receive_untrusted(now, reply):
                    return self._context.take(now)
            self._context.emit(Deliver(self._other_clients.received(packet)))
        except BadFrame as error:
            self._context.count(error.reason)
        return self._context.take(now)

    def release(self, now: float, *, dhcp: bool = True, dhcp6: bool = True) -> list[Effect]:
        """Give these leases back: the interface ends."""
        if self.dhcp is not None and dhcp:
            self.dhcp.stop(now)
        if self.dhcp6 is not None and dhcp6:
            self.dhcp6.stop(now)
        return self._context.take(now)

    @property
    def watches_dhcp(self) -> bool:
        """Return whether the pump has to pass DHCP replies up (`WatchDhcp`)."""
        is_ours = self.handoff is not None or any(it.is_watching for it in self._dhcp_clients)
        return is_ours or self._other_clients.is_watching

    # -- addresses and groups --------------------------------------------------------------------

    def address_added(
        self,
        now: float,
        interface: IpInterface,
        is_checked: bool = True,
        is_optimistic: bool = False,
    ) -> list[Effect]:
        """The host has a new address: probe for it (if `is_checked`), then announce it. Hosts may reach an
        optimistic one meanwhile (RFC 4429). IPv6 needs an MTU of 1280 (T3)."""
        address = interface.ip
        if self._refuse_ipv6(address) or not is_host(address):
            return self._context.take(now)
        self._hold(now, interface, None, is_checked=is_checked, is_optimistic=is_optimistic)
        return self._context.take(now)

    def keep_addresses(self, ips: Iterable[IpAddress]) -> None:
        """Take these addresses without probes when they are added: they were ours until now."""
        self._addresses.keep(ips)

    def address_removed(self, now: float, interface: IpInterface) -> list[Effect]:
        """The host gave an address up."""
        if any(it.is_checking(interface) for it in self._dhcp_clients):
            return []  # of a former lease, while we check that address for the next one
        self._leave(now, interface)
        broadcast = interface.network.broadcast_address
        if not self._is_group(broadcast):
            self._groups.withdraw(now, broadcast)
        return self._context.take(now)

    def arp_changed(self, now: float, others: Set[IPv4Address], policy: ArpPolicy) -> list[Effect]:
        """Take the IPv4 addresses of the host's other interfaces, and the ARP policy of ours."""
        self._host.change(now, others, policy)
        self._neighbours.source_ready(now, 4)
        return self._context.take(now)

    def arp_asked(
        self, now: float, request: Arp, delivery: Delivery | None, is_multicast: bool = False
    ) -> list[Effect]:
        """Take what the kernel does with packets to the address that `request` asks for (`AskArp`)."""
        if self._link.is_up:
            self._arp.asked(now, request, delivery, is_multicast)
        return self._context.take(now)

    def proxied_changed(self, now: float, rules: ProxyRules) -> list[Effect]:
        """Take the networks whose hosts behind us we answer for."""
        self._proxied.change(now, rules)
        return self._context.take(now)

    def proxy_asked(self, now: float, question: AskProxy, route: ProxyRoute | None) -> list[Effect]:
        """Take the kernel's route to the address that a host asks for (`AskProxy`)."""
        if self._link.is_up:
            resolver = self._arp if question.target.version == 4 else self._nd
            resolver.proxy_asked(now, question, route)
        return self._context.take(now)

    def proxies_changed(self, now: float, ips: Set[IpAddress]) -> list[Effect]:
        """Take the addresses that we answer for as a proxy, and our anycast addresses."""
        carried = {ip for ip in ips if ip.version == 4 or self._context.config.carries_ipv6}
        self._proxies.change(now, carried)
        return self._context.take(now)

    def memberships_changed(self, now: float, groups: Iterable[IpAddress]) -> list[Effect]:
        """Take all groups that the kernel's stack receives now; T3: IPv6 ones only where IPv6 works."""
        carried = (it for it in groups if it.version == 4 or self._context.config.carries_ipv6)
        self._memberships.listed(now, carried)
        return self._context.take(now)

    def join(self, now: float, group: IpAddress) -> list[Effect]:
        """The application joins the group; each `join` needs one `leave`."""
        if not group.is_multicast:
            raise UsageError(f"{group} is not a multicast group")
        if not self._refuse_ipv6(group) and self._groups.join(now, group):
            self._explicit[group] += 1
        return self._context.take(now)

    def leave(self, now: float, group: IpAddress) -> list[Effect]:
        """The application leaves the group; `UsageError` if it has not joined it."""
        if not self._explicit[group]:
            raise UsageError(f"{group} was not joined")
        self._explicit -= Counter((group,))
        self._groups.leave(now, group)
        return self._context.take(now)

    # -- neighbours of an administrator ----------------------------------------------------------

    def set_neighbour(
        self, now: float, ip: IpAddress, hwaddr: HwAddr, replaces: bool
    ) -> list[Effect]:
        """Set a permanent entry; `UsageError` for an impossible one, or if there is one already and we may
        not replace it."""
        if self.handoff is not None:
            raise UsageError("the neighbours of this interface belong to its guests")
        if not is_host(ip) or ip in self._addresses or self._is_group(ip):
            raise UsageError(f"{ip} is not the address of another host")
        if ip.version == 6 and not self._context.config.carries_ipv6:
            raise UsageError(f"{ip}: the MTU of this link is too small for IPv6")
        if hwaddr.gid.is_multicast or hwaddr.same_queue_pair(self._context.hwaddr):
            raise UsageError(f"{hwaddr} is not the hardware address of another host")
        self._neighbours.pin(now, ip, hwaddr, replaces=replaces)
        if not self._link.is_up:
            self._neighbours.flush(now)  # withdraws it until the link is up
        return self._context.take(now)

    def remove_neighbour(self, now: float, ip: IpAddress) -> list[Effect]:
        """Remove an entry, permanent or not; `UsageError` if there is none."""
        self._neighbours.remove(now, ip)
        return self._context.take(now)

    def flush_neighbours(self, now: float, permanent: bool) -> list[Effect]:
        """Remove all entries, the permanent ones only if `permanent`."""
        self._neighbours.clear(now, permanent=permanent)
        return self._context.take(now)

    # -- time ------------------------------------------------------------------------------------

    def timer(self, now: float) -> list[Effect]:
        """Ring the timers that are due; call it at `deadline`, harmless at any other time."""
        self._context.timers.run(now)
        return self._context.take(now)

    def deadline(self) -> float | None:
        """Return the time of the next call of `timer`; None if no timer runs."""
        return self._context.timers.deadline()

    # -- snapshots ---------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        return self._link.is_up

    def neighbour_ips(self) -> list[IpAddress]:
        """Return the addresses of all neighbours, so that the caller can ask for a few at a time."""
        return self._neighbours.ips()

    def neighbours(self, now: float, ips: Iterable[IpAddress] | None = None) -> list[NeighInfo]:
        """Return all neighbours, or those of `ips` that still exist."""
        return list(self._neighbours.snapshot(now, ips))

    def guests(self, now: float) -> list[GuestInfo]:
        """Return the addresses of the guests behind a TAP."""
        return [] if self.handoff is None else self.handoff.guests(now)

    def macs(self, now: float) -> list[NeighbourInfo]:
        """Return the MACs that stand for hosts of the link towards guests."""
        return [] if self.handoff is None else self.handoff.neighbours(now)

    def refusals(self, now: float) -> list[RefusalInfo]:
        """Return which guests used addresses that they may not."""
        return [] if self.handoff is None else self.handoff.refused(now)

    def handed_off(self) -> list[SetGuest | SetQueuePair | SetNeighbour]:
        """Return what another pump has to know of guests and MACs."""
        return [] if self.handoff is None else self.handoff.published()

    def groups(self, now: float) -> list[GroupInfo]:
        return list(self._groups.snapshot(now))

    def path_gids(self) -> list[Gid]:
        """Return the GIDs of all paths of the SA, so that the caller can ask for a few at a time."""
        return self._context.paths.gids() if self._context.paths is not None else []

    def paths(self, gids: Iterable[Gid]) -> list[PathInfo]:
        """Return the paths to those of `gids` that still have one."""
        return self._context.paths.snapshot(gids) if self._context.paths is not None else []

    def addresses(self) -> list[AddressInfo]:
        return [AddressInfo(address, state) for address, state in self._addresses.snapshot()]

    def owned(self) -> list[IpAddress]:
        """Return the addresses for which the pump passes requests up."""
        return self._context.owned()

    # -- inside ----------------------------------------------------------------------------------

    def _act(self, now: float, action: link.Action) -> None:
        match action:
            case link.Action.JOIN_BROADCAST:
                self._groups.begin(now, LIMITED_BROADCAST)
            case link.Action.OPEN:
                self._context.emit(Log(logging.INFO, f"link up as {self._context.hwaddr}"))
                self._context.emit(LinkChanged(is_up=True))
                self._groups.open(now)
                for client in self._dhcp_clients:
                    client.link_up(now)
                self._addresses.link_up(now)
                self._proxied.link_up(now)
                if self._is_moving:
                    self._is_moving = False
                    self._moves.moved(now)
                if self.handoff is not None:
                    self.handoff.link_up(now)
            case link.Action.CLOSE:
                self._context.emit(Log(logging.INFO, "link down"))
                self._context.emit(LinkChanged(is_up=False))
                for client in self._dhcp_clients:
                    client.link_down(now)
                self._addresses.link_down(now)
                self._proxied.link_down()
                if self.handoff is not None:
                    self.handoff.link_down()
                self._neighbours.flush(now)
                self._groups.close(now)
                if self._context.paths is not None:
                    self._context.paths.clear(now)

    def _ask_router(self, now: float, ip: IpAddress) -> None:
        if self._link.is_up:
            self._neighbours.wanted(now, ip)
            self._neighbours.used(now, ip)

    def _is_joined(self, address: IpAddress) -> bool:
        if isinstance(address, IPv4Address):
            return True  # ARP uses the broadcast group, and the link is up
        groups = (ALL_NODES, solicited_node(address))
        return all(self._groups.is_member(group) for group in groups)

    def _decided(self, now: float, address: IpAddress, is_duplicate: bool) -> None:
        if not is_duplicate:
            self._neighbours.source_ready(now, address.version)
        for client in self._dhcp_clients:
            client.decided(now, address, is_duplicate)

    def _hold(
        self,
        now: float,
        interface: IpInterface,
        policy: Dad | None,
        *,
        is_checked: bool = True,
        is_optimistic: bool = False,
    ) -> bool:
        """Take an address, of IPv6 with its group (RFC 4862 §5.4.2); False if there is no room."""
        address = interface.ip
        is_new = all(info.address != address for info in self.addresses())
        if not isinstance(address, IPv6Address) or not is_new:
            return self._addresses.add(now, interface, is_checked=is_checked, policy=policy)
        group = solicited_node(address)
        if not self._groups.join(now, group):
            return False
        if not self._addresses.add(
            now, interface, is_checked=is_checked, is_optimistic=is_optimistic, policy=policy
        ):
            self._groups.leave(now, group)
            return False
        return True

    def _leave(self, now: float, interface: IpInterface) -> None:
        """End `_hold`."""
        if self._addresses.remove(interface) and isinstance(interface.ip, IPv6Address):
            self._groups.leave(now, solicited_node(interface.ip))

    def _frame_untrusted(self, now: float, source: FrameSource, frame: bytes) -> None:
        parcel = encap.parse_untrusted(frame)
        match parcel.type:
            case EtherType.ARP:
                self._receive_arp(now, source, parcel.payload)
            case EtherType.IPV6 if self._context.config.carries_ipv6:
                self._receive_nd(now, source, parcel.payload)
            case EtherType.IPV6:
                self._context.drop(now, source, "ipv6_refused")
            case _:
                self._context.drop(now, source, "frame_unexpected")

    def _miss(self, now: float, next_hop: IpAddress, packet: bytes) -> None:
        if not self._link.is_up:
            self._context.count("link_down")
        elif next_hop.version == 6 and not self._context.config.carries_ipv6:
            self._context.count("ipv6_refused")
        elif self._addresses.is_directed_broadcast(next_hop):
            self._groups.miss(now, next_hop, packet, via=LIMITED_BROADCAST)
        elif self._is_group(next_hop):
            self._groups.miss(now, next_hop, packet)
        elif next_hop in self._addresses or not is_host(next_hop):
            self._context.count("next_hop_invalid")
        else:
            self._neighbours.miss(now, next_hop, packet)

    def _speaker(self, next_hop: IpAddress) -> IpAddress | None:
        """Return the address of ours for an error about an IPv6 packet to a group (RFC 4443 §2.2); None: the
        packet's destination speaks."""
        if next_hop.version == 4 or not next_hop.is_multicast:
            return None
        ours = [it.address for it in self.addresses() if it.address.version == 6]
        return min(ours, key=lambda it: it.is_link_local, default=None)

    def _is_group(self, next_hop: IpAddress) -> bool:
        return (
            next_hop.is_multicast
            or next_hop == LIMITED_BROADCAST
            or self._addresses.is_directed_broadcast(next_hop)
        )

    def _refuse_ipv6(self, address: IpAddress) -> bool:
        """T3: count and log an IPv6 address that the link cannot carry."""
        config = self._context.config
        if address.version == 4 or config.carries_ipv6:
            return False
        self._context.count("ipv6_refused")
        text = (
            f"cannot use {address}: IPv6 needs MTU {IPV6_MIN_MTU}, this link has {config.mtu_bytes}"
        )
        self._context.emit(Log(logging.WARNING, text))
        return True
