# SPDX-License-Identifier: BSD-2-Clause
"""Groups among hosts: exactly the members receive, even if the fabric refuses the group at first."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from ipoibu.wire import igmp, mld
from ipoibu.wire.membership import Filter, Record
from ipoibu.wire.mgid import of_group
from tests.doubles.network import PERFECT, TERRIBLE
from tests.doubles.simulation import PARAMS, Simulation, packet

TV = ip_address("239.1.2.3")
TV6 = ip_address("ff15::77")


def test_members_hear_and_others_do_not_and_the_sender_hears_no_echo() -> None:
    simulation = Simulation(1, PERFECT)
    members = [simulation.host(f"10.0.0.{i}/24", f"fe80::{i}/64") for i in range(1, 9)]
    simulation.run(5)
    for member in members[:4]:
        member.report(igmp.report(ip_address("10.0.0.1"), [Record(TV, Filter.TO_EXCLUDE)]).pack())  # type: ignore[arg-type]
        member.report(mld.report(ip_address("fe80::1"), [Record(TV6, Filter.TO_EXCLUDE)]).pack())  # type: ignore[arg-type]
    simulation.run(1)
    members[0].send(packet("10.0.0.1", str(TV), b"four"))
    members[0].send(packet("fe80::1", str(TV6), b"six"))
    simulation.run(1)
    for text in (b"four", b"six"):
        assert [m.got(text) for m in members] == [False] + [True] * 3 + [False] * 4


def test_broadcast_reaches_everybody_without_any_join() -> None:
    simulation = Simulation(1, PERFECT)
    members = [simulation.host(f"10.0.0.{i}/24") for i in range(1, 17)]
    simulation.run(5)
    members[3].send(packet("10.0.0.4", "255.255.255.255", b"limited"))
    members[3].send(packet("10.0.0.4", "10.0.0.255", b"directed"))
    simulation.run(1)
    for text in (b"limited", b"directed"):
        assert [m.got(text) for m in members].count(True) == 15


@pytest.mark.parametrize("seed", range(10))
def test_a_fabric_that_refuses_for_a_minute_is_asked_until_it_does_not(seed: int) -> None:
    simulation = Simulation(seed, TERRIBLE)
    a, b = simulation.host("10.0.0.1/24"), simulation.host("10.0.0.2/24")
    simulation.run(5)
    mgid = of_group(TV, PARAMS.pkey)
    b.refused.add(mgid)
    b.join(str(TV))
    simulation.run(60)
    assert mgid not in b.groups
    b.refused.clear()
    simulation.run(16.1)
    assert mgid in b.groups
    for i in range(20):
        a.send(packet("10.0.0.1", str(TV), b"picture %d" % i))
        simulation.run(0.1)
    simulation.run(1)
    assert sum(b.got(b"picture %d" % i) for i in range(20)) > 10


def test_a_refused_broadcast_group_keeps_the_link_down_and_then_it_works() -> None:
    simulation = Simulation(1, PERFECT)
    a, b = simulation.host("10.0.0.1/24"), simulation.host("10.0.0.2/24")
    broadcast = of_group(ip_address("255.255.255.255"), PARAMS.pkey)
    a.refused.add(broadcast)
    simulation.run(30)
    assert not a.engine.is_up
    a.refused.clear()
    simulation.run(30)
    a.send(packet("10.0.0.1", "10.0.0.2", b"late"))
    simulation.run(1)
    assert b.got(b"late")


def test_many_idle_groups_are_all_forgotten() -> None:
    simulation = Simulation(1, PERFECT)
    a = simulation.host("10.0.0.1/24")
    simulation.run(5)
    for i in range(500):
        a.send(packet("10.0.0.1", f"239.1.{i // 250}.{i % 250}", b"x"))
    assert len(a.engine.groups(simulation.now)) == 503
    simulation.run(130)
    assert len(a.engine.groups(simulation.now)) == 3
    assert list(a.table) == [ip_address("255.255.255.255")]
