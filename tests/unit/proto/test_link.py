# SPDX-License-Identifier: BSD-2-Clause
"""The link: how it opens and closes, and the state afterwards."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from ipoibu.base.addr import HwAddr, Qpn
from ipoibu.base.limits import NEIGH_PENDING_BYTES, WAITING_OVERHEAD_BYTES
from ipoibu.proto.effects import Attach, Count, Detach, NeighAction
from ipoibu.wire import arp
from ipoibu.wire.mgid import LIMITED_BROADCAST, of_group
from tests.doubles.engine_bench import OUR_V4, PEER, PEER_V4, Bench
from tests.doubles.simulation import TEMPLATE

FULL_QUEUE = NEIGH_PENDING_BYTES // (24 + WAITING_OVERHEAD_BYTES)
BROADCAST = of_group(LIMITED_BROADCAST, TEMPLATE.params.pkey)


def busy() -> Bench:
    """A busy host: a known neighbour, one under resolution, groups of both kinds."""
    bench = Bench()
    bench.send(str(PEER_V4))
    bench.arp(arp.Arp(arp.REPLY, PEER, PEER_V4, bench.host.hwaddr, OUR_V4))
    for _ in range(FULL_QUEUE + 1):
        bench.send("10.0.0.9")
    bench.host.join("239.1.1.1")
    bench.send("239.2.2.2")
    bench.run(0.1)
    bench.clear()
    return bench


def test_nothing_but_the_broadcast_group_is_asked_for_until_it_is_joined() -> None:
    bench = Bench(ready=False)
    bench.host.refused.add(BROADCAST)
    bench.run(60)
    assert {e.mgid for e in bench.host.effects if isinstance(e, Attach)} == {BROADCAST}
    assert bench.sent == []
    assert not bench.host.engine.is_up
    bench.send(str(PEER_V4))
    assert bench.host.counts["link_down"] == 1
    bench.host.refused.clear()
    bench.run(20)
    assert bench.host.engine.is_up
    assert bench.action("255.255.255.255") is NeighAction.SEND


def test_frames_before_the_link_is_up_are_counted_and_dropped() -> None:
    bench = Bench(ready=False)
    bench.arp(arp.request(PEER, PEER_V4, OUR_V4))
    assert bench.host.counts == {"link_down": 1}


@pytest.mark.parametrize("how", ["stop", "down"])
def test_a_link_that_goes_leaves_nothing_in_the_pump_the_fabric_or_the_clock(how: str) -> None:
    bench = busy()
    assert bench.action("10.0.0.9") is NeighAction.HOLD
    engine = bench.host.engine
    effects = engine.stop(bench.now) if how == "stop" else engine.port_event(bench.now, how)
    bench.host.carry_out(effects)
    assert bench.host.table == {}
    assert bench.host.groups == set()
    assert engine.deadline() is None
    assert engine.neighbours(bench.now) == []
    assert bench.host.counts["neigh_unresolved"] == FULL_QUEUE


def test_a_link_that_comes_back_joins_what_is_wanted_and_resolves_anew() -> None:
    bench = busy()
    groups = set(bench.host.groups)
    for event in ("down", "up"):
        bench.host.carry_out(bench.host.engine.port_event(bench.now, event))
    bench.run(10)
    assert bench.host.groups == groups
    assert next(e for e in bench.host.effects if isinstance(e, Attach)) == Attach(BROADCAST)
    bench.send(str(PEER_V4))
    assert bench.neighbour(str(PEER_V4)) is not None


def test_a_new_gid_is_announced_and_used_from_then_on() -> None:
    bench = busy()
    moved = HwAddr(Qpn(0x99), PEER.gid)
    bench.host.carry_out(bench.host.engine.port_event(bench.now, "gid", moved))
    assert Detach(BROADCAST) in bench.host.effects
    bench.clear()
    bench.run(10)
    assert {m.sender_hwaddr for _, m in bench.sent_arp()} == {moved}


def test_events_of_the_port_in_states_that_know_already_change_nothing() -> None:
    bench = Bench()
    engine = bench.host.engine
    assert engine.port_event(bench.now, "up") == []
    bench.host.carry_out(engine.port_event(bench.now, "down"))
    bench.clear()
    assert engine.port_event(bench.now, "down") == []
    assert engine.port_event(bench.now, "gid") == []
    bench.host.carry_out(engine.stop(bench.now))
    assert engine.stop(bench.now) == []
    assert engine.port_event(bench.now, "up") == []


def test_an_engine_that_was_stopped_can_be_started_again() -> None:
    bench = Bench()
    for _ in range(3):
        bench.host.carry_out(bench.host.engine.stop(bench.now))
        bench.host.carry_out(bench.host.engine.start(bench.now))
        bench.run(5)
        assert bench.host.engine.is_up
        assert all(not duplicate for duplicate in bench.host.verdicts.values())


def test_what_happens_to_a_link_that_is_joining_ends_the_attempt() -> None:
    for event, expected in (
        ("down", [Detach(BROADCAST)]),
        ("gid", [Detach(BROADCAST), Attach(BROADCAST)]),
        ("stop", [Detach(BROADCAST)]),
    ):
        bench = Bench(ready=False)
        engine = bench.host.engine
        effects = engine.stop(0.0) if event == "stop" else engine.port_event(0.0, event)
        assert [e for e in effects if isinstance(e, Attach | Detach)] == expected


def test_an_unknown_port_event_is_the_caller_s_mistake() -> None:
    with pytest.raises(ValueError, match="'sideways' is not a port event"):
        Bench().host.engine.port_event(0.0, "sideways")


def test_a_late_answer_about_the_broadcast_group_does_not_open_a_closed_link() -> None:
    bench = Bench()
    bench.host.carry_out(bench.host.engine.port_event(bench.now, "down"))
    bench.host.carry_out(bench.host.engine.note_attached(bench.now, BROADCAST))
    assert not bench.host.engine.is_up
    assert bench.host.engine.miss(bench.now, ip_address("10.0.0.5"), b"") == [Count("link_down")]
