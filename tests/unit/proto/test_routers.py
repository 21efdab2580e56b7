# SPDX-License-Identifier: BSD-2-Clause
"""Dead default routers: what the local stack hears of them, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address
from typing import NamedTuple

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.limits import (
    ADVERTISED_MAX,
    ADVERTISED_NEW_BURST,
    ADVERTISED_REPEATED_S,
    AUTOCONF_LASTS_S,
    AUTOCONF_UNPROVEN_MAX,
    MAX_RANDOM_FACTOR,
    MAX_UNICAST_SOLICIT,
    REACHABLE_TIME_S,
    ROUTER_ADVERTISEMENT_MAX_BYTES,
    ROUTER_RETRY_S,
    ROUTER_TRIALS_BURST,
    ROUTER_TRIALS_PER_S,
    ROUTERS_MAX,
    ROUTERS_OF_ONE_HOST,
    ROUTERS_UNPROVEN_MAX,
)
from ipoibu.proto.effects import Publish
from ipoibu.proto.neigh.advertised_routes import PREFIX_INFORMATION, ROUTE_INFORMATION, lifetime_s
from ipoibu.proto.neigh.nud import State
from ipoibu.wire import ndisc
from ipoibu.wire.ndisc import ALL_NODES, NeighbourAdvertisement, RouterAdvertisement
from ipoibu.wire.ndopt import Option
from tests.doubles.engine_bench import OUR_V6, Bench


class Router(NamedTuple):
    ip: IPv6Address
    hwaddr: HwAddr


def _router(number: int) -> Router:
    gid = Gid.parse(f"fe80::{number:x}")
    return Router(IPv6Address(f"fe80::{number:x}"), HwAddr(Qpn(0x500 + number), gid))


HIGH, LOW = _router(0x11), _router(0x22)
ROUTE = Option(ROUTE_INFORMATION, bytes((48, 8)) + (600).to_bytes(4, "big") + bytes(8))
PREFIX = Option(3, bytes(30))
HIGH_FLAGS = 0x08


def advertise(
    bench: Bench, router: Router, lifetime_s: int = 1800, *options: Option, flags: int = 0
) -> None:
    message = RouterAdvertisement(
        router.ip, ALL_NODES, router.hwaddr, options, flags=flags, lifetime_s=lifetime_s
    )
    bench.nd(message, multicast=True, sender=router.hwaddr)


def answer(bench: Bench, router: Router, *, is_router: bool = True) -> None:
    message = NeighbourAdvertisement(
        router.ip, OUR_V6, router.ip, router.hwaddr, router=is_router, solicited=True, override=True
    )
    bench.nd(message, sender=router.hwaddr)


def heard(bench: Bench) -> list[tuple[IPv6Address, int]]:
    """The router advertisements that the local stack got since the last call."""
    return [(it.source, it.lifetime_s) for it in _advertisements(bench)]


def last(bench: Bench) -> RouterAdvertisement:
    return _advertisements(bench)[-1]


def _advertisements(bench: Bench) -> list[RouterAdvertisement]:
    packets = [it for it in bench.host.delivered if it[40] == ndisc.Kind.ROUTER_ADVERTISEMENT]
    messages = [ndisc.parse_untrusted(packet) for packet in packets]
    bench.host.delivered.clear()
    return [it for it in messages if isinstance(it, RouterAdvertisement)]


def idle(bench: Bench, seconds: float, *living: Router) -> None:
    """Time passes; the living routers answer every solicitation."""
    use(bench, None, seconds, *living)


def use(bench: Bench, router: Router | None, seconds: float, *living: Router) -> None:
    """Packets go to the router for so long; the living ones answer every solicitation."""
    bench.sent.clear()
    for _ in range(int(10 * seconds)):
        if router is not None:
            bench.send(str(router.ip))
        bench.run(0.1)
        for _, message in bench.sent_nd():
            for one in living:
                if isinstance(message, ndisc.NeighbourSolicitation) and message.target == one.ip:
                    answer(bench, one)
        bench.sent.clear()


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    advertise(bench, HIGH, 1800, ROUTE, PREFIX, flags=HIGH_FLAGS)
    advertise(bench, LOW)
    assert heard(bench) == [(HIGH.ip, 1800), (LOW.ip, 1800)]
    return bench


def test_a_silent_router_is_left_within_ten_seconds(bench: Bench) -> None:
    """N9, U1, U2."""
    use(bench, HIGH, 30, HIGH)
    assert heard(bench) == []
    use(bench, HIGH, 9.5)
    message = last(bench)
    assert (message.source, message.lifetime_s) == (HIGH.ip, 0)
    # its more specific routes go too (RFC 4191), and it says nothing about addresses
    [route] = message.options
    assert route == Option(ROUTE_INFORMATION, bytes((48, 8)) + bytes(4) + bytes(8))
    assert message.flags == 0
    assert any("uses another router" in line for line in bench.host.log)


def test_a_router_that_answers_again_gets_its_routes_back(bench: Bench) -> None:
    use(bench, HIGH, 12)
    assert heard(bench) == [(HIGH.ip, 0)]
    idle(bench, ROUTER_RETRY_S + 1, HIGH)
    message = last(bench)
    assert message.source == HIGH.ip
    assert 1700 < message.lifetime_s < 1800
    assert message.flags == HIGH_FLAGS
    [route] = message.options
    assert 500 < int.from_bytes(route.body[2:6], "big") < 600


def test_the_only_router_is_kept_until_another_one_lives(bench: Bench) -> None:
    advertise(bench, LOW, 0)
    heard(bench)
    use(bench, HIGH, 12)
    assert heard(bench) == []
    advertise(bench, LOW)
    assert heard(bench) == [(LOW.ip, 1800), (HIGH.ip, 0)]
    advertise(bench, HIGH, 1800, PREFIX)  # it is back, or another host says so
    assert heard(bench) == []
    answer(bench, HIGH)
    message = last(bench)
    assert (message.source, message.lifetime_s, message.options) == (HIGH.ip, 1800, (PREFIX,))


def test_of_two_silent_routers_one_stays(bench: Bench) -> None:
    use(bench, HIGH, 12)
    assert heard(bench) == [(HIGH.ip, 0)]
    use(bench, LOW, 12)
    assert heard(bench) == []
    answer(bench, HIGH)
    assert [source for source, lifetime_s in heard(bench) if lifetime_s == 0] == [LOW.ip]


def test_a_router_that_stops_routing_is_left_at_once(bench: Bench) -> None:
    """RFC 4861 §7.2.5: an advertisement without the Router flag, even of the only router."""
    for router in (HIGH, LOW):
        answer(bench, router, is_router=False)
        assert heard(bench) == [(router.ip, 0)]
    answer(bench, LOW)  # only an advertisement makes it a router again
    assert heard(bench) == []
    advertise(bench, LOW)
    assert heard(bench) == [(LOW.ip, 1800)]


def test_a_hosts_advertisement_is_nothing_to_the_stack(bench: Bench) -> None:
    host = _router(0x33)
    answer(bench, host, is_router=False)
    assert heard(bench) == []


def test_a_router_whose_lifetime_ends_is_forgotten(bench: Bench) -> None:
    advertise(bench, HIGH, 20)
    heard(bench)
    use(bench, HIGH, 12)
    assert heard(bench) == [(HIGH.ip, 0)]
    bench.run(30)
    answer(bench, HIGH)
    assert heard(bench) == []


def test_advertisements_in_the_name_of_a_dead_router_do_not_bring_it_back(bench: Bench) -> None:
    """The sender is asked, no more often than new routers are."""
    use(bench, HIGH, 12)
    assert heard(bench) == [(HIGH.ip, 0)]
    bench.clear()
    for _ in range(int(2 * ROUTER_TRIALS_BURST)):
        advertise(bench, HIGH)
    assert heard(bench) == []
    assert 1 <= len(bench.sent_nd()) <= ROUTER_TRIALS_BURST


# Invented routers


def invented(count: int, first: int = 0x1000) -> list[Router]:
    return [_router(first + number) for number in range(count)]


def known_to_the_stack(bench: Bench, known: set[IPv6Address]) -> None:
    """Change `known` as the stack's default routers by what it has heard since the last call."""
    for source, left_s in heard(bench):
        (known.add if left_s else known.discard)(source)


def test_of_invented_routers_the_stack_hears_a_few_and_each_costs_one_question_at_most() -> None:
    bench = Bench()
    neighbours = len(bench.host.engine.neighbour_ips())
    for number, router in enumerate(invented(20 * ROUTERS_MAX)):
        advertise(bench, router)
        if number % 50 == 49:
            bench.run(0.1)  # 500 a second, as the pump passes them up
    stack: set[IPv6Address] = set()
    known_to_the_stack(bench, stack)
    assert len(stack) == ROUTERS_UNPROVEN_MAX
    assert len(bench.host.engine.neighbour_ips()) - neighbours <= ROUTERS_UNPROVEN_MAX
    assert len(bench.host.engine._routers) == ROUTERS_MAX
    took_s = 20 * ROUTERS_MAX / 500
    asked = ROUTER_TRIALS_BURST + took_s * ROUTER_TRIALS_PER_S
    spare = (ROUTERS_MAX + ROUTERS_UNPROVEN_MAX) * MAX_UNICAST_SOLICIT
    assert len(bench.sent_nd()) <= asked + spare
    counts = bench.host.counts
    assert counts["router_refused"] + counts["router_evicted"] >= 18 * ROUTERS_MAX
    lines = [line for line in bench.host.log if "router" in line]
    assert 1 <= len(lines) <= 20
    bench.run(ROUTER_RETRY_S)
    bench.clear()
    assert len(bench.host.engine._routers) <= ROUTERS_UNPROVEN_MAX  # the trials are over


def test_a_router_that_was_there_first_stays_and_a_new_one_is_heard_when_it_answers() -> None:
    bench = Bench()
    advertise(bench, HIGH)
    for router in invented(20 * ROUTERS_MAX):
        advertise(bench, router)
        bench.run(0.002)
        for _, message in bench.sent_nd():
            if isinstance(message, ndisc.NeighbourSolicitation) and message.target == HIGH.ip:
                answer(bench, HIGH)
        bench.sent.clear()
    stack: set[IPv6Address] = set()
    known_to_the_stack(bench, stack)
    assert HIGH.ip in stack
    idle(bench, ROUTER_RETRY_S + 5, HIGH)
    known_to_the_stack(bench, stack)
    assert stack == {HIGH.ip}  # the others do not answer
    for router in invented(ROUTERS_MAX, 0x4000):
        advertise(bench, router)
    bench.run(1)
    advertise(bench, LOW, 1800, ROUTE, PREFIX)
    known_to_the_stack(bench, stack)
    assert LOW.ip not in stack
    answer(bench, LOW)
    message = last(bench)
    assert (message.source, message.options) == (LOW.ip, (ROUTE, PREFIX))


def test_a_router_that_answered_long_ago_needs_no_trial() -> None:
    """It is a neighbour: its entry is STALE, and it does not compete with invented ones for trials."""
    bench = Bench()
    bench.send(str(HIGH.ip))
    answer(bench, HIGH)
    bench.run(REACHABLE_TIME_S * MAX_RANDOM_FACTOR)
    info = bench.neighbour(str(HIGH.ip))
    assert info is not None
    assert info.state is State.STALE
    for router in invented(20 * ROUTERS_MAX):
        advertise(bench, router)
    assert bench.host.counts["router_refused"] > ROUTERS_MAX, "no trial is left"
    heard(bench)
    advertise(bench, HIGH)
    assert (HIGH.ip, 1800) in heard(bench)
    bench.host.carry_out(bench.host.engine.permanent.remove(bench.now, HIGH.ip))
    advertise(bench, HIGH, 0)
    heard(bench)
    advertise(bench, HIGH)
    assert heard(bench) == [], "forgotten with the entry"


def test_a_router_that_answers_never_makes_room_for_others() -> None:
    bench = Bench()
    real = invented(ROUTERS_MAX)
    for router in real:
        advertise(bench, router)
        answer(bench, router)
    assert len(heard(bench)) == ROUTERS_MAX
    advertise(bench, HIGH)
    assert bench.host.counts["router_refused"] == 1
    assert heard(bench) == []
    advertise(bench, real[0], 0)
    advertise(bench, HIGH)
    assert heard(bench) == [(real[0].ip, 0), (HIGH.ip, 1800)]


def test_a_host_that_answers_for_many_routers_makes_room_for_those_of_others() -> None:
    bench = Bench()
    greedy = [Router(it.ip, LOW.hwaddr) for it in invented(ROUTERS_MAX)]
    for router in greedy:
        advertise(bench, router)
        answer(bench, router)
    heard(bench)
    others = invented(ROUTERS_MAX, 0x4000)
    for router in others:
        advertise(bench, router)
        answer(bench, router)
    stack = {it.ip for it in greedy}
    known_to_the_stack(bench, stack)
    kept = {it.ip for it in greedy[:ROUTERS_OF_ONE_HOST]}
    assert stack == kept | {it.ip for it in others[: ROUTERS_MAX - ROUTERS_OF_ONE_HOST]}
    assert bench.host.counts["router_evicted"] == ROUTERS_MAX - ROUTERS_OF_ONE_HOST
    assert bench.host.counts["router_refused"] == ROUTERS_OF_ONE_HOST


def test_routers_whose_lifetime_is_over_make_room() -> None:
    bench = Bench()
    for router in invented(ROUTERS_MAX):
        advertise(bench, router, 10)
        answer(bench, router)
    bench.run(11)
    heard(bench)
    advertise(bench, HIGH)
    assert heard(bench) == [(HIGH.ip, 1800)]
    assert bench.host.counts["router_refused"] == 0


def test_a_dead_router_makes_room_for_one_that_answers() -> None:
    bench = Bench()
    real = invented(ROUTERS_MAX)
    for router in real:
        advertise(bench, router)
        answer(bench, router)
    use(bench, real[0], 12, *real[1:])
    assert (real[0].ip, 0) in heard(bench)
    advertise(bench, HIGH)
    assert heard(bench) == [(HIGH.ip, 1800)]
    assert bench.host.counts["router_evicted"] == 1


def test_an_advertisement_that_no_datagram_holds_gets_its_sender_no_place() -> None:
    bench = Bench()
    count = ROUTER_ADVERTISEMENT_MAX_BYTES // 8
    advertise(bench, HIGH, 1800, *(Option(200, bytes(6)) for _ in range(count)))
    assert heard(bench) == []
    assert bench.host.counts["router_refused"] == 1


# Their prefixes and routes


def prefix(number: int, lifetime_s: int = 1800, flags: int = 0x80) -> Option:
    lasts = lifetime_s.to_bytes(4, "big")
    body = bytes((64, flags)) + 2 * lasts + bytes(4) + number.to_bytes(8, "big") + bytes(8)
    return Option(PREFIX_INFORMATION, body)


def route(number: int, lifetime_s: int = 1800) -> Option:
    lasts = lifetime_s.to_bytes(4, "big")
    return Option(ROUTE_INFORMATION, bytes((64, 0)) + lasts + number.to_bytes(8, "big"))


def held_by_the_stack(bench: Bench, held: set[bytes]) -> None:
    """Change `held` as the stack's prefixes by what it has heard since the last call."""
    for message in _advertisements(bench):
        for option in message.options:
            key = option.body[-16:] if option.type == PREFIX_INFORMATION else option.body[6:]
            (held.add if lifetime_s(option) else held.discard)(key)


@pytest.mark.parametrize("make", [prefix, route])
@pytest.mark.parametrize("router_s", [0, 1800])
def test_invented_prefixes_are_bounded_and_new_ones_are_few_and_withdrawn(
    make: Callable[..., Option], router_s: int
) -> None:
    """The router may be a real one, in whose name an attacker speaks, or no default router."""
    bench = Bench()
    held: set[bytes] = set()
    advertise(bench, HIGH, router_s, make(1))
    bench.run(ADVERTISED_REPEATED_S)
    advertise(bench, HIGH, router_s, make(1))
    for number in range(4 * ADVERTISED_MAX):
        advertise(bench, HIGH, router_s, make(100 + 2 * number), make(101 + 2 * number))
        held_by_the_stack(bench, held)
        bench.run(0.01)
    assert bench.host.counts["prefix_refused"] > 6 * ADVERTISED_MAX
    assert 0 < bench.host.counts["prefix_evicted"] <= ADVERTISED_NEW_BURST
    assert len(held) == ADVERTISED_MAX
    assert make(1).body[-8 if make is route else -16 :] in {key[:16] for key in held}
    bench.run(1)
    advertise(bench, HIGH, router_s, make(2))
    held_by_the_stack(bench, held)
    assert len(held) == ADVERTISED_MAX
    assert any(key.startswith((2).to_bytes(8, "big")) for key in held)


def test_a_withdrawn_prefix_leaves_the_routes_of_its_router_as_they_are() -> None:
    bench = Bench()
    advertise(bench, HIGH, 1800, route(7), flags=HIGH_FLAGS)
    for number in range(ADVERTISED_MAX):
        advertise(bench, HIGH, 1800, prefix(number), flags=HIGH_FLAGS)
    bench.run(10)
    heard(bench)
    advertise(bench, HIGH, 1800, prefix(4000), flags=HIGH_FLAGS)
    withdrawal, delivered = _advertisements(bench)
    assert 1780 <= withdrawal.lifetime_s <= 1800
    assert withdrawal.flags == HIGH_FLAGS
    assert withdrawal.options == (route(7, 0),)
    assert delivered.options == (prefix(4000),)


def test_prefixes_that_routers_repeat_never_make_room() -> None:
    bench = Bench()
    for _ in range(2):
        for number in range(ADVERTISED_MAX):
            advertise(bench, HIGH, 1800, prefix(number))
        bench.run(ADVERTISED_REPEATED_S + 1)
    heard(bench)
    advertise(bench, HIGH, 1800, prefix(4000))
    assert bench.host.counts["prefix_refused"] == 1
    assert last(bench).options == ()
    advertise(bench, HIGH, 1800, prefix(0, 0))  # what ends is passed on, and makes room
    advertise(bench, HIGH, 1800, prefix(4000))
    assert last(bench).options == (prefix(4000),)


# Their prefixes that make addresses


def autoconf(number: int, lifetime_s: int = 1800) -> Option:
    return prefix(number, lifetime_s, 0xC0)


def addresses(bench: Bench) -> set[bytes]:
    """The prefixes of which the stack has an address for hours, from what it has heard."""
    return {
        option.body[-16:]
        for message in _advertisements(bench)
        for option in message.options
        if option.type == PREFIX_INFORMATION and option.body[1] & 0x40 and lifetime_s(option)
    }


@pytest.mark.parametrize("router_s", [0, 1800])
@pytest.mark.parametrize("ends", [False, True], ids=["", "withdrawn at once"])
def test_invented_routers_leave_room_for_the_addresses_of_one_that_answers(
    router_s: int, ends: bool
) -> None:
    """Linux makes 16 addresses at most, and keeps one for two hours after its prefix has been withdrawn."""
    bench = Bench()
    for number in range(100):
        invented = _router(0x100 + number)
        advertise(bench, invented, router_s, autoconf(2 * number), autoconf(2 * number + 1))
        if ends:
            advertise(
                bench, invented, router_s, autoconf(2 * number, 0), autoconf(2 * number + 1, 0)
            )
        bench.run(1)
    assert 0 < len(addresses(bench)) <= AUTOCONF_UNPROVEN_MAX
    use(bench, None, ROUTER_TRIALS_BURST / ROUTER_TRIALS_PER_S + 1)
    heard(bench)
    advertise(bench, LOW, 1800, autoconf(5000), autoconf(5001))
    use(bench, None, 3, LOW)
    assert len(addresses(bench)) == 2


def test_the_first_router_gets_its_addresses_before_it_has_answered() -> None:
    bench = Bench()
    advertise(bench, HIGH, 1800, *(autoconf(number) for number in range(AUTOCONF_UNPROVEN_MAX)))
    assert len(last(bench).options) == AUTOCONF_UNPROVEN_MAX


def test_the_stack_sends_from_no_address_of_a_prefix_that_made_way_for_invented_ones() -> None:
    """An honest prefix that was withdrawn meanwhile comes back with the next advertisement."""
    bench = Bench()
    for number in range(AUTOCONF_UNPROVEN_MAX):
        advertise(bench, HIGH, 1800, autoconf(number))
    heard(bench)
    for number in range(100, 100 + 2 * AUTOCONF_UNPROVEN_MAX):
        advertise(bench, HIGH, 1800, autoconf(number))
    told = {
        option.body[-16:]: lifetime_s(option)
        for message in _advertisements(bench)
        for option in message.options
    }
    assert told == {autoconf(it).body[-16:]: 0 for it in range(AUTOCONF_UNPROVEN_MAX)}
    advertise(bench, HIGH, 1800, autoconf(3))
    assert [lifetime_s(option) for option in last(bench).options] == [1800]


def test_a_prefix_that_a_silent_router_repeats_does_not_make_way_for_invented_ones() -> None:
    bench = Bench()
    advertise(bench, HIGH, 0, autoconf(0))
    bench.run(ADVERTISED_REPEATED_S + 1)
    advertise(bench, HIGH, 0, autoconf(0))
    for number in range(100, 100 + 2 * AUTOCONF_UNPROVEN_MAX):
        advertise(bench, HIGH, 0, autoconf(number))
    withdrawn = {
        option.body[-16:]
        for message in _advertisements(bench)
        for option in message.options
        if lifetime_s(option) == 0
    }
    assert len(withdrawn) == AUTOCONF_UNPROVEN_MAX - 1
    assert autoconf(0).body[-16:] not in withdrawn


def test_what_strangers_occupy_is_free_again_when_the_addresses_are_gone() -> None:
    bench = Bench()
    for number in range(AUTOCONF_UNPROVEN_MAX):
        advertise(bench, HIGH, 0, autoconf(number))
        advertise(bench, HIGH, 0, autoconf(number, 0))
    heard(bench)
    advertise(bench, HIGH, 0, autoconf(100))
    assert addresses(bench) == set()
    bench.run(AUTOCONF_LASTS_S + 1)
    advertise(bench, HIGH, 0, autoconf(100))
    assert len(addresses(bench)) == 1


def test_a_gateway_of_a_route_is_probed_as_soon_as_a_router() -> None:
    """A dead next hop of a multipath route has to be known within 10 s."""
    bench = Bench()
    gateway = _router(0x44)
    answer_to = str(gateway.ip)
    bench.send(answer_to)
    answer(bench, gateway)
    bench.host.carry_out(bench.host.engine.note_gateway(bench.now, gateway.ip, is_used=True))
    use(bench, gateway, 9.5)
    info = bench.neighbour(answer_to)
    assert info is None or info.hwaddr is None
    bench.host.carry_out(bench.host.engine.note_gateway(bench.now, gateway.ip, is_used=False))
    bench.clear()
    bench.run(5)
    bench.send(answer_to)
    answer(bench, gateway)
    bench.clear()
    bench.run(10)
    assert not any(isinstance(effect, Publish) for effect in bench.host.effects)
