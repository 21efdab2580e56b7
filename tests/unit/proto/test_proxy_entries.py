# SPDX-License-Identifier: BSD-2-Clause
"""Answers for proxy entries and anycast addresses."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import PROXIES_MAX
from ipoibu.wire import arp, encap, ndisc
from ipoibu.wire.mgid import of_group, solicited_node
from tests.doubles.engine_bench import OUR_V6, PEER, PEER_V4, PEER_V6, Bench
from tests.doubles.simulation import TEMPLATE

BEHIND = IPv4Address("10.0.0.77")
BEHIND6 = IPv6Address("fd00::77")
NOBODY6 = IPv6Address(0)


def change(bench: Bench, *ips: IpAddress) -> None:
    bench.host.carry_out(bench.host.engine.proxies_changed(bench.now, frozenset(ips)))
    bench.clear()


def ask(bench: Bench, sender: IPv4Address, target: IPv4Address) -> list[IPv4Address]:
    bench.sent.clear()
    bench.arp(arp.request(PEER, sender, target), multicast=True)
    found = [arp.parse_untrusted(encap.parse_untrusted(frame).payload) for _, frame in bench.sent]
    return [message.sender_ip for message in found if message.operation == arp.REPLY]


def solicit(
    bench: Bench, source: IPv6Address, target: IPv6Address
) -> list[ndisc.NeighbourAdvertisement]:
    bench.sent.clear()
    lladdr = None if source.is_unspecified else PEER
    message = ndisc.NeighbourSolicitation(source, solicited_node(target), target, lladdr)
    bench.nd(message, multicast=True)
    found = [ndisc.parse_untrusted(encap.parse_untrusted(frame).payload) for _, frame in bench.sent]
    return [it for it in found if isinstance(it, ndisc.NeighbourAdvertisement)]


def test_a_proxy_entry_is_answered_for_while_it_is_there() -> None:
    bench = Bench()
    assert ask(bench, PEER_V4, BEHIND) == []
    change(bench, BEHIND)
    assert ask(bench, PEER_V4, BEHIND) == [BEHIND]
    change(bench)
    assert ask(bench, PEER_V4, BEHIND) == []


def test_a_prober_gets_no_answer_from_a_proxy_of_ipv4() -> None:
    """RFC 5227 probes are about the link itself; Linux does the same."""
    bench = Bench()
    change(bench, BEHIND)
    assert ask(bench, IPv4Address(0), BEHIND) == []


@pytest.mark.parametrize(
    ("source", "destination", "solicited"),
    [(PEER_V6, PEER_V6, True), (NOBODY6, ndisc.ALL_NODES, False)],
)
def test_an_advertisement_for_another_address_does_not_override(
    source: IPv6Address, destination: IPv6Address, solicited: bool
) -> None:
    """N11. RFC 4861 §7.2.7, §7.2.8; the source is one of our own addresses."""
    bench = Bench()
    assert solicit(bench, source, BEHIND6) == []
    change(bench, BEHIND6)
    (answer,) = solicit(bench, source, BEHIND6)
    assert (answer.source, answer.destination) == (OUR_V6, destination)
    assert (answer.target, answer.lladdr) == (BEHIND6, bench.host.hwaddr)
    assert (answer.solicited, answer.override) == (solicited, False)


def test_the_solicited_node_group_is_joined_while_the_entry_is_there() -> None:
    bench = Bench()
    group = of_group(solicited_node(BEHIND6), TEMPLATE.params.pkey)
    change(bench, BEHIND6)
    bench.run(2)
    assert group in bench.host.groups
    change(bench)
    bench.run(2)
    assert group not in bench.host.groups


def test_without_ipv6_there_are_proxies_of_ipv4_only() -> None:
    """T3."""
    bench = Bench("10.0.0.1/24", template=replace(TEMPLATE, mtu_bytes=1000))
    before = set(bench.host.groups)
    change(bench, BEHIND, BEHIND6)
    assert bench.host.groups == before
    assert bench.host.engine.owned() == [IPv4Address("10.0.0.1"), BEHIND]


def test_our_own_address_still_overrides() -> None:
    bench = Bench()
    change(bench, OUR_V6)
    (answer,) = solicit(bench, PEER_V6, OUR_V6)
    assert answer.override


def test_without_an_address_of_ours_there_is_no_answer() -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, BEHIND6)
    assert solicit(bench, PEER_V6, BEHIND6) == []
    assert bench.host.counts["nd_no_source"] == 1


def test_more_entries_than_fit_are_counted() -> None:
    bench = Bench()
    many = [IPv4Address("10.200.0.0") + i for i in range(PROXIES_MAX + 1)]
    bench.host.carry_out(bench.host.engine.proxies_changed(bench.now, frozenset(many)))
    assert bench.host.counts["address_table_full"] == 1
    answered = [ip for ip in many if ask(bench, PEER_V4, ip)]
    assert len(answered) == PROXIES_MAX
