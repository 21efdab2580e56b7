# SPDX-License-Identifier: BSD-2-Clause
"""Packets that the pump looked up by routes which the kernel has replaced; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, cast

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import REROUTED_PREFIXES_MAX, REROUTED_REFUSALS_MAX, REROUTED_WAIT_S
from ipoibu.base.route import NextHop, Prefixes, RouteChange, Target, prefix_of
from ipoibu.endpoint.datapath.rerouting import Rerouting
from ipoibu.proto.effects import Effect, Forward, Refuse
from tests.doubles.simulation import packet

NETWORK = "10.5.0.0/16"
WAITING = packet("10.0.0.1", "10.5.0.7", b"waits")
GATEWAY = IPv4Address("10.0.0.2")
REFUSAL = Refuse(WAITING, ip_address("10.5.0.7"), b"unreachable")
VIA = Target("unicast", (NextHop(GATEWAY),))
ON_LINK = Target("unicast", (NextHop(None),))


@dataclass(eq=False)
class Timer:
    at: float
    then: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """The loop's part: timers in virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, then: Callable[[], None]) -> Timer:
        timer = Timer(at, then)
        self._timers.append(timer)
        return timer

    def call_later(self, delay_s: float, then: Callable[[], None]) -> Timer:
        return self.call_at(self.now + delay_s, then)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self._timers if timer.at <= end]:
            first = min(due, key=lambda timer: timer.at)
            self._timers.remove(first)
            self.now = first.at
            if not first.is_cancelled:
                first.then()
        self.now = end


class Bed:
    """`answer` is the pump's answer to the last mark; `asked` is what the engine looks up again."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.marks: list[int] = []
        self.delivered: list[bytes] = []
        self.effects: list[Effect] = []
        self.asked: list[Callable[[IpAddress], bool]] = []
        self.rerouting = Rerouting(
            cast("asyncio.AbstractEventLoop", self.clock),
            cast("Any", self),
            self._perform,
            cast("Any", self),
        )

    def sync(self, token: int) -> None:
        self.marks.append(token)

    def deliver(self, data: bytes) -> None:
        self.delivered.append(data)

    def note_rerouted(self, now: float, is_affected: Callable[[IpAddress], bool]) -> list[Effect]:
        self.asked.append(is_affected)
        return []

    def _perform(self, effects: Iterable[Effect]) -> None:
        self.effects += effects

    def change(self, network: str = NETWORK, target: Target | None = VIA) -> None:
        self.rerouting.note_changed([RouteChange(prefix_of(ip_network(network)), target)])

    def answer(self) -> None:
        self.rerouting.note_answered(self.marks[-1])
        self.clock.run(0)


def test_the_engine_looks_again_once_the_pump_has_passed_the_change() -> None:
    bed = Bed()
    bed.change()
    assert bed.rerouting.is_under_way
    assert bed.asked == []
    bed.rerouting.note_answered(1)  # the heartbeat's
    assert bed.asked == []
    bed.answer()
    [is_affected] = bed.asked
    covered = [ip_address(it) for it in ("10.5.0.7", "10.5.255.255", "10.0.0.2")]
    assert [is_affected(it) for it in covered] == [True] * 3  # the gateway, too
    assert not is_affected(IPv4Address("10.6.0.1"))
    assert not is_affected(IPv6Address("::a05:7"))
    assert not bed.rerouting.is_under_way


def test_changes_meanwhile_are_the_next_round() -> None:
    bed = Bed()
    for number in range(10):
        bed.change(f"10.{number}.0.0/16", None)
    assert len(bed.marks) == 1
    bed.answer()
    assert len(bed.marks) == 2
    bed.answer()
    first, second = bed.asked
    assert [first(IPv4Address("10.0.0.9")), first(IPv4Address("10.9.0.9"))] == [True, False]
    assert [second(IPv4Address("10.0.0.9")), second(IPv4Address("10.9.0.9"))] == [False, True]
    bed.clock.run(100)
    assert len(bed.marks) == 2


def test_a_lost_mark_is_sent_again() -> None:
    bed = Bed()
    bed.change()
    bed.clock.run(2.5 * REROUTED_WAIT_S)
    assert len(bed.marks) == 3
    bed.rerouting.note_answered(bed.marks[0])  # too late
    assert bed.asked == []
    bed.answer()
    assert len(bed.asked) == 1
    bed.rerouting.close()
    bed.change()
    bed.clock.run(100)
    assert len(bed.marks) == 3


def test_a_packet_is_refused_at_once_only_if_the_kernel_sends_it_to_the_dead_next_hop() -> None:
    bed = Bed()
    assert bed.rerouting.refuse(REFUSAL)  # nobody to ask
    for target in (ON_LINK, None, Target("unreachable")):
        bed.rerouting.ask_route = partial(lambda target, packet: target, target)
        assert bed.rerouting.refuse(REFUSAL)
    bed.rerouting.ask_route = lambda packet: VIA
    assert not bed.rerouting.refuse(REFUSAL)
    bed.change("10.6.0.0/16")
    bed.answer()
    assert bed.effects == []
    bed.change()
    bed.answer()
    assert bed.effects == [Forward(WAITING)]
    bed.clock.run(10 * REROUTED_WAIT_S)
    assert bed.delivered == []


def test_a_packet_whose_route_does_not_come_is_refused_after_a_second() -> None:
    bed = Bed()
    bed.rerouting.ask_route = lambda packet: VIA
    assert not bed.rerouting.refuse(REFUSAL)
    bed.clock.run(REROUTED_WAIT_S / 2)
    assert not bed.rerouting.refuse(REFUSAL)
    assert bed.delivered == []
    bed.clock.run(REROUTED_WAIT_S / 2)
    assert bed.delivered == [REFUSAL.error]
    bed.clock.run(REROUTED_WAIT_S / 2)
    assert bed.delivered == [REFUSAL.error] * 2


def test_few_packets_wait_for_routes_and_the_others_are_refused() -> None:
    bed = Bed()
    bed.rerouting.ask_route = lambda packet: VIA
    refused = [bed.rerouting.refuse(REFUSAL) for _ in range(2 * REROUTED_REFUSALS_MAX)]
    assert refused == [False] * REROUTED_REFUSALS_MAX + [True] * REROUTED_REFUSALS_MAX
    bed.clock.run(REROUTED_WAIT_S)
    assert not bed.rerouting.refuse(REFUSAL)


def test_prefixes_cover_their_addresses_and_more_than_the_cap_cover_all() -> None:
    prefixes = Prefixes(cap=3)
    v4, v6 = IPv4Address("10.5.0.7"), IPv6Address("fd00::7")
    prefixes.add(prefix_of(ip_network("::/0")))
    assert [prefixes.covers(v4), prefixes.covers(v6)] == [False, True]
    for _ in range(REROUTED_PREFIXES_MAX):
        prefixes.add(prefix_of(ip_network("10.5.0.0/29")))
    assert [prefixes.covers(v4), prefixes.covers(v4 + 1)] == [True, False]
    prefixes.add_host(v4 + 9)
    assert [prefixes.covers(v4 + 9), prefixes.covers(v4 + 8), len(prefixes)] == [True, False, 3]
    for number in range(100):
        prefixes.add_host(IPv4Address("10.7.0.0") + number)
    assert prefixes.covers(IPv4Address("192.0.2.1"))
    assert len(prefixes) == 4
