# SPDX-License-Identifier: BSD-2-Clause
"""The pump's choice among several next hops."""

from __future__ import annotations

import ipaddress
import struct
from collections import Counter

import pytest

from ipoibu import _core
from ipoibu.base.limits import ROUTE_HOPS_MAX
from ipoibu.base.route import key_of
from tests.unit.core.test_pump import (
    HOLD,
    MTU,
    NOTIFY,
    SEND,
    UNREACHABLE,
    ipv4,
    ipv6,
    make_host,
    settle,
)

ANY4 = key_of(ipaddress.ip_address("0.0.0.0"))
HOPS = [key_of(ipaddress.ip_address(f"10.0.0.{n}")) for n in (2, 3, 4)]


class Bench:
    """One host, and three routers that receive what it sends them."""

    def __init__(self) -> None:
        switch = _core.MemorySwitch(1)
        self.host = make_host(switch, "fe80::a")
        self.routers = [make_host(switch, f"fe80::{n}") for n in (2, 3, 4)]

    def route(self, *weights: int) -> None:
        hops: list[tuple[bytes | None, int]] = list(zip(HOPS, weights, strict=False))
        self.host.pump.route_set(ANY4, 96, _core.ROUTE_MULTIPATH, None, hops)

    def entry(self, number: int, action: int = SEND) -> None:
        self.host.pump.neigh_set(HOPS[number], action, self.routers[number].destination, MTU)

    def send(self, packets: list[bytes]) -> list[set[bytes]]:
        """What each router gets."""
        for start in range(0, len(packets), 64):
            assert self.host.queue.send(packets[start : start + 64]) == len(packets[start:][:64])
            settle(self.host, *self.routers)
        return [set(router.queue.recv(10_000)) for router in self.routers]

    def events(self) -> Counter[tuple[int, bytes]]:
        return Counter((event.type, event.next_hop) for event in self.host.pump.events())


@pytest.fixture
def bench() -> Bench:
    return Bench()


def flows(count: int) -> list[bytes]:
    return [ipv4("10.0.0.1", "8.8.8.8", struct.pack(">HHHH", n, 53, 8, 0)) for n in range(count)]


def test_the_flows_of_a_multipath_route_spread_by_weight(bench: Bench) -> None:
    for number in range(3):
        bench.entry(number)
    bench.route(1, 1, 2)
    got = [len(packets) for packets in bench.send(flows(2000))]
    assert sum(got) == 2000
    assert all(
        0.75 * want < have < 1.25 * want for have, want in zip(got, (500, 500, 1000), strict=True)
    )
    assert not bench.events()


def test_a_flow_keeps_to_its_hop(bench: Bench) -> None:
    for number in range(3):
        bench.entry(number)
    bench.route(1, 1, 1)
    first = bench.send(flows(100))
    assert bench.send(flows(100)) == first
    # the fragments of a packet have the ports in the first one only
    packet = bytearray(ipv4("10.0.0.1", "8.8.8.8", bytes(range(64))))
    fragments = []
    for offset in range(8):
        packet[6:8] = struct.pack(">H", 0x2000 | offset)
        fragments.append(bytes(packet[:20] + bytes([offset]) * 64))
    assert sorted(len(got) for got in bench.send(fragments)) == [0, 0, 8]


@pytest.mark.parametrize("action", [HOLD, UNREACHABLE])
def test_the_flows_of_a_hop_that_is_not_alive_go_by_the_others(bench: Bench, action: int) -> None:
    for number in range(3):
        bench.entry(number)
    bench.route(1, 1, 1)
    before = bench.send(flows(300))
    bench.host.pump.neigh_set(HOPS[1], action, None, MTU)
    after = bench.send(flows(300))
    assert before[0] <= after[0]  # a flow whose hop lives stays there
    assert before[2] <= after[2]
    assert after[1] == set()
    assert len(after[0]) + len(after[2]) == 300
    assert not bench.events()
    bench.entry(1)
    assert bench.send(flows(300)) == before


def test_a_hop_without_an_entry_is_wanted_while_others_take_its_flows(bench: Bench) -> None:
    bench.entry(0)
    bench.entry(2, NOTIFY)
    bench.route(1, 1, 1)
    got = bench.send(flows(60))
    assert len(got[0]) + len(got[2]) == 60
    events = bench.events()
    assert events.pop((_core.EVENT_USED, HOPS[2])) == 1
    assert set(events) == {(_core.EVENT_WANTED, HOPS[1])}


def test_without_a_live_hop_the_packet_waits_for_one_that_is_not_known_yet(bench: Bench) -> None:
    bench.route(1, 1, 1)
    bench.host.pump.neigh_set(HOPS[0], UNREACHABLE, None, MTU)
    bench.send(flows(30))
    events = bench.events()
    assert {kind for kind, _ in events} == {_core.EVENT_MISS}
    assert {hop for _, hop in events} == {HOPS[1], HOPS[2]}
    for key in HOPS:
        bench.host.pump.neigh_set(key, UNREACHABLE, None, MTU)
    bench.send(flows(3))
    assert {kind for kind, _ in bench.events()} == {_core.EVENT_UNREACHABLE}


def test_a_hop_on_the_link_is_the_destination(bench: Bench) -> None:
    bench.host.pump.route_set(ANY4, 96, _core.ROUTE_MULTIPATH, None, [(None, 1)])
    bench.host.pump.neigh_set(
        key_of(ipaddress.ip_address("8.8.8.8")), SEND, bench.routers[0].destination, MTU
    )
    assert len(bench.send(flows(5))[0]) == 5


def test_ipv6_flows_spread_too(bench: Bench) -> None:
    any6 = bytes(16)
    hops = [key_of(ipaddress.ip_address(f"fe80::{n}")) for n in (2, 3)]
    bench.host.pump.route_set(any6, 0, _core.ROUTE_MULTIPATH, None, [(hop, 1) for hop in hops])
    for hop, router in zip(hops, bench.routers, strict=False):
        bench.host.pump.neigh_set(hop, SEND, router.destination, MTU)
    packets = [
        ipv6("fd00::1", "2001:db8::1", struct.pack(">HHHH", n, 53, 8, 0)) for n in range(200)
    ]
    got = [len(packets) for packets in bench.send(packets)]
    assert sum(got) == 200
    assert min(got[:2]) > 50


SOURCE, TOS, PORTS = _core.ROUTE_FIELD_SOURCE, _core.ROUTE_FIELD_TOS, _core.ROUTE_FIELD_PORTS


def asked(bench: Bench) -> list[bytes]:
    events = bench.host.pump.events()
    assert {event.type for event in events} <= {_core.EVENT_ROUTE_ASK}
    return [event.data for event in events]


def test_a_flow_of_a_route_to_ask_about_goes_by_its_answer(bench: Bench) -> None:
    pump = bench.host.pump
    for number in range(3):
        bench.entry(number)
    pump.route_set(ANY4, 96, _core.ROUTE_ASK, fields=SOURCE)
    one = ipv4("10.0.0.1", "8.8.8.8", b"one")
    other = ipv4("10.9.9.9", "8.8.8.8", b"other")
    assert bench.send([one, one, other]) == [set(), set(), set()]
    assert asked(bench) == [one, one, other]
    pump.route_answer(one, _core.ROUTE_GATEWAY, HOPS[1])
    pump.route_answer(other, _core.ROUTE_GATEWAY, HOPS[2], send=False)
    bench.host.step()
    assert bench.send([]) == [set(), set(), set()]
    settle(bench.host, *bench.routers)
    assert [router.queue.recv(64) for router in bench.routers] == [[], [one], []]
    assert bench.send([one, other]) == [set(), {one}, {other}]
    pump.route_set(ANY4, 96, _core.ROUTE_ASK, fields=SOURCE)  # forgets the answers
    assert bench.send([one]) == [set(), set(), set()]
    assert asked(bench) == [one]


def test_the_fields_distinguish_flows(bench: Bench) -> None:
    bench.entry(0)
    pump = bench.host.pump
    base = bytearray(ipv4("10.0.0.1", "8.8.8.8", struct.pack(">HHHH", 1, 53, 8, 0)))
    by_tos = bytes(base[:1] + b"\x10" + base[2:])
    by_port = bytes(base[:20] + b"\x00\x02" + base[22:])
    by_source = bytes(base[:15] + b"\x09" + base[16:])
    for fields, apart in ((0, []), (SOURCE, [by_source]), (TOS, [by_tos]), (PORTS, [by_port])):
        pump.route_set(ANY4, 96, _core.ROUTE_ASK, fields=fields)
        pump.route_answer(bytes(base), _core.ROUTE_GATEWAY, HOPS[0], send=False)
        bench.host.step()
        bench.send([by_tos, by_port, by_source])
        assert asked(bench) == apart


def test_an_answer_may_have_several_hops_or_none(bench: Bench) -> None:
    for number in range(3):
        bench.entry(number)
    pump = bench.host.pump
    pump.route_set(ANY4, 96, _core.ROUTE_ASK)
    packets = flows(90)
    hops: list[tuple[bytes | None, int]] = [(key, 1) for key in HOPS]
    pump.route_answer(packets[0], _core.ROUTE_MULTIPATH, None, hops, False)
    bench.host.step()
    assert all(len(got) > 10 for got in bench.send(packets))
    pump.route_answer(packets[0], _core.ROUTE_UNREACHABLE, None, None, False)
    bench.host.step()
    bench.send(packets[:2])
    assert bench.host.counter("tx_no_route") == 2


def test_the_packet_of_an_answer_may_still_miss_its_neighbour(bench: Bench) -> None:
    pump = bench.host.pump
    pump.route_set(ANY4, 96, _core.ROUTE_ASK)
    [packet] = flows(1)
    bench.send([packet])
    asked(bench)
    pump.route_answer(packet, _core.ROUTE_GATEWAY, HOPS[0])
    bench.host.step()
    [event] = pump.events()
    assert (event.type, event.next_hop, event.data) == (_core.EVENT_MISS, HOPS[0], packet)


def test_a_full_table_of_answers_forgets_all_and_counts_them() -> None:
    host = make_host(_core.MemorySwitch(1), "fe80::a", route_answer_max=100)
    host.pump.route_set(ANY4, 96, _core.ROUTE_ASK, fields=PORTS)
    for packet in flows(250):
        host.pump.route_answer(packet, _core.ROUTE_GATEWAY, HOPS[0], None, False)
        host.step()
    assert host.counter("route_answers_evicted") == 200
    assert host.counter("commands_bad") == 0


def test_an_answer_that_comes_too_late_or_makes_no_sense_changes_nothing(bench: Bench) -> None:
    pump = bench.host.pump
    [packet] = flows(1)
    pump.route_answer(packet, _core.ROUTE_GATEWAY, HOPS[0], None, False)  # no route to ask about
    bench.host.step()
    assert bench.host.counter("commands_bad") == 0
    pump.route_set(ANY4, 96, _core.ROUTE_ASK)
    pump.route_answer(packet, _core.ROUTE_ASK)
    pump.route_answer(packet, _core.ROUTE_MULTIPATH)
    pump.route_answer(b"", _core.ROUTE_GATEWAY, HOPS[0])
    pump.route_set(ANY4, 96, _core.ROUTE_ASK, fields=8)
    bench.host.step()
    assert bench.host.counter("commands_bad") == 4


def test_more_hops_than_the_pump_takes_are_refused(bench: Bench) -> None:
    hops: list[tuple[bytes | None, int]] = [(HOPS[0], 1)] * (ROUTE_HOPS_MAX + 1)
    bench.host.pump.route_set(ANY4, 96, _core.ROUTE_MULTIPATH, None, hops)
    bench.host.step()
    assert bench.host.counter("commands_bad") == 1


def test_a_packet_that_the_engine_forwards_asks_for_its_route_and_its_answer_does_not(
    bench: Bench,
) -> None:
    """Otherwise an answer that the pump does not keep would go back and forth."""
    pump = bench.host.pump
    pump.route_set(ANY4, 96, _core.ROUTE_ASK)
    packet = ipv4("10.0.0.1", "8.8.8.8", b"waited")
    pump.forward(packet)
    pump.send_packet(packet)
    bench.host.step()
    assert asked(bench) == [packet]
    assert bench.host.counter("tx_unresolved_hold") == 1
