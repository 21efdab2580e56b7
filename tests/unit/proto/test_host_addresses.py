# SPDX-License-Identifier: BSD-2-Clause
"""ARP for addresses of the host's other interfaces, as arp_ignore and arp_announce say."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_interface

import pytest

from ipoibu.base.limits import HOST_ADDRESSES_MAX
from ipoibu.proto.effects import AskArp, OwnAddress
from ipoibu.proto.neigh.host_addresses import ArpPolicy, Delivery, Ignore
from ipoibu.wire import arp, encap
from tests.doubles.engine_bench import OUR_V4, PEER, PEER_V4, Bench
from tests.doubles.simulation import packet

LOOPBACK = IPv4Address("10.255.0.1")
FAR = IPv4Address("192.0.2.9")  # in no subnet of ours
NOBODY = IPv4Address(0)


def change(
    bench: Bench,
    *others: IPv4Address,
    ignore: int = 0,
    announce: int = 0,
    is_proxy: bool = False,
    by_routes: bool = False,
) -> None:
    policy = ArpPolicy(Ignore.of(ignore), announce, is_proxy, by_routes)
    bench.host.carry_out(bench.host.engine.arp_changed(bench.now, frozenset(others), policy))


def replies(bench: Bench) -> list[IPv4Address]:
    """Return the addresses that we claimed in answers since the last look."""
    found = [arp.parse_untrusted(encap.parse_untrusted(frame).payload) for _, frame in bench.sent]
    bench.sent.clear()
    return [message.sender_ip for message in found if message.operation == arp.REPLY]


def ask(bench: Bench, sender: IPv4Address, target: IPv4Address) -> list[IPv4Address]:
    bench.arp(arp.request(PEER, sender, target), multicast=True)
    return replies(bench)


def asked_from(bench: Bench, target: str) -> list[IPv4Address]:
    found = [arp.parse_untrusted(encap.parse_untrusted(frame).payload) for _, frame in bench.sent]
    bench.sent.clear()
    return [it.sender_ip for it in found if it.target_ip == IPv4Address(target)]


# Documentation/networking/ip-sysctl.rst: which of the requests of a near host, of a far one, and of a
# prober are answered, for an address of ours and for one of another interface
@pytest.mark.parametrize(
    ("ignore", "own", "other"),
    [
        (0, (True, True, True), (True, True, True)),
        (1, (True, True, True), (False, False, False)),
        (2, (True, False, True), (False, False, False)),
        (3, (True, True, True), (True, True, True)),
        (5, (True, True, True), (True, True, True)),  # reserved: as 0
        (8, (False, False, False), (False, False, False)),
    ],
)
def test_arp_ignore_says_which_requests_are_answered(
    ignore: int, own: tuple[bool, ...], other: tuple[bool, ...]
) -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, LOOPBACK, ignore=ignore)
    for target, expected in ((OUR_V4, own), (LOOPBACK, other)):
        answered = [bool(ask(bench, sender, target)) for sender in (PEER_V4, FAR, NOBODY)]
        assert tuple(answered) == expected, target


def test_an_answered_peer_gets_an_entry_and_an_ignored_one_does_not() -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, LOOPBACK, ignore=1)
    ask(bench, PEER_V4, LOOPBACK)
    assert bench.neighbour(str(PEER_V4)) is None
    change(bench, LOOPBACK)
    assert ask(bench, PEER_V4, LOOPBACK) == [LOOPBACK]
    assert bench.neighbour(str(PEER_V4)) is not None


def test_an_address_that_another_interface_loses_is_not_answered_for() -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, LOOPBACK)
    change(bench)
    assert ask(bench, PEER_V4, LOOPBACK) == []


def test_the_pump_passes_on_requests_for_what_we_answer_only() -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, LOOPBACK, OUR_V4)
    change(bench, LOOPBACK, ignore=1)
    own = [effect for effect in bench.host.effects if isinstance(effect, OwnAddress)]
    assert own == [OwnAddress(LOOPBACK, True), OwnAddress(LOOPBACK, False)]


def test_an_address_that_moves_between_interfaces_stays_known_to_the_pump() -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, OUR_V4)
    bench.host.remove(ip_interface("10.0.0.1/24"))
    assert bench.host.engine.owned() == [OUR_V4]
    assert ask(bench, PEER_V4, OUR_V4) == [OUR_V4]


@pytest.mark.parametrize(("announce", "source"), [(0, LOOPBACK), (1, OUR_V4), (2, OUR_V4)])
def test_arp_announce_says_which_address_asks(announce: int, source: IPv4Address) -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, LOOPBACK, announce=announce)
    bench.host.send(packet(str(LOOPBACK), str(PEER_V4), b"x"))
    assert asked_from(bench, str(PEER_V4)) == [source]


@pytest.mark.parametrize(("announce", "source"), [(0, "10.1.0.1"), (1, "10.0.0.1")])
def test_arp_announce_1_wants_a_source_in_the_subnet_of_the_target(
    announce: int, source: str
) -> None:
    bench = Bench("10.0.0.1/24", "10.1.0.1/24")
    change(bench, announce=announce)
    bench.host.send(packet("10.1.0.1", str(PEER_V4), b"x"))
    assert asked_from(bench, str(PEER_V4)) == [IPv4Address(source)]


def test_an_unnumbered_host_asks_and_takes_the_answer() -> None:
    bench = Bench("fe80::1/64")
    bench.host.send(packet(str(LOOPBACK), str(PEER_V4), b"x"))
    assert bench.host.counts["arp_no_source"] > 0
    change(bench, LOOPBACK)  # asks at once
    assert asked_from(bench, str(PEER_V4)) == [LOOPBACK]
    bench.arp(arp.request(bench.host.hwaddr, LOOPBACK, PEER_V4).answer(PEER))
    neighbour = bench.neighbour(str(PEER_V4))
    assert neighbour is not None
    assert neighbour.state.value == "reachable"


def test_a_peer_with_an_address_of_another_interface_of_ours_gets_no_entry() -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, LOOPBACK)
    bench.host.counts.clear()
    assert ask(bench, LOOPBACK, OUR_V4) == []
    assert bench.host.counts == {"arp_sender": 1}


def test_more_addresses_than_fit_are_counted_and_the_lowest_ones_count() -> None:
    bench = Bench("10.0.0.1/24")
    many = [IPv4Address("10.200.0.0") + i for i in range(HOST_ADDRESSES_MAX + 1)]
    change(bench, *many)
    assert bench.host.counts["address_table_full"] == 1
    assert ask(bench, PEER_V4, many[0]) == [many[0]]
    assert ask(bench, PEER_V4, many[-1]) == []


def test_a_proxy_answers_for_what_the_kernel_forwards_elsewhere() -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, is_proxy=True)
    assert OwnAddress(NOBODY, is_ours=True) in bench.host.effects
    request = arp.request(PEER, PEER_V4, FAR)
    bench.arp(request, multicast=True)
    assert bench.host.effects[-1] == AskArp(request, is_multicast=True)
    assert bench.neighbour(str(PEER_V4)) is None
    bench.host.carry_out(bench.host.engine.note_arp_answer(bench.now, request, "elsewhere"))
    assert replies(bench) == [FAR]
    assert bench.neighbour(str(PEER_V4)) is not None
    change(bench)
    assert OwnAddress(NOBODY, is_ours=False) in bench.host.effects
    bench.clear()
    bench.arp(request, multicast=True)
    assert not [it for it in bench.host.effects if isinstance(it, AskArp)]


@pytest.mark.parametrize(
    ("sender", "target"),
    [(NOBODY, FAR), (PEER_V4, OUR_V4), (PEER_V4, IPv4Address("10.0.0.255")), (PEER_V4, NOBODY)],
    ids=["a probe", "our address", "a broadcast address", "no host"],
)
def test_a_proxy_asks_the_kernel_about_other_hosts_alone(
    sender: IPv4Address, target: IPv4Address
) -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, is_proxy=True)
    bench.arp(arp.request(PEER, sender, target), multicast=True)
    assert not [it for it in bench.host.effects if isinstance(it, AskArp)]


@pytest.mark.parametrize(
    ("ignore", "target", "delivery", "answered"),
    [
        (0, OUR_V4, "local", True),
        (0, OUR_V4, None, False),  # arp_filter
        (0, LOOPBACK, "local", True),
        (0, LOOPBACK, None, False),
        (0, FAR, "local", True),  # a local route to a whole network
        (0, FAR, "elsewhere", False),
        (1, OUR_V4, "local", True),
        (1, LOOPBACK, "local", False),
        (1, FAR, "local", False),
        (3, LOOPBACK, "local", True),
        (3, FAR, "local", False),
        (8, OUR_V4, "local", False),
    ],
)
def test_by_its_routes_the_kernel_decides_about_each_request(
    ignore: int, target: IPv4Address, delivery: Delivery | None, answered: bool
) -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, LOOPBACK, ignore=ignore, by_routes=True)
    assert OwnAddress(NOBODY, is_ours=True) in bench.host.effects
    bench.clear()
    request = arp.request(PEER, PEER_V4, target)
    bench.arp(request, multicast=True)
    assert replies(bench) == []
    assert AskArp(request, is_multicast=True) in bench.host.effects
    bench.host.carry_out(bench.host.engine.note_arp_answer(bench.now, request, delivery))
    assert replies(bench) == ([target] if answered else [])
    assert (bench.neighbour(str(PEER_V4)) is not None) == answered


def test_a_probe_for_an_address_of_a_local_route_is_answered_and_makes_no_entry() -> None:
    bench = Bench("10.0.0.1/24")
    change(bench, by_routes=True)
    probe = arp.request(PEER, NOBODY, FAR)
    bench.arp(probe, multicast=True)
    assert AskArp(probe, is_multicast=True) in bench.host.effects
    bench.host.carry_out(bench.host.engine.note_arp_answer(bench.now, probe, "local"))
    assert replies(bench) == [FAR]
    assert bench.neighbour(str(NOBODY)) is None
