# SPDX-License-Identifier: BSD-2-Clause
"""An attacker beside a TCP stream: floods cost about as much as packets with a bad ICRC, and no more
than twice that."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.base.c_limits import ADMISSION_STRANGERS
from ipoibu.base.limits import ADVERTISED_MAX, ROUTERS_UNPROVEN_MAX
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import INTERFACE, Host
from tests.attack import attacks
from tests.attack.attacker import Attacker, gid
from tests.attack.attacks import Flood, Target
from tests.attack.gates import (
    FULL,
    FULL_WITHIN_S,
    LATE_S,
    MEASURE_S,
    RESOLVED_MS,
    TRIES,
    answer_ms,
    back_s_of,
    counted,
    own,
    share_of,
    slowed,
)
from tests.attack.stream import Stream
from tests.netns.advertising import advertise_router

pytestmark = [pytest.mark.netns, pytest.mark.serial]

Until = Callable[..., Any]

RATE: Final = 100_000
NEAR: Final = IPv4Address("10.77.0.1")
NEAR6: Final = IPv6Address("fd77::1")
ROUTER: Final = IPv6Address("fe80::200:ff:fe00:1")  # of the first host
ABSENT: Final = IPv4Address("10.77.0.77")

FLOODS: Final[dict[str, Callable[[Target], Flood]]] = {
    "no queue pair": attacks.nowhere,
    "ARP": lambda target: attacks.arp_requests(target, target.ipv4),
    "ND": lambda target: attacks.solicitations(target, target.ipv6),
    "IP": attacks.packets,
    "IP of invented senders": lambda target: attacks.packets(target, invented=True),
}
CONNECTED_FLOODS: Final[dict[str, Callable[[Target], Flood]]] = {
    "queue pair 1": attacks.gsi,
    "a connection": lambda target: attacks.rc_requests(target, gid(1)),
}
KINDS: Final = [
    *(("datagram", name) for name in FLOODS),
    *(("connected", name) for name in FLOODS | CONNECTED_FLOODS),
]

# The other attacks: floods without a gate, false sources, and hardware addresses that are lies.
EVERY: Final[dict[str, Callable[[Target], Flood]]] = {
    **FLOODS,
    "flood: bad ICRC": attacks.bad_icrc,
    "flood: queue pair 1": attacks.gsi,
    "flood: ARP for others": lambda target: attacks.arp_requests(target, ABSENT, broadcast=True),
    "flood: routers": attacks.router_advertisements,
    "flood: prefixes": lambda target: attacks.router_advertisements(target, "prefixes"),
    "flood: redirects": lambda target: attacks.redirects(target, ROUTER),
    "spoof: IP": lambda target: attacks.packets(target, gid(1)),
    "spoof: messages": lambda target: attacks.rc_requests(target, gid(1)),
    "spoof: refusals": lambda target: attacks.naks(target, gid(1)),
    "spoof: errors": lambda target: attacks.naks(target, gid(1), attacks.NAK_SEQUENCE),
    "spoof: stale": lambda target: attacks.stale_request(target, gid(1), target.rc_qpn),
}
LIES: Final[dict[str, Callable[[Target], Flood]]] = {
    "ARP": lambda target: attacks.poison(target, NEAR),
    "ND": lambda target: attacks.lying_advertisements(target, NEAR6),
}


@pytest.fixture(scope="module")
def labs() -> Iterator[Callable[[str], NamespaceLab]]:
    """Two hosts in a mode; the tests of a mode share them."""
    running: dict[str, NamespaceLab] = {}

    def lab(mode: str) -> NamespaceLab:
        if mode not in running:
            running[mode] = NamespaceLab(options=["--mode", mode])
            running[mode].__enter__()
        return running[mode]

    yield lab
    for each in running.values():
        each.close()


def _connections(host: Host) -> list[dict[str, Any]]:
    return [c for c in host.ask("conn") if c["state"] == "live" and c["role"] == "passive"]


def _target(host: Host, until: Until, mode: str) -> Target:
    qpn = int(until(lambda: _connections(host), 150)[0]["qpn"], 16) if mode == "connected" else 0
    return Target.of(host.ask("show"), host.ipv4.ip, host.ipv6.ip, qpn)


@pytest.mark.parametrize(("mode", "kind"), KINDS)
def test_a_flood_leaves_tcp_half_of_what_bad_packets_leave_and_then_all(
    labs: Callable[[str], NamespaceLab], attacker: Attacker, until: Until, mode: str, kind: str
) -> None:
    lab = labs(mode)
    near, far = lab.hosts
    with Stream(near, far) as stream:
        target = _target(far, until, mode)
        floods = attacks.bad_icrc(target), (FLOODS | CONNECTED_FLOODS)[kind](target)
        shares, back_s = [0.0], [LATE_S]
        while len(shares) <= TRIES and (max(shares) < 0.5 or min(back_s) > FULL_WITHIN_S):
            full = max(stream.rate(0.3), stream.rate(0.3))
            rate = slowed(RATE, (len(shares) - 1) // 2)
            shares.append(share_of(attacker, lab, stream, floods, rate))
            back_s.append(back_s_of(stream, FULL * full))
        assert max(shares) >= 0.5, shares
        assert min(back_s) <= FULL_WITHIN_S, back_s


@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_a_replay_of_the_stream_does_not_stop_it(
    labs: Callable[[str], NamespaceLab], attacker: Attacker, mode: str
) -> None:
    """The stream's own packets, sent again in any order: TCP and RC drop them."""
    lab = labs(mode)
    near, far = lab.hosts
    with Stream(near, far) as stream:

        def goes_on() -> bool:
            full = max(stream.rate(0.3), stream.rate(0.3))
            with attacker.replay(near, 5000) as sent:
                is_fast = stream.rate(MEASURE_S) > 1e6
            assert sent.packets > 0
            return is_fast and back_s_of(stream, full / 3) <= FULL_WITHIN_S

        assert any(goes_on() for _ in range(TRIES))


def _known(connections: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(c["qpn"], c["remote_qpn"]) for c in connections if c["state"] == "live"}


def _remote(connection: dict[str, Any]) -> int:
    return int(connection["remote_qpn"], 16)


def test_a_spoofing_host_that_knows_queue_pairs_ends_no_connection(
    labs: Callable[[str], NamespaceLab], attacker: Attacker, until: Until
) -> None:
    """It sees no packet of the connections, but has the peer's address and all queue pair numbers."""
    near, far = labs("connected").hosts

    def end_none() -> bool:
        with Stream(near, far) as stream:
            until(lambda: len(_known(near.ask("conn"))) == len(_known(far.ask("conn"))) == 2)
            before = _known(near.ask("conn")), _known(far.ask("conn"))
            (accepted,) = _connections(far)
            target = _target(far, until, "connected")
            stale = attacks.stale_request(target, gid(1), _remote(accepted))
            with attacker.flood(near, far, stale, 1000):
                until(lambda: stream.rate(MEASURE_S) > 0)
            target = Target.of(near.ask("show"), near.ipv4.ip, near.ipv6.ip, _remote(accepted))
            with attacker.flood(far, near, attacks.naks(target, gid(2)), 50_000):
                until(lambda: stream.rate(2 * MEASURE_S) > 0)
            return (_known(near.ask("conn")), _known(far.ask("conn"))) == before

    until(end_none, 150)  # a busy machine breaks connections, too


# ARP and neighbour discovery

FOREIGN_V4: Final = IPv4Address("10.77.0.250")  # nobody's
NEIGHBOUR_FLOODS: Final[dict[str, Callable[[Target], Flood]]] = {
    "ARP requests": lambda target: attacks.arp_requests(target, target.ipv4),
    "ARP introductions": attacks.introductions,
    "ARP requests to others": lambda target: attacks.arp_requests(
        target, FOREIGN_V4, broadcast=True
    ),
    "ARP replies": lambda target: attacks.poison(target, FOREIGN_V4),
    "solicitations": lambda target: attacks.solicitations(target, target.ipv6),
}
NEIGHBOUR_RATE: Final = 50_000
PARTS: Final = 5  # of the addresses, a try for each
INVENTED: Final = 16_800
# Counters of messages, and of seconds with such.
REFUSALS: Final = ("rx_control_limited", "engine.control_limited")


def _new_addresses(kind: str) -> list[IpAddress]:
    """Return addresses that no other test uses, of both families."""
    first = 100 + 10 * list(NEIGHBOUR_FLOODS).index(kind)
    numbers = range(first, first + TRIES)
    v4: list[IpAddress] = [IPv4Address(f"10.77.0.{number}") for number in numbers]
    return v4 + [IPv6Address(f"fd77::{number}") for number in numbers]


@pytest.mark.parametrize("kind", NEIGHBOUR_FLOODS)
def test_a_resolution_that_we_began_succeeds_within_a_second_beside_a_flood(
    labs: Callable[[str], NamespaceLab], attacker: Attacker, until: Until, kind: str
) -> None:
    near, far = labs("datagram").hosts
    addresses = _new_addresses(kind)
    own(near, addresses, until)
    flood = NEIGHBOUR_FLOODS[kind](_target(far, until, "datagram"))
    for part in range(PARTS):
        with attacker.flood(near, far, flood, slowed(NEIGHBOUR_RATE, part)):
            time.sleep(0.5)
            took = [answer_ms(far, address) for address in addresses[part::PARTS]]
        if sorted(took)[len(took) // 2] < RESOLVED_MS:
            break
    assert sorted(took)[len(took) // 2] < RESOLVED_MS, took


@pytest.mark.parametrize("kind", ["ARP introductions", "solicitations"])
def test_five_thousand_messages_a_second_leave_tcp_more_than_half(
    labs: Callable[[str], NamespaceLab], attacker: Attacker, until: Until, kind: str
) -> None:
    near, far = labs("datagram").hosts
    flood = NEIGHBOUR_FLOODS[kind](_target(far, until, "datagram"))
    with Stream(near, far) as stream:
        shares: list[float] = []
        while len(shares) < TRIES and max(shares, default=0.0) < 0.5:
            full = stream.rate(MEASURE_S)
            with attacker.flood(near, far, flood, 5000):
                stream.rate(0.2)
                shares.append(stream.rate(MEASURE_S) / max(full, 1.0))
    assert max(shares) >= 0.5, shares


def test_invented_senders_are_refused_and_logged_and_a_new_host_is_reachable_at_once(
    labs: Callable[[str], NamespaceLab], attacker: Attacker, until: Until
) -> None:
    near, far = labs("datagram").hosts
    refused, seconds = (counted(far, name) for name in REFUSALS)
    known = len(far.ask("neigh"))
    began = time.monotonic()
    flood = attacks.introductions(_target(far, until, "datagram"))
    with attacker.flood(near, far, flood, INVENTED // 2):
        until(lambda: counted(far, REFUSALS[0]) - refused > INVENTED / 2)
    near.stop()
    near.start()
    new = IPv4Address("10.77.0.200")
    own(near, [new], until)
    pings = [
        host.namespace.popen(["ping", "-c", "1", "-W", "20", *words], stdout=subprocess.DEVNULL)
        for host, words in ((near, ["-I", str(new), str(far.ipv4.ip)]), (far, [str(new)]))
    ]
    assert [ping.wait(60) for ping in pings] == [0, 0]
    took_s = time.monotonic() - began
    assert 1 <= counted(far, REFUSALS[1]) - seconds <= took_s + 2
    lines = far.log().count("too many ARP and ND messages")  # of all tests: they share a rate
    assert 1 <= lines <= counted(far, REFUSALS[1])
    assert len(far.ask("neigh")) - known <= ADMISSION_STRANGERS * (took_s + 1) + 100


# Router advertisements

BEYOND: Final = "fd99::1"  # behind the router
ADVERTISEMENTS: Final = 2 * ADVERTISED_MAX  # that reach the engine


def _routes(host: Host) -> int:
    return len(host.run(["ip", "-6", "route", "show", "dev", INTERFACE]).stdout.splitlines())


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("routers", ROUTERS_UNPROVEN_MAX),
        ("prefixes", ADVERTISED_MAX),
        ("routes", ADVERTISED_MAX),
    ],
)
def test_invented_routers_and_prefixes_fill_neither_the_kernel_nor_the_place_of_a_real_router(
    attacker: Attacker, until: Until, kind: str, most: int
) -> None:
    with NamespaceLab() as lab:
        router, host = lab.hosts
        assert router.run(["ip", "address", "add", f"{BEYOND}/128", "dev", "lo"]).returncode == 0
        forward = ["sysctl", "-qw", "net.ipv6.conf.all.forwarding=1"]
        assert router.run(forward).returncode == 0

        def reaches() -> bool:
            return host.run(["ping", "-c1", "-W1", BEYOND]).returncode == 0

        advertise_router(router, 0)
        until(reaches)
        takes_routes = f"net.ipv6.conf.{INTERFACE}.accept_ra_rt_info_max_plen=128"
        assert host.run(["sysctl", "-qw", takes_routes]).returncode == 0
        own = _routes(host)
        flood = attacks.router_advertisements(_target(host, until, "datagram"), kind)
        with attacker.flood(router, host, flood, 2 * ADMISSION_STRANGERS):
            until(lambda: counted(host, "rx_control") > ADVERTISEMENTS)
            assert _routes(host) <= own + most + 1  # the router of the prefixes
            until(reaches)
            assert host.ask("show")["name"] == INTERFACE
        until(reaches)
        assert counted(host, "engine.defect") == 0


# Every attack


def _contradictions(host: Host) -> int:
    return int(host.ask("stats").get("engine.neigh_contradiction", 0))


@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_the_interface_works_after_every_attack_and_reports_no_defect(
    labs: Callable[[str], NamespaceLab], attacker: Attacker, until: Until, mode: str
) -> None:
    near, far = labs(mode).hosts
    with Stream(near, far) as stream:
        stream.rate(0.3)
        target = _target(far, until, mode)
        for make in EVERY.values():
            with attacker.flood(near, far, make(target), 20_000) as sent:
                time.sleep(0.2)
            assert sent.packets > 0
        for make in LIES.values():
            before = _contradictions(far)
            with attacker.flood(near, far, make(target), 20_000):
                until(lambda before=before: _contradictions(far) > before)
        with attacker.replay(near, 5000) as sent:
            assert stream.rate(0.2) >= 0
        assert sent.packets > 0
    until(lambda: far.run(["ping", "-c1", "-W1", str(near.ipv4.ip)]).returncode == 0)
    until(lambda: far.run(["ping", "-c1", "-W1", str(near.ipv6.ip)]).returncode == 0)
    for host in (near, far):
        assert host.ask("stats").get("engine.defect", 0) == 0
        assert "Traceback" not in host.log()
