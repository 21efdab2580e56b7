# SPDX-License-Identifier: BSD-2-Clause
"""Dead default routers: what the local stack hears of them, in virtual time."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import NamedTuple

import pytest

from ipoibu.addr import Gid, HwAddr, Qpn
from ipoibu.limits import ROUTER_RETRY_S, ROUTERS_MAX
from ipoibu.proto.effects import Publish
from ipoibu.proto.routers import ROUTE_INFORMATION
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
    advertise(bench, HIGH)  # it is back, and says so itself
    assert heard(bench) == [(HIGH.ip, 1800)]


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


def test_more_routers_than_the_table_holds_are_counted_and_make_room_in_time() -> None:
    bench = Bench()
    for number in range(ROUTERS_MAX + 1):
        advertise(bench, _router(0x100 + number), 10)
    assert bench.host.counts["router_table_full"] == 1
    bench.run(11)
    advertise(bench, HIGH)
    assert bench.host.counts["router_table_full"] == 1
    answer(bench, HIGH, is_router=False)
    assert (HIGH.ip, 0) in heard(bench)


def test_a_gateway_of_a_route_is_probed_as_soon_as_a_router() -> None:
    """A dead next hop of a multipath route has to be known within 10 s."""
    bench = Bench()
    gateway = _router(0x44)
    answer_to = str(gateway.ip)
    bench.send(answer_to)
    answer(bench, gateway)
    bench.host.carry_out(bench.host.engine.gateway_changed(bench.now, gateway.ip, is_used=True))
    use(bench, gateway, 9.5)
    info = bench.neighbour(answer_to)
    assert info is None or info.hwaddr is None
    bench.host.carry_out(bench.host.engine.gateway_changed(bench.now, gateway.ip, is_used=False))
    bench.clear()
    bench.run(5)
    bench.send(answer_to)
    answer(bench, gateway)
    bench.clear()
    bench.run(10)
    assert not any(isinstance(effect, Publish) for effect in bench.host.effects)
