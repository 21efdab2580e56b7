# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts with one address: both hosts find the conflict and log it."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface

import pytest

from ipoibu.proto.neigh.dad import State
from tests.doubles.network import PERFECT, TERRIBLE, Faults
from tests.doubles.simulation import Host, Simulation, packet

ADDRESSES = ["10.0.0.7/24", "fe80::7/64", "2001:db8::7/64"]
each_address = pytest.mark.parametrize("address", ADDRESSES)


def state(host: Host, address: str) -> State:
    states = {info.address: info.state for info in host.engine.addresses()}
    return states[ip_interface(address).ip]


@each_address
def test_the_owner_keeps_it_and_the_newcomer_is_notified(address: str) -> None:
    simulation = Simulation(1, PERFECT)
    owner = simulation.host(address)
    simulation.run(10)
    newcomer = simulation.host(address)
    simulation.run(10)
    ip = ip_interface(address).ip
    assert (state(owner, address), state(newcomer, address)) == (State.PREFERRED, State.DUPLICATE)
    assert (owner.verdicts, newcomer.verdicts) == ({ip: False}, {ip: True})
    assert any(f"address {ip} is also used" in line for line in newcomer.log)


@each_address
def test_two_that_ask_at_the_same_time_are_both_notified(address: str) -> None:
    simulation = Simulation(1, PERFECT)
    both = simulation.host("10.0.0.1/24"), simulation.host("10.0.0.2/24")
    for host in both:
        host.join("ff02::1:ff00:7")  # so that neither host has to wait for its group
    simulation.run(10)
    for host in both:
        host.add(ip_interface(address))
    simulation.run(10)
    assert [host.verdicts[ip_interface(address).ip] for host in both] == [True, True]


@pytest.mark.parametrize("seed", range(20))
@each_address
def test_a_conflict_is_announced_on_at_least_one_side_even_if_the_network_is_terrible(
    seed: int, address: str
) -> None:
    simulation = Simulation(seed, TERRIBLE)
    first, second = simulation.host(address), simulation.host(address)
    simulation.run(10)
    logged = [
        state(host, address) is State.DUPLICATE or host.counts["address_conflict"] > 0
        for host in (first, second)
    ]
    assert any(logged)


def split(address: str) -> tuple[Simulation, Host, Host]:
    """Join two halves of a fabric after a host in each has taken the address."""
    simulation = Simulation(1, Faults(drop=1.0))
    first, second = simulation.host(address), simulation.host(address)
    simulation.run(10)
    ip = ip_interface(address).ip
    assert first.verdicts == second.verdicts == {ip: False}
    simulation.network.faults = PERFECT
    return simulation, first, second


def test_a_conflict_that_probing_could_not_see_is_logged_on_both_sides_at_the_first_request() -> (
    None
):
    simulation, first, second = split("10.0.0.7/24")
    first.send(packet("10.0.0.7", "10.0.0.9", b"x"))
    simulation.run(1)
    assert f"address 10.0.0.7 is also used by {second.hwaddr}" in first.log
    assert f"address 10.0.0.7 is also used by {first.hwaddr}" in second.log


@each_address
def test_of_two_owners_the_one_whose_port_blinks_loses(address: str) -> None:
    simulation, first, second = split(address)
    for event in ("down", "up"):
        first.carry_out(first.engine.port_event(simulation.now, event))
    simulation.run(10)
    assert (state(first, address), state(second, address)) == (State.DUPLICATE, State.PREFERRED)


def test_the_owner_of_a_duplicate_is_reached_by_the_host_that_lost() -> None:
    simulation = Simulation(1, PERFECT)
    owner = simulation.host("10.0.0.7/24")
    simulation.run(10)
    loser = simulation.host("10.0.0.7/24", "10.0.0.8/24")
    simulation.run(10)
    loser.send(packet("10.0.0.8", "10.0.0.7", b"to the owner"))
    simulation.run(5)
    assert owner.got(b"to the owner")


@pytest.mark.parametrize("seed", range(5))
def test_an_address_handed_over_in_time_is_no_conflict(seed: int) -> None:
    simulation = Simulation(seed, PERFECT)
    first, second = simulation.host("10.0.0.7/24"), simulation.host("10.0.0.8/24")
    simulation.run(10)
    second.send(packet("10.0.0.8", "10.0.0.7", b"to the first"))
    simulation.run(1)
    first.remove(ip_interface("10.0.0.7/24"))
    second.add(ip_interface("10.0.0.7/24"))
    simulation.run(10)
    assert second.verdicts[ip_address("10.0.0.7")] is False
    assert first.counts["address_conflict"] == second.counts["address_conflict"] == 0
