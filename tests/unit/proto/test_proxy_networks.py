# SPDX-License-Identifier: BSD-2-Clause
"""Answers for hosts behind us, as the kernel's proxy gives them; the test plays the kernel's routes."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest

from ipoibu.base.addr import Gid, HwAddr, IpAddress, Qpn
from ipoibu.base.limits import (
    PROXY_ANSWERS_MAX,
    PROXY_GROUPS_MAX,
    PROXY_NETWORKS_MAX,
    PROXY_STRANGERS_BURST,
    PROXY_STRANGERS_MAX,
    PROXY_STRANGERS_PER_S,
)
from ipoibu.proto.effects import AskProxy
from ipoibu.proto.neigh.proxy_networks import ALL_IPV6, ProxyRoute, ProxyRules
from ipoibu.wire import arp, ndisc
from ipoibu.wire.mgid import of_group, solicited_node
from tests.doubles.engine_bench import (
    OUR_V4,
    OUR_V6,
    PEER,
    PEER_AGAIN,
    PEER_V4,
    PEER_V6,
    Bench,
)
from tests.doubles.simulation import TEMPLATE

NETWORK, NETWORK6 = ip_network("192.0.2.0/24"), ip_network("fd77:2::/64")
BEHIND, BEHIND6 = IPv4Address("192.0.2.9"), IPv6Address("fd77:2::9")
ELSEWHERE, ELSEWHERE6 = IPv4Address("198.51.100.9"), IPv6Address("fd77:3::9")
NOBODY, NOBODY6 = IPv4Address(0), IPv6Address(0)


class Proxy(Bench):
    """A router; `routes` are those of its kernel."""

    def __init__(self, rules: ProxyRules | None = None, *addresses: str, mtu: int = 2044) -> None:
        template = replace(TEMPLATE, is_router=True, mtu_bytes=mtu)
        super().__init__(*addresses, template=template)
        self.routes: dict[IpAddress, ProxyRoute] = {
            BEHIND: "specific",
            BEHIND6: "specific",
            ELSEWHERE: "specific",
            ELSEWHERE6: "specific",
        }
        self.change(rules or ProxyRules((NETWORK, NETWORK6)))

    def change(self, rules: ProxyRules) -> None:
        self.host.carry_out(self.host.engine.proxied_changed(self.now, rules))

    def asks(self) -> list[AskProxy]:
        """The questions so far; each gets its answer."""
        asked = [it for it in self.host.effects if isinstance(it, AskProxy)]
        for each in asked:
            route = self.routes.get(each.target)
            self.host.carry_out(self.host.engine.note_proxy_answer(self.now, each, route))
        self.host.effects.clear()
        return asked

    def request(
        self, target: IPv4Address, sender: IPv4Address = PEER_V4, *, multicast: bool = True
    ) -> list[IpAddress]:
        """Ask by ARP; return for which addresses the host answers at once."""
        self.clear()
        self.arp(arp.request(PEER, sender, target), multicast=multicast)
        self.asks()
        return [it.sender_ip for _, it in self.sent_arp() if it.operation == arp.REPLY]

    def host_behind(self, number: int) -> IPv4Address:
        """Return an address of 10.0.0.0/8, which the kernel now routes to another interface."""
        ip = IPv4Address(0x0A400000 + number)
        self.routes[ip] = "specific"
        return ip

    def stranger(self, number: int) -> list[AskProxy]:
        """A host that does not exist asks for another one; return our questions to the kernel."""
        hwaddr = HwAddr(Qpn(0x1000 + number), Gid.parse(f"fe80::{0x1000 + number:x}"))
        sender = IPv4Address(0x0A000000 | 0x8000 + number)
        self.arp(arp.request(hwaddr, sender, self.host_behind(number)), multicast=True)
        return self.asks()

    def meets_peer(self) -> None:
        """The peer answers a question of ours."""
        self.send(str(PEER_V4))
        self.arp(arp.Arp(arp.REPLY, PEER, PEER_V4, self.host.hwaddr, OUR_V4))

    def solicit(
        self, target: IPv6Address, source: IPv6Address = PEER_V6, *, multicast: bool = True
    ) -> list[ndisc.NeighbourAdvertisement]:
        self.clear()
        lladdr = None if source.is_unspecified else PEER
        destination = solicited_node(target) if multicast else target
        self.nd(ndisc.NeighbourSolicitation(source, destination, target, lladdr), multicast)
        self.asks()
        return self.advertisements()

    def advertisements(self) -> list[ndisc.NeighbourAdvertisement]:
        return [it for _, it in self.sent_nd() if isinstance(it, ndisc.NeighbourAdvertisement)]

    def count(self, name: str) -> int:
        return self.host.counts[name]


def test_a_host_behind_us_is_answered_for_and_its_asker_becomes_a_neighbour() -> None:
    proxy = Proxy()
    assert proxy.request(BEHIND) == [BEHIND]
    assert proxy.count("proxy_answered") == 1
    assert proxy.neighbour(str(PEER_V4)) is not None
    (answer,) = proxy.solicit(BEHIND6)
    assert (answer.target, answer.lladdr, answer.destination) == (
        BEHIND6,
        proxy.host.hwaddr,
        PEER_V6,
    )
    assert proxy.neighbour(str(PEER_V6)) is not None


def test_an_advertisement_for_a_host_behind_us_does_not_override_and_names_no_router() -> None:
    """N11. RFC 4861 §7.2.8; the router is we, not that host."""
    proxy = Proxy()
    (answer,) = proxy.solicit(BEHIND6)
    assert (answer.solicited, answer.override, answer.router) == (True, False, False)
    assert answer.source == OUR_V6


def test_what_the_kernel_does_not_route_elsewhere_is_not_answered_for() -> None:
    """A host of the link, or one without a route."""
    proxy = Proxy()
    proxy.routes.clear()
    assert proxy.request(BEHIND) == []
    assert proxy.count("proxy_unrouted") == 1
    assert proxy.neighbour(str(PEER_V4)) is None
    assert proxy.solicit(BEHIND6) == []
    assert proxy.count("proxy_unrouted") == 1


@pytest.mark.parametrize("route", ["specific", "default"])
def test_a_network_that_is_named_may_be_behind_the_default_route(route: ProxyRoute) -> None:
    proxy = Proxy()
    proxy.routes[BEHIND] = route
    assert proxy.request(BEHIND) == [BEHIND]


def test_by_routes_every_host_behind_us_is_answered_for_but_not_by_the_default_route() -> None:
    proxy = Proxy(ProxyRules(by_routes=True))
    assert proxy.request(ELSEWHERE) == [ELSEWHERE]
    assert [it.target for it in proxy.solicit(ELSEWHERE6)] == [ELSEWHERE6]
    proxy.routes |= {ELSEWHERE: "default", ELSEWHERE6: "default"}
    assert proxy.request(ELSEWHERE) == []
    assert proxy.solicit(ELSEWHERE6) == []
    assert proxy.count("proxy_unrouted") == 1


def test_the_kernel_is_not_asked_about_other_requests() -> None:
    proxy = Proxy()
    for message in (
        arp.request(PEER, PEER_V4, ELSEWHERE),  # outside the networks
        arp.request(PEER, PEER_V4, OUR_V4),
        arp.request(PEER, BEHIND, BEHIND),  # gratuitous
        arp.request(PEER_AGAIN, PEER_V4, BEHIND).answer(PEER),
    ):
        proxy.arp(message, multicast=True)
    for target in (ELSEWHERE6, IPv6Address("fe80::77"), OUR_V6):
        proxy.nd(
            ndisc.NeighbourSolicitation(PEER_V6, solicited_node(target), target, PEER),
            multicast=True,
        )
    assert proxy.asks() == []


def test_without_forwarding_there_is_no_answer_for_ipv6() -> None:
    """In IPv4 the kernel itself has no route for packets that come in then."""
    proxy = Proxy()
    proxy.host.engine.router_changed(is_router=False)
    assert proxy.solicit(BEHIND6) == []


def test_probes_are_answered_as_the_kernel_answers_them() -> None:
    """RFC 5227 probes never; those of IPv6 to all nodes, without override."""
    proxy = Proxy()
    assert proxy.request(BEHIND, NOBODY) == []
    (answer,) = proxy.solicit(BEHIND6, NOBODY6)
    assert (answer.destination, answer.solicited, answer.override) == (
        ndisc.ALL_NODES,
        False,
        False,
    )
    proxy.routes.clear()
    assert proxy.solicit(BEHIND6, NOBODY6) == []


def test_an_answer_to_all_waits_and_one_to_us_alone_does_not() -> None:
    """RFC 4861 §7.2.8; Linux proxy_delay."""
    proxy = Proxy(ProxyRules((NETWORK, NETWORK6), delay_ipv4_s=0.8, delay_ipv6_s=0.8))
    assert proxy.request(BEHIND) == []
    proxy.arp(arp.request(PEER, PEER_V4, BEHIND), multicast=True)  # once more
    proxy.asks()
    proxy.run(0.8)
    replies = [it for _, it in proxy.sent_arp() if it.operation == arp.REPLY]
    assert [it.sender_ip for it in replies] == [BEHIND], "one answer to both"
    assert proxy.request(BEHIND, multicast=False) == [BEHIND]
    assert proxy.solicit(BEHIND6) == []
    proxy.run(0.8)
    assert [it.target for it in proxy.advertisements()] == [BEHIND6]
    assert len(proxy.solicit(BEHIND6, multicast=False)) == 1


def test_so_many_answers_wait_and_no_more() -> None:
    """A neighbour that has answered has places that strangers do not get."""
    proxy = Proxy(ProxyRules((ip_network("10.0.0.0/8"),), delay_ipv4_s=60.0))
    proxy.clear()
    for number in range(PROXY_STRANGERS_MAX + 3):
        proxy.stranger(number)
    assert proxy.count("proxy_answers_full") == 3
    proxy.meets_peer()
    for number in range(PROXY_ANSWERS_MAX - PROXY_STRANGERS_MAX + 2):
        proxy.arp(arp.request(PEER, PEER_V4, proxy.host_behind(1000 + number)), multicast=True)
        proxy.asks()
    assert proxy.count("proxy_answers_full") == 5
    proxy.run(60)
    assert proxy.count("proxy_answered") == PROXY_ANSWERS_MAX
    for number in range(PROXY_STRANGERS_MAX + 1):
        proxy.stranger(number)
    assert proxy.count("proxy_answers_full") == 6, "their places are free again"


@pytest.mark.parametrize("delay_s", [0.0, 0.8])
def test_a_known_neighbour_gets_its_answers_beside_any_number_of_strangers(delay_s: float) -> None:
    proxy = Proxy(ProxyRules((ip_network("10.0.0.0/8"),), delay_ipv4_s=delay_s))
    proxy.meets_peer()
    began, questions, limited = proxy.now, 0, 0
    for second in range(10):
        for number in range(2 * int(PROXY_STRANGERS_PER_S)):
            questions += len(proxy.stranger(1000 * second + number))
        limited += proxy.count("proxy_limited")
        target = proxy.host_behind(20_000 + second)
        proxy.request(target)
        proxy.run(1)
        assert target in [it.sender_ip for _, it in proxy.sent_arp() if it.operation == arp.REPLY]
    took_s = proxy.now - began
    assert questions <= PROXY_STRANGERS_BURST + took_s * PROXY_STRANGERS_PER_S
    assert limited >= 10 * PROXY_STRANGERS_PER_S - PROXY_STRANGERS_BURST


def test_who_speaks_in_the_name_of_a_known_neighbour_is_a_stranger() -> None:
    proxy = Proxy(ProxyRules((ip_network("10.0.0.0/8"),), delay_ipv4_s=60.0))
    proxy.meets_peer()
    for number in range(PROXY_STRANGERS_MAX):
        proxy.stranger(number)
    proxy.arp(arp.request(PEER_AGAIN, PEER_V4, proxy.host_behind(1)), multicast=True)
    proxy.asks()
    assert proxy.count("proxy_answers_full") == 1


def test_answers_that_wait_end_with_the_link() -> None:
    proxy = Proxy(ProxyRules((NETWORK,), delay_ipv4_s=0.8))
    proxy.request(BEHIND)
    proxy.host.carry_out(proxy.host.engine.port_event(proxy.now, "down"))
    proxy.clear()
    proxy.run(2)
    assert proxy.sent == []


SINGLES = ProxyRules(
    (ip_network(BEHIND), ip_network(BEHIND6)),
    behind=frozenset((BEHIND, BEHIND6)),
    listened=frozenset((BEHIND6,)),
)


def _announced(proxy: Proxy) -> tuple[list[IpAddress], list[IpAddress]]:
    ipv4: list[IpAddress] = [it.sender_ip for _, it in proxy.sent_arp()]
    assert all(it.sender_ip == it.target_ip for _, it in proxy.sent_arp())
    for it in proxy.advertisements():
        assert (it.source, it.destination, it.override, it.router) == (
            OUR_V6,
            ndisc.ALL_NODES,
            True,
            False,
        )
    return ipv4, [it.target for it in proxy.advertisements()]


def test_single_addresses_are_announced_when_they_come_to_be_behind_us() -> None:
    """We announce them three times, as our own. RFC 4861 §7.2.8 permits the override, which moves traffic
    to us."""
    proxy = Proxy(replace(SINGLES, behind=frozenset()))
    proxy.run(5)
    assert proxy.sent == []
    proxy.change(SINGLES)
    proxy.run(5)
    assert _announced(proxy) == ([BEHIND] * 3, [BEHIND6] * 3)
    assert proxy.count("proxy_announced") == 6
    proxy.clear()
    proxy.change(replace(SINGLES, delay_ipv4_s=0.1))
    proxy.run(5)
    assert proxy.sent == [], "they are known"


def test_a_new_hardware_address_is_announced_for_those_behind_us() -> None:
    proxy = Proxy(SINGLES)
    proxy.run(5)
    proxy.clear()
    engine = proxy.host.engine
    proxy.host.carry_out(engine.port_event(proxy.now, "down"))
    proxy.host.carry_out(engine.port_event(proxy.now, "up"))
    proxy.run(10)
    assert [it.sender_ip for _, it in proxy.sent_arp()].count(BEHIND) == 3
    assert [it.target for it in proxy.advertisements()].count(BEHIND6) >= 1


def test_an_address_that_leaves_is_announced_no_more() -> None:
    proxy = Proxy(SINGLES)
    proxy.change(replace(SINGLES, behind=frozenset()))
    proxy.clear()
    proxy.run(5)
    assert proxy.sent == []


def test_another_host_that_uses_an_address_behind_us_is_counted_and_logged() -> None:
    proxy = Proxy(SINGLES)
    proxy.run(5)
    proxy.clear()
    proxy.arp(arp.request(PEER_AGAIN, BEHIND, BEHIND), multicast=True)
    assert proxy.count("proxy_conflict") == 1
    assert f"{BEHIND} is behind this host" in proxy.host.log[0]
    proxy.nd(
        ndisc.NeighbourAdvertisement(BEHIND6, ndisc.ALL_NODES, BEHIND6, PEER_AGAIN, override=True),
        multicast=True,
    )
    assert proxy.count("proxy_conflict") == 2
    assert proxy.sent == [], "we do not defend it"


def test_the_groups_of_hosts_behind_us_are_joined_and_left() -> None:
    proxy = Proxy(SINGLES)
    group = of_group(solicited_node(BEHIND6), TEMPLATE.params.pkey)
    proxy.run(2)
    assert group in proxy.host.groups
    proxy.change(ProxyRules())
    proxy.run(2)
    assert group not in proxy.host.groups


def test_so_many_groups_are_joined_and_no_more() -> None:
    many = frozenset(BEHIND6 + i for i in range(PROXY_GROUPS_MAX + 5))
    proxy = Proxy()
    before = len(proxy.host.groups)
    proxy.change(ProxyRules((NETWORK6,), listened=many))
    proxy.run(2)
    assert proxy.count("proxy_groups_full") == 1
    assert len(proxy.host.groups) == before + PROXY_GROUPS_MAX
    proxy.change(ProxyRules((NETWORK6,)))
    proxy.run(2)
    assert len(proxy.host.groups) == before


def test_so_many_networks_are_answered_for_and_no_more() -> None:
    first = int(ip_network("100.64.0.0/24").network_address)
    networks = tuple(ip_network((first + 256 * i, 24)) for i in range(PROXY_NETWORKS_MAX + 1))
    proxy = Proxy(ProxyRules(networks))
    assert proxy.count("proxy_table_full") == 1
    last, beyond = networks[-2][9], networks[-1][9]
    assert isinstance(last, IPv4Address)
    assert isinstance(beyond, IPv4Address)
    proxy.routes |= {last: "specific", beyond: "specific"}
    assert proxy.request(last) == [last]
    assert proxy.request(beyond) == []


def test_without_ipv6_there_are_proxies_of_ipv4_only() -> None:
    """T3."""
    proxy = Proxy(ProxyRules((NETWORK, NETWORK6), by_routes=True), "10.0.0.1/24", mtu=1000)
    assert proxy.host.engine.owned() == [OUR_V4, NOBODY]
    assert proxy.request(BEHIND) == [BEHIND]


def test_the_pump_passes_requests_up_only_while_there_are_proxies() -> None:
    proxy = Proxy()
    assert {NOBODY, ALL_IPV6} <= set(proxy.host.engine.owned())
    proxy.change(ProxyRules((NETWORK6,)))
    assert NOBODY not in proxy.host.engine.owned()
    assert ALL_IPV6 in proxy.host.engine.owned()
    proxy.change(ProxyRules())
    assert ALL_IPV6 not in proxy.host.engine.owned()


@pytest.mark.parametrize(
    ("rules", "needs"),
    [
        (ProxyRules((NETWORK,)), False),
        (ProxyRules((NETWORK6,)), True),
        (ProxyRules((ip_network("fd77::/120"),)), False),
        (ProxyRules((ip_network("fd77::/119"),)), True),
        (ProxyRules(by_routes=True), True),
    ],
)
def test_a_large_network_of_ipv6_needs_all_groups(rules: ProxyRules, needs: bool) -> None:
    assert rules.needs_all_groups == needs
