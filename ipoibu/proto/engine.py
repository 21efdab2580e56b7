# SPDX-License-Identifier: BSD-2-Clause
"""The engine of one IPoIB interface, sans-IO: every input returns effects, in order.

`now` is monotonic seconds and never runs backwards. The caller passes randomness in; the engine uses no
socket, clock or thread. One caller at a time. A packet of a peer or of the local stack never makes an
input raise: a bad one ends in a `Count`. An input raises only for a caller's mistake.

    frame, miss, note_used, host_packet, dhcp_reply ----> ip_host, or ethernet: the host side
    frame ----> arp, ndisc ----> neighbours -----------.
                     '---------> addresses (dad) ------+----> effects
    miss, note_used ----> neighbours, groups ----------'
    host_packet, memberships_changed ---> listeners ----> groups
    host_packet, dhcp_reply ---> our DHCP clients, other_clients
    note_attached, port_event ----> link: opens and closes groups and addresses

Parts with inputs of their own: `ethernet`, `permanent`, `pings`, `reports`, `sa`.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

from ipoibu.base.addr import Gid, HwAddr, IpAddress, IpInterface, Qpn
from ipoibu.base.errors import BadFrame, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import IPV6_MIN_MTU
from ipoibu.proto import parts
from ipoibu.proto.context import EngineContext, FrameSource, LinkConfig, Resolver, is_host
from ipoibu.proto.effects import (
    AskProxy,
    Effect,
    LinkChanged,
    Log,
)
from ipoibu.proto.groups import link
from ipoibu.proto.groups.groups import GroupInfo, Groups
from ipoibu.proto.groups.link import IpoibLink
from ipoibu.proto.groups.listeners import ALL_HOSTS, Listeners
from ipoibu.proto.host_side import HostSide
from ipoibu.proto.inputs import EnginePart, engine_input
from ipoibu.proto.ip_host import IpHost
from ipoibu.proto.machine.transition import Observer, ignore
from ipoibu.proto.neigh import dad
from ipoibu.proto.neigh.arp import ArpResolver
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.proto.neigh.held_addresses import HeldAddresses
from ipoibu.proto.neigh.host_addresses import ArpPolicy, Delivery, HostAddresses
from ipoibu.proto.neigh.icmp_errors import IcmpErrors
from ipoibu.proto.neigh.moves import Moves
from ipoibu.proto.neigh.ndisc import NdResolver
from ipoibu.proto.neigh.neighbours import Neighbours, NeighInfo
from ipoibu.proto.neigh.pings import Pings
from ipoibu.proto.neigh.proxy_entries import ProxyEntries
from ipoibu.proto.neigh.proxy_networks import ProxyNetworks, ProxyRoute, ProxyRules
from ipoibu.proto.neigh.routers import Routers
from ipoibu.proto.paths import SaPath
from ipoibu.proto.permanent_neighbours import PermanentNeighbours
from ipoibu.proto.pump_reports import PumpReports
from ipoibu.proto.sa_inputs import SaInputs
from ipoibu.wire import encap
from ipoibu.wire.arp import Arp
from ipoibu.wire.encap import EtherType
from ipoibu.wire.mgid import LIMITED_BROADCAST
from ipoibu.wire.ndisc import ALL_NODES

__all__ = ["AddressInfo", "Engine", "FrameSource", "LinkConfig"]


@dataclass(frozen=True, slots=True)
class AddressInfo:
    """One of our addresses; `state` is TENTATIVE, OPTIMISTIC, PREFERRED or DUPLICATE."""

    address: IpAddress
    state: dad.State


class Engine(EnginePart):
    """All decisions of an interface beside the pump's hit path; see the module."""

    def __init__(self, config: LinkConfig, rng: random.Random, observe: Observer = ignore) -> None:
        self._context = context = EngineContext(config, rng, observe)
        resolvers: dict[int, Resolver] = {}
        self._errors = IcmpErrors(context)
        self._neighbours = Neighbours(context, resolvers, self._errors.unreachable)
        self._groups = Groups(context)
        self._addresses = Addresses(
            context, resolvers, self._groups.has_groups_of, self._note_decided
        )
        self._held = HeldAddresses(self._addresses, self._groups)
        self._host_addresses = HostAddresses(context, self._addresses)
        self._proxies = ProxyEntries(context, self._groups)
        answers: dict[int, Callable[[AskProxy], None]] = {}
        self._proxied = ProxyNetworks(
            context, self._groups, resolvers, answers, self._neighbours.has_answered_from
        )
        self._moves = Moves(context, self._announce_again)
        self._is_moving = False
        self._arp = ArpResolver(
            context,
            self._neighbours,
            self._addresses,
            self._host_addresses,
            proxies=self._proxies,
            proxied=self._proxied,
            moves=self._moves,
        )
        self._routers = Routers(
            context, self._ask_router, self._neighbours.solicit, self._neighbours.has_answered
        )
        self._neighbours.on_failed = self._routers.note_failed
        self._neighbours.on_answered = self._routers.note_answered
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
        self.dhcp = parts.dhcp_client(context, self._addresses)
        self.dhcp6 = parts.dhcp6_client(context, self._addresses, self._held)
        self._dhcp_clients = [it for it in (self.dhcp, self.dhcp6) if it is not None]
        self._link = IpoibLink(self._act, observe)
        self.ethernet = parts.ethernet_host(context, self._groups)
        """The inputs and views that only Ethernet hand-off has; None without it."""
        self._host: HostSide = self.ethernet or IpHost(
            context,
            self._link,
            neighbours=self._neighbours,
            addresses=self._addresses,
            groups=self._groups,
            memberships=self._memberships,
            resolvers=(self._arp, self._nd),
            errors=self._errors,
            clients=(self.dhcp, self.dhcp6),
        )
        self.permanent = PermanentNeighbours(context, self._link, self._neighbours, self._host)
        self.reports = PumpReports(context)
        self.sa = SaInputs(context, self._groups.renew)
        self.paths = context.paths  # for snapshots
        self._explicit: Counter[IpAddress] = Counter()
        for group in (LIMITED_BROADCAST, ALL_HOSTS, ALL_NODES):
            if group.version == 4 or config.carries_ipv6:
                self._groups.join(0.0, group)

    # -- the link --------------------------------------------------------------------------------

    @engine_input
    def start(self, now: float) -> None:
        """Join the broadcast group; everything else waits for it (B1)."""
        self._link.feed(now, link.Input.START)

    @engine_input
    def stop(self, now: float) -> None:
        """Leave all groups; addresses and group users stay for another `start`."""
        self._link.feed(now, link.Input.STOP)

    @engine_input
    def port_event(self, now: float, event: str, hwaddr: HwAddr | None = None) -> None:
        """The port's state changed: `down`, `up`, or `gid` with our new hardware address."""
        if event not in link.PORT_EVENTS:
            raise ValueError(f"{event!r} is not a port event")
        self._context.hwaddr = hwaddr or self._context.hwaddr
        self._link.feed(now, link.PORT_EVENTS[event])

    def keep_ours(self) -> None:
        """Announce our addresses without further probes when the link comes up next: the interface gets
        another queue pair on the same link, and nobody had time to take them."""
        self._addresses.keep_ours()
        self._is_moving = True

    def note_renewed(
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
        self._host.note_renewed()

    @engine_input
    def note_moved(self, now: float, hwaddr: HwAddr) -> None:
        """Another queue pair of ours, which is in the same groups, carries the traffic: announce our
        addresses with its hardware address. Neighbours and leases stay."""
        self._context.hwaddr = hwaddr
        self._context.config = replace(self._context.config, hwaddr=hwaddr)
        if self._link.is_up:
            self._addresses.note_moved(now)
            self._proxied.link_down()
            self._proxied.link_up(now)
            self._moves.note_moved(now)

    def _announce_again(self) -> None:
        self._addresses.announce_again()
        self._proxied.announce_again()

    def router_changed(self, is_router: bool) -> None:
        """Set the Router flag of our neighbour advertisements (RFC 4861 §4.4)."""
        self._context.config = replace(self._context.config, is_router=is_router)

    @engine_input
    def note_learned(self, now: float, hwaddr: HwAddr, addresses: Iterable[IpAddress]) -> None:
        """A peer announces its own addresses, as hosts of a mesh do when they connect."""
        for address in addresses:
            if address in self._addresses:
                self._addresses.note_claimed(now, address, hwaddr)
            elif is_host(address) and not self._addresses.is_directed_broadcast(address):
                self._neighbours.note_introduced(now, address, hwaddr)

    @engine_input
    def note_attached(self, now: float, mgid: Gid, path: SaPath | None = None) -> None:
        """The fabric receives the group's datagrams; under an SA `path` is the path to the group."""
        if path is not None:
            self._context.paths.note_joined(now, mgid, path)
        self._groups.note_attached(now, mgid)
        is_broadcast = mgid == self._context.mgid(LIMITED_BROADCAST)
        if is_broadcast and self._groups.is_member(LIMITED_BROADCAST):
            self._link.feed(now, link.Input.BROADCAST_JOINED)
        self._addresses.note_group_joined(now)

    @engine_input
    def note_attach_failed(self, now: float, mgid: Gid, reason: str) -> None:
        """The fabric refused the group, for `reason`; the engine asks again after a while."""
        if mgid != self._context.mgid(LIMITED_BROADCAST):
            self._context.paths.note_resigned(now, mgid)  # B4: a join to send may create it again
        self._groups.note_attach_failed(now, mgid, reason)

    # -- packets ---------------------------------------------------------------------------------

    @engine_input
    def frame(self, now: float, source: FrameSource, frame: bytes) -> None:
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

    @engine_input
    def miss(self, now: float, next_hop: IpAddress, packet: bytes) -> None:
        """The pump has no entry for `next_hop`, the next hop of `packet`, which is a guest's frame with
        Ethernet hand-off."""
        self._host.miss(now, next_hop, packet)

    @engine_input
    def note_neigh_refused(self, now: float, next_hop: IpAddress, error: int) -> None:
        """The pump did not take an entry, for the reason `error` (errno): its table is full."""
        self._host.note_neigh_refused(now, next_hop, error)

    @engine_input
    def note_wanted(self, now: float, next_hop: IpAddress) -> None:
        """The pump has no entry for one of several next hops, and sends by another one meanwhile."""
        is_ours = next_hop in self._addresses or not is_host(next_hop)
        is_refused = next_hop.version == 6 and not self._context.config.carries_ipv6
        if self._link.is_up and not is_ours and not is_refused:
            self._neighbours.note_wanted(now, next_hop)

    @engine_input
    def note_gateway(self, now: float, gateway: IpAddress, *, is_used: bool) -> None:
        """A route of our host leads to the gateway, or the last such route is gone."""
        self._neighbours.set_gateway(now, gateway, is_used)

    @engine_input
    def note_rerouted(self, now: float, is_affected: Callable[[IpAddress], bool]) -> None:
        """Routes have changed: look up again the packets that wait and whose destination `is_affected`,
        and forget that such a neighbour did not answer."""
        self._neighbours.note_rerouted(now, is_affected)
        self._context.paths.note_rerouted(is_affected)

    @engine_input
    def note_used(self, now: float, next_hop: IpAddress) -> None:
        """The pump sent by a NOTIFY entry, for the first time since the engine published it."""
        if self._addresses.is_group(next_hop):
            self._groups.note_used(now, next_hop)
        else:
            self._host.note_used(now, next_hop)

    @engine_input
    def host_packet(self, now: float, packet: bytes) -> None:
        """Take a packet of the local stack and send it on: an IGMP or MLD packet after its report, a
        DHCP request with what an IPoIB host writes into it. With Ethernet hand-off it is any frame of a
        guest that the pump does not pass on by itself."""
        self._host.host_packet(now, packet)

    @engine_input
    def unreachable(self, now: float, next_hop: IpAddress, packet: bytes) -> None:
        """The pump dropped `packet` at the UNREACHABLE entry of `next_hop`."""
        self._errors.unreachable(now, next_hop, packet)

    @engine_input
    def too_big(self, now: float, next_hop: IpAddress, packet: bytes, mtu_bytes: int) -> None:
        """The pump dropped `packet`, which is larger than the `mtu_bytes` of `next_hop` (C13); with
        Ethernet hand-off it is a frame."""
        self._host.too_big(now, next_hop, packet, mtu_bytes)

    # -- DHCP ------------------------------------------------------------------------------------

    @engine_input
    def dhcp_reply(self, now: float, packet: bytes) -> None:
        """Take a reply of DHCP or DHCPv6 of the link: our client's, or deliver it as another client expects
        it."""
        self._host.dhcp_reply(now, packet)

    @engine_input
    def release(self, now: float, *, dhcp: bool = True, dhcp6: bool = True) -> None:
        """Give these leases back: the interface ends."""
        if self.dhcp is not None and dhcp:
            self.dhcp.stop(now)
        if self.dhcp6 is not None and dhcp6:
            self.dhcp6.stop(now)

    @property
    def watches_dhcp(self) -> bool:
        """Return whether the pump has to pass DHCP replies up (`WatchDhcp`)."""
        return self._host.watches_dhcp

    # -- addresses and groups --------------------------------------------------------------------

    @engine_input
    def address_added(
        self,
        now: float,
        interface: IpInterface,
        is_checked: bool = True,
        is_optimistic: bool = False,
    ) -> None:
        """The host has a new address: probe for it (if `is_checked`), then announce it. Hosts may reach an
        optimistic one meanwhile (RFC 4429). IPv6 needs an MTU of 1280 (T3)."""
        address = interface.ip
        if self._context.refuse_ipv6(address) or not is_host(address):
            return
        self._held.hold(now, interface, None, is_checked=is_checked, is_optimistic=is_optimistic)

    def keep_addresses(self, ips: Iterable[IpAddress]) -> None:
        """Take these addresses without probes when they are added: they were ours until now."""
        self._addresses.keep(ips)

    @engine_input
    def address_removed(self, now: float, interface: IpInterface) -> None:
        """The host gave an address up."""
        if any(it.is_checking(interface) for it in self._dhcp_clients):
            return  # of a former lease, while we check that address for the next one
        self._held.leave(now, interface)
        broadcast = interface.network.broadcast_address
        if not self._addresses.is_group(broadcast):
            self._groups.withdraw(now, broadcast)

    @engine_input
    def arp_changed(self, now: float, others: Set[IPv4Address], policy: ArpPolicy) -> None:
        """Take the IPv4 addresses of the host's other interfaces, and the ARP policy of ours."""
        self._host_addresses.change(now, others, policy)
        self._neighbours.source_ready(now, 4)

    @engine_input
    def note_arp_answer(
        self, now: float, request: Arp, delivery: Delivery | None, is_multicast: bool = False
    ) -> None:
        """Take what the kernel does with packets to the address that `request` asks for (`AskArp`)."""
        if self._link.is_up:
            self._arp.note_arp_answer(now, request, delivery, is_multicast)

    @engine_input
    def proxied_changed(self, now: float, rules: ProxyRules) -> None:
        """Take the networks whose hosts behind us we answer for."""
        self._proxied.change(now, rules)

    @engine_input
    def note_proxy_answer(self, now: float, question: AskProxy, route: ProxyRoute | None) -> None:
        """Take the kernel's route to the address that a host asks for (`AskProxy`)."""
        if self._link.is_up:
            resolver = self._arp if question.target.version == 4 else self._nd
            resolver.note_proxy_answer(now, question, route)

    @engine_input
    def proxies_changed(self, now: float, ips: Set[IpAddress]) -> None:
        """Take the addresses that we answer for as a proxy, and our anycast addresses."""
        carried = {ip for ip in ips if ip.version == 4 or self._context.config.carries_ipv6}
        self._proxies.change(now, carried)

    @engine_input
    def memberships_changed(self, now: float, groups: Iterable[IpAddress]) -> None:
        """Take all groups that the kernel's stack receives now; T3: IPv6 ones only where IPv6 works."""
        carried = (it for it in groups if it.version == 4 or self._context.config.carries_ipv6)
        self._memberships.set_groups(now, carried)

    @engine_input
    def join(self, now: float, group: IpAddress) -> None:
        """The application joins the group; each `join` needs one `leave`."""
        if not group.is_multicast:
            raise UsageError(f"{group} is not a multicast group")
        if not self._context.refuse_ipv6(group) and self._groups.join(now, group):
            self._explicit[group] += 1

    @engine_input
    def leave(self, now: float, group: IpAddress) -> None:
        """The application leaves the group; `UsageError` if it has not joined it."""
        if not self._explicit[group]:
            raise UsageError(f"{group} was not joined")
        self._explicit -= Counter((group,))
        self._groups.leave(now, group)

    # -- time ------------------------------------------------------------------------------------

    @engine_input
    def timer(self, now: float) -> None:
        """Ring the timers that are due; call it at `deadline`, harmless at any other time."""
        self._context.timers.run(now)

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

    def handed_off(self) -> Sequence[Effect]:
        """Return what another pump has to know of guests and MACs."""
        return self._host.pump_entries()

    def groups(self, now: float) -> list[GroupInfo]:
        return list(self._groups.snapshot(now))

    def addresses(self) -> list[AddressInfo]:
        return [AddressInfo(address, state) for address, state in self._addresses.snapshot()]

    def usable_addresses(self) -> list[IpInterface]:
        """Return the own addresses that are no duplicates as far as we know, with their prefixes."""
        return self._addresses.usable()

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
                    self._moves.note_moved(now)
                self._host.link_up(now)
            case link.Action.CLOSE:
                self._context.emit(Log(logging.INFO, "link down"))
                self._context.emit(LinkChanged(is_up=False))
                for client in self._dhcp_clients:
                    client.link_down(now)
                self._addresses.link_down(now)
                self._proxied.link_down()
                self._host.link_down()
                self._neighbours.flush(now)
                self._groups.close(now)
                self._context.paths.clear(now)

    def _ask_router(self, now: float, ip: IpAddress) -> None:
        if self._link.is_up:
            self._neighbours.note_wanted(now, ip)
            self._neighbours.note_used(now, ip)

    def _note_decided(self, now: float, address: IpAddress, is_duplicate: bool) -> None:
        if not is_duplicate:
            self._neighbours.source_ready(now, address.version)
        for client in self._dhcp_clients:
            client.note_decided(now, address, is_duplicate)

    def _frame_untrusted(self, now: float, source: FrameSource, frame: bytes) -> None:
        parcel = encap.parse_untrusted(frame)
        match parcel.type:
            case EtherType.ARP:
                self._host.receive_arp_untrusted(now, source, parcel.payload)
            case EtherType.IPV6 if self._context.config.carries_ipv6:
                self._host.receive_nd_untrusted(now, source, parcel.payload)
            case EtherType.IPV6:
                self._context.drop(now, source, "ipv6_refused")
            case _:
                self._context.drop(now, source, "frame_unexpected")
