# SPDX-License-Identifier: BSD-2-Clause
"""The inputs of an endpoint from host or application: addresses, routes, groups, neighbours, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address
from typing import Any, cast

from ipoibu.base.addr import HwAddr, IpAddress, IpInterface, IpNetwork
from ipoibu.base.errors import UsageError
from ipoibu.base.route import AskRoute, NextHop, RouteChange, RouteKind, Target, prefix_of
from ipoibu.endpoint.api.arguments import (
    address_of,
    addresses_of,
    changes_of,
    function_of,
    group_of,
    groups_of,
    hwaddr_of,
    interface_of,
    ipv4_addresses_of,
    network_of,
    peers_of,
)
from ipoibu.endpoint.api.life import Life
from ipoibu.endpoint.config import BUSY_POLL, MODES
from ipoibu.endpoint.interface.shell import ROUTE_KINDS
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.neigh.host_addresses import DEFAULT_ARP_POLICY, ArpPolicy, AskArp
from ipoibu.proto.neigh.proxy_networks import AskRouteBehind, ProxyRules


class HostInputs(Life):
    """The part of `Endpoint` that takes the configuration of its host. Addresses may be text."""

    def address_added(
        self, address: IpInterface | str, is_checked: bool = True, is_optimistic: bool = False
    ) -> None:
        """The interface has this address now: check it for duplicates as `EndpointConfig.dad_ipv4` and
        `dad_ipv6` say (not at all unless `is_checked`), and announce it. While it checks an optimistic
        IPv6 address, hosts may reach it already (RFC 4429)."""
        added = interface_of(address)
        self._call(
            lambda: self._input(self._engine.address_added, added, is_checked, is_optimistic)
        )

    def address_removed(self, address: IpInterface | str) -> None:
        """The interface no longer has this address."""
        removed = interface_of(address)
        self._call(lambda: self._input(self._engine.address_removed, removed))
        self._call(self._shell.announce)

    def arp_changed(
        self, others: Iterable[IPv4Address | str], policy: ArpPolicy = DEFAULT_ARP_POLICY
    ) -> None:
        """Take the IPv4 addresses of the host's other interfaces, for which we answer ARP requests, too,
        as Linux does unless `policy` says otherwise."""
        ours = ipv4_addresses_of(others)
        self._call(lambda: self._input(self._engine.arp_changed, ours, policy))

    def proxies_changed(self, ips: Iterable[IpAddress | str]) -> None:
        """Answer for these addresses, too: proxy entries, and anycast addresses of the interface."""
        proxies = addresses_of(ips)
        self._call(lambda: self._input(self._engine.proxies_changed, proxies))

    def proxied_changed(self, rules: ProxyRules) -> None:
        """Answer for the hosts behind us that `rules` name, if the function of `answer_proxy` gives a route.

        Under a subnet administrator the interface receives every group of the link while the rules need
        that: the solicited-node groups of a large IPv6 network are too many to join.
        """
        if not isinstance(rules, ProxyRules):
            raise TypeError(f"proxied_changed takes ProxyRules, not {rules!r}")
        self._call(lambda: self._input(self._engine.proxied_changed, rules))
        self._call(lambda: self._opened().all_groups.note_proxy(rules.needs_all_groups))

    def answer_proxy(self, ask: AskRouteBehind) -> None:
        """Ask this function about requests for hosts that `ProxyRules` name; it runs on the engine's thread,
        and must not block."""
        answer = function_of(ask, "the answer for a proxy", "two addresses")
        self._call(lambda: self._shell.answer_proxy(answer))

    def route_added(
        self, network: IpNetwork | str, via: IpAddress | str | None, kind: str = "unicast"
    ) -> None:
        """Packets to `network` go to the gateway `via` (of either family); without one they are on-link.

        `kind` is "unicast", "broadcast" (an IPv4 subnet's broadcast address) or "unreachable".
        Destinations without a route are on-link.
        """
        if kind not in ROUTE_KINDS:
            raise UsageError(f"{network}: a route is one of {', '.join(ROUTE_KINDS)}, not {kind!r}")
        gateway = None if via is None else address_of(via)
        hops = (NextHop(gateway),) if kind == "unicast" else ()
        target = Target(cast(RouteKind, kind), hops)
        self.routes_changed([RouteChange(prefix_of(network_of(network)), target)])

    def route_removed(self, network: IpNetwork | str) -> None:
        """Forget the route: destinations in `network` follow a shorter prefix, or are on-link."""
        self.routes_changed([RouteChange(prefix_of(network_of(network)), None)])

    def routes_changed(self, changes: Sequence[RouteChange]) -> None:
        """Change many routes at once, in order, as `route_added` and `route_removed` do one by one."""
        batch = changes_of(changes)
        self._call(lambda: self._shell.change_routes(batch))

    def routes_left_out(self, count: int) -> None:
        """Count routes that the caller does not pass on, because it has too many."""
        self._call(lambda: self._shell.leave_out_routes(count))

    def answer_routes(self, ask: AskRoute) -> None:
        """Ask this function about flows whose route is of kind "ask", and about a packet that the endpoint
        is about to refuse with an ICMP error: if it has another next hop by now, it waits a second for that
        route. The function runs on the engine's thread, and must not block."""
        answer = function_of(ask, "the answer to a route", "a packet")
        self._call(lambda: self._shell.answer_routes(answer))

    def answer_arp(self, ask: AskArp) -> None:
        """Ask this function about ARP requests while `ArpPolicy.asks_kernel`; it runs on the engine's
        thread, and must not block."""
        answer = function_of(ask, "the answer to ARP", "two addresses")
        self._call(lambda: self._shell.answer_arp(answer))

    def router_changed(self, is_router: bool) -> None:
        """Set whether the host forwards IPv6 packets, which neighbour advertisements report; at first it
        does not. A host that uses us as its default router chooses another router when the advertisements
        say no (RFC 4861 §7.2.5).
        """
        self._call(lambda: self._engine.router_changed(is_router))

    def bind_guests(self, config: EthernetConfig) -> None:
        """Take other bindings of the administrator, with `EndpointConfig.ethernet`."""
        if not isinstance(config, EthernetConfig):
            raise TypeError(f"bind_guests takes an EthernetConfig, not {config!r}")
        ethernet = self._opened().engine.ethernet
        if ethernet is None:
            raise UsageError("this interface has no guests: open it with EndpointConfig.ethernet")
        self._call(lambda: self._input(ethernet.bind, config))

    def rewired(self) -> None:
        """Ask the guests behind the TAP, which has come up or into another bridge, for their multicast
        groups at once, with `EndpointConfig.ethernet`: other guests may be there."""
        ethernet = self._opened().engine.ethernet
        if ethernet is not None:
            self._call(lambda: self._input(ethernet.note_rewired))

    def set_busy_poll(self, busy_poll_us: int | None) -> None:
        """Change the time for which the data path polls before it sleeps; None: adaptive."""
        if busy_poll_us is not None:
            BUSY_POLL.check("busy_poll_us", busy_poll_us)
        self._call(self._opened().set_busy_poll, busy_poll_us)

    def set_mode(self, mode: str) -> None:
        """Change the mode while the endpoint runs: it gets another queue pair, neighbours and connections
        begin anew, and packets wait meanwhile. `UsageError` or `LinkError` if the link, the port or another
        option forbids it, and then nothing has changed."""
        self._call(self._opened().set_mode, MODES.read(mode))

    def set_peers(self, peers: Sequence[str]) -> None:
        """Look for these peers, as by `MeshOptions.peers`, in place of those before; `UsageError` on a link
        that has none. A peer that is connected stays."""
        wanted = peers_of(peers)
        self._call(self._opened().peers.set_peers, wanted)

    def memberships_changed(self, groups: Iterable[IpAddress | str]) -> None:
        """The kernel's stack receives these multicast groups now, and no others. Groups of `join` and of
        IGMP and MLD reports come on top."""
        wanted = groups_of(groups)
        self._call(lambda: self._input(self._engine.memberships_changed, wanted))

    def allmulticast_changed(self, is_wanted: bool) -> None:
        """Receive every group of the link, as with `EndpointConfig.allmulticast`, or no longer. Without a
        subnet administrator nothing changes, because only that knows which groups there are."""
        self._call(lambda: self._opened().all_groups.note_host(is_wanted))

    def join(self, group: IpAddress | str) -> None:
        """Receive the multicast group, as the kernel's IGMP and MLD request it for a TUN."""
        joined = group_of(group)
        self._call(lambda: self._input(self._engine.join, joined))

    def leave(self, group: IpAddress | str) -> None:
        """Receive the group no longer, after as many calls as there were of `join`."""
        left = group_of(group)
        self._call(lambda: self._input(self._engine.leave, left))

    def _input(self, method: Callable[..., Any], *args: Any) -> None:
        interface = self._opened()
        interface.perform(method(interface.loop.time(), *args))

    def set_neighbour(
        self, ip: IpAddress | str, hwaddr: HwAddr | str, *, replaces: bool = False
    ) -> None:
        """Set a permanent neighbour, which no message and no time changes; `UsageError` if there is an entry
        and it may not be replaced."""
        key, value = address_of(ip), hwaddr_of(hwaddr)
        self._call(lambda: self._input(self._engine.permanent.set, key, value, replaces))

    def remove_neighbour(self, ip: IpAddress | str) -> None:
        """Remove a neighbour's entry; the next packet asks for it again."""
        key = address_of(ip)
        self._call(lambda: self._input(self._engine.permanent.remove, key))

    def flush_neighbours(self, *, permanent: bool = False) -> None:
        """Remove all neighbours, the permanent ones only if `permanent`."""
        self._call(lambda: self._input(self._engine.permanent.flush, permanent))
