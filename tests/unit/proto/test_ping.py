# SPDX-License-Identifier: BSD-2-Clause
"""Pings of the link layer: what is asked, which answers count, and why nobody can be asked."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address
from typing import Any

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.proto.effects import Answered, SendFrame
from tests.doubles.simulation import Host, Simulation

OURS, THEIRS = "10.0.0.1", "10.0.0.2"


@pytest.fixture
def pair() -> tuple[Simulation, Host, Host]:
    simulation = Simulation(seed=1)
    a = simulation.host(f"{OURS}/24", "fd00::1/64")
    b = simulation.host(f"{THEIRS}/24", "fd00::2/64")
    simulation.run(5)
    a.effects.clear()
    return simulation, a, b


def ping(simulation: Simulation, host: Host, ip: str, hwaddr: Any = None) -> list[Answered]:
    """Ask once, and return the answers of the next second."""
    host.carry_out(host.engine.pings.ask(simulation.now, ip_address(ip), hwaddr))
    simulation.run(1)
    host.engine.pings.end(ip_address(ip))
    return [it for it in host.effects if isinstance(it, Answered)]


@pytest.mark.parametrize("ip", [THEIRS, "fd00::2"])
def test_an_unknown_host_answers_with_its_hardware_address(
    pair: tuple[Simulation, Host, Host], ip: str
) -> None:
    simulation, a, b = pair
    assert ping(simulation, a, ip) == [Answered(ip_address(ip), b.hwaddr)]


def test_a_host_that_is_known_is_asked_alone(pair: tuple[Simulation, Host, Host]) -> None:
    simulation, a, b = pair
    assert ping(simulation, a, THEIRS, b.hwaddr)
    asked = next(it for it in a.effects if isinstance(it, SendFrame))
    assert asked.destination.gid == b.hwaddr.gid


def test_an_answer_after_the_end_is_no_answer_to_a_ping(
    pair: tuple[Simulation, Host, Host],
) -> None:
    simulation, a, _ = pair
    ping(simulation, a, THEIRS)
    a.effects.clear()
    a.carry_out(a.engine.pings.ask(simulation.now, ip_address(THEIRS)))
    a.engine.pings.end(ip_address(THEIRS))
    simulation.run(1)
    assert not [it for it in a.effects if isinstance(it, Answered)]


def test_silence_has_a_reason(pair: tuple[Simulation, Host, Host]) -> None:
    simulation, a, _ = pair
    assert ping(simulation, a, "10.0.0.9") == []
    assert a.engine.pings.silence(IPv4Address("10.0.0.9"), None) == "no answer"
    assert a.engine.pings.silence(IPv4Address("192.0.2.1"), None) == (
        "no answer, and the address is in no network of this interface"
    )


@pytest.mark.parametrize(
    ("ip", "reason"),
    [
        (OURS, "the address belongs to this interface"),
        ("10.0.0.255", "no single host can have this address"),
        ("224.0.0.1", "no single host can have this address"),
        ("fd00::9", None),
        ("10.0.0.9", None),
    ],
)
def test_an_obstacle_is_named(
    pair: tuple[Simulation, Host, Host], ip: str, reason: str | None
) -> None:
    _, a, _ = pair
    assert a.engine.pings.obstacle(ip_address(ip)) == reason


def test_without_an_own_address_there_is_nothing_to_ask_from() -> None:
    simulation = Simulation(seed=1)
    host = simulation.host("10.0.0.1/24")
    simulation.run(5)
    target: IpAddress = ip_address("fd00::1")
    assert host.engine.pings.obstacle(target) == "the interface has no IPv6 address to ask from"
