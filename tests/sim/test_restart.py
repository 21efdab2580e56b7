# SPDX-License-Identifier: BSD-2-Clause
"""Queue pair numbers are volatile (A5): peers reach a restarted host with another one within 3 s."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ipoibu.base.addr import HwAddr
from ipoibu.base.ib import Destination
from tests.doubles.network import PERFECT, TERRIBLE, Faults, Network
from tests.doubles.simulation import Host, Simulation, packet

V4 = ("10.0.0.1", "10.0.0.2")
V6 = ("fe80::1", "fe80::2")


def pair(seed: int, faults: Faults) -> tuple[Simulation, Host, Host]:
    """Return two hosts that have exchanged packets of both IP versions, in both directions."""
    simulation = Simulation(seed, faults)
    a = simulation.host("10.0.0.1/24", "fe80::1/64")
    b = simulation.host("10.0.0.2/24", "fe80::2/64")
    simulation.run(10)
    ping(simulation, lambda: a, lambda: simulation.hosts[1], b"warm up")
    assert simulation.run_until(lambda: b.got(b"warm up 4") and b.got(b"warm up 6"), 60)
    simulation.run(2)
    return simulation, a, b


def ping(simulation: Simulation, a: Callable[[], Host], b: Callable[[], Host], text: bytes) -> None:
    """Send ten packets a second from a to b over each version; b answers as its stack would."""

    def send() -> None:
        a().send(packet(*V4, text + b" 4"))
        a().send(packet(*V6, text + b" 6"))
        simulation.clock.at(simulation.now + 0.1, send)

    send()


def time_until(simulation: Simulation, host: Host, payload: bytes) -> float:
    start = simulation.now
    assert simulation.run_until(lambda: host.got(payload), 120)
    return simulation.now - start


@pytest.mark.parametrize("version", [b"4", b"6"])
def test_on_a_perfect_network_it_takes_the_time_of_duplicate_detection(version: bytes) -> None:
    simulation, _, b = pair(1, PERFECT)
    b = simulation.restart(b, "10.0.0.2/24", "fe80::2/64")
    took_s = time_until(simulation, b, b"warm up " + version)
    assert took_s < (1.0 if version == b"4" else 1.2)


@pytest.mark.parametrize("seed", range(40))
def test_on_a_terrible_network_both_versions_are_back_within_three_seconds(seed: int) -> None:
    simulation, _, b = pair(seed, TERRIBLE)
    b = simulation.restart(b, "10.0.0.2/24", "fe80::2/64")
    start = simulation.now
    for version in (b"4", b"6"):
        time_until(simulation, b, b"warm up " + version)
    assert simulation.now - start <= 3.0


def losing(network: Network, b: Callable[[], Host], lost: Callable[[int], bool]) -> None:
    """Lose the control frames that `b` multicasts from now on, by their number."""
    send, seen = network.send, [0]

    def lossy(sender: HwAddr, destination: Destination, frame: bytes) -> None:
        if sender == b().hwaddr and destination.qpn == 0xFFFFFF:
            seen[0] += 1
            if lost(seen[0] - 1):
                return
        send(sender, destination, frame)

    network.send = lossy  # type: ignore[method-assign]


@pytest.mark.parametrize("which", range(8))
def test_any_single_announcement_or_probe_may_be_lost(which: int) -> None:
    simulation, _, b = pair(1, PERFECT)
    losing(simulation.network, lambda: simulation.hosts[1], lambda n: n == which)
    b = simulation.restart(b, "10.0.0.2/24", "fe80::2/64")
    start = simulation.now
    for version in (b"4", b"6"):
        time_until(simulation, b, b"warm up " + version)
    assert simulation.now - start <= 3.0


def test_with_all_announcements_lost_the_probes_alone_bring_ipv4_back() -> None:
    """The three ARP probes make the others ask the old queue pair, in vain, and then all hosts."""
    simulation, _, b = pair(1, PERFECT)
    # IPv4 probes and one IPv6 probe come first, in the first second
    losing(simulation.network, lambda: simulation.hosts[1], lambda n: n >= 4)
    b = simulation.restart(b, "10.0.0.2/24", "fe80::2/64")
    assert time_until(simulation, b, b"warm up 4") <= 3.2


@pytest.mark.parametrize("seed", range(10))
def test_with_everything_lost_revalidation_finds_it_in_under_a_minute(seed: int) -> None:
    simulation, _, b = pair(seed, PERFECT)
    losing(simulation.network, lambda: simulation.hosts[1], lambda n: True)
    b = simulation.restart(b, "10.0.0.2/24", "fe80::2/64")
    for version in (b"4", b"6"):
        assert time_until(simulation, b, b"warm up " + version) <= 45 + 5 + 3 + 1


def test_a_restarted_host_that_speaks_first_is_reached_at_once() -> None:
    """Its own ARP request or neighbour solicitation updates our entry (R2)."""
    simulation, a, b = pair(1, PERFECT)
    losing(simulation.network, lambda: simulation.hosts[1], lambda n: n < 8)  # no announcement
    b = simulation.restart(b, "10.0.0.2/24", "fe80::2/64")
    simulation.run(1.05)
    b.send(packet(V4[1], V4[0], b"hello"))
    b.send(packet(V6[1], V6[0], b"hello"))
    losing(simulation.network, lambda: simulation.hosts[1], lambda n: False)
    simulation.run(2.2)
    assert a.got(b"hello")
    assert b.got(b"warm up 4")
    assert b.got(b"warm up 6")


@pytest.mark.parametrize("seed", range(5))
def test_an_address_that_moves_to_another_host_is_followed(seed: int) -> None:
    simulation, a, b = pair(seed, TERRIBLE)
    b.kill()
    heir = simulation.host("10.0.0.2/24", "fe80::2/64")
    for version in (b"4", b"6"):
        assert time_until(simulation, heir, b"warm up " + version) <= 5.0
    assert a.counts["address_conflict"] == 0


@pytest.mark.parametrize("seed", range(5))
def test_ten_restarts_in_a_row_are_followed(seed: int) -> None:
    simulation, _, b = pair(seed, TERRIBLE)
    for _ in range(10):
        b = simulation.restart(b, "10.0.0.2/24", "fe80::2/64")
        simulation.run(8)
        assert b.got(b"warm up 4")
        assert b.got(b"warm up 6")
