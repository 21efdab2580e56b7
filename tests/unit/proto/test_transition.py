# SPDX-License-Identifier: BSD-2-Clause
"""The engine shows its observer every change of state, with its cause."""

from __future__ import annotations

from dataclasses import replace

from ipoibu.base.addr import Gid, Qpn
from ipoibu.base.ib import Destination
from ipoibu.endpoint.interface.transitions import Transitions
from ipoibu.proto.effects import SendFrame
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.machine.transition import Topic, Transition
from ipoibu.proto.sa.path import PathTable
from tests.doubles.network import PERFECT
from tests.doubles.rc_world import CONFIG, World
from tests.doubles.simulation import Simulation, packet


def test_a_ping_shows_the_link_the_address_the_groups_and_the_neighbour() -> None:
    simulation = Simulation(seed=1)
    a = simulation.host("10.0.0.1/24")
    seen = a.transitions
    b = simulation.host("10.0.0.2/24")
    simulation.run(5)
    links = [(it.before, it.after) for it in seen if it.topic is Topic.LINK]
    assert links[-1] == ("joining", "up")
    addresses = [it.after for it in seen if it.topic is Topic.ADDRESS]
    assert addresses[-2:] == ["announcing", "preferred"]
    groups = {(it.detail, it.after) for it in seen if it.topic is Topic.GROUP}
    assert ("full", "member") in groups
    seen.clear()
    a.send(packet("10.0.0.1", "10.0.0.2", b"hello"))
    assert simulation.run_until(lambda: b.got(b"hello"), 10)
    neighbours = [it for it in seen if it.topic is Topic.NEIGHBOUR]
    assert [(it.before, it.after) for it in neighbours][:2] == [
        ("none", "incomplete"),
        ("incomplete", "reachable"),
    ]
    assert neighbours[0].cause == "the pump has no entry for a packet"
    assert neighbours[1].hwaddr is not None
    assert str(neighbours[1].subject) == "10.0.0.2"


def test_a_connection_shows_its_life_under_the_peers_address() -> None:
    world = World(1, PERFECT, CONFIG)
    a, b = world.host(), world.host()
    a.send(b)
    world.run(5)
    a.stop()
    ours = [it for it in a.transitions if it.detail == "active"]
    assert [it.after for it in ours] == ["opening", "asking", "live", "none"]
    assert {it.topic for it in ours} == {Topic.CONNECTION}
    assert {it.subject for it in ours} == {replace(b.interface, flags=0)}


def test_a_refused_path_shows_the_administrators_reason() -> None:
    seen: list[Transition] = []
    gid = Gid.parse("fe80::10:5")
    paths = PathTable(Timers(), observe=seen.append)
    paths.pass_on(0.0, [SendFrame(Destination(gid, Qpn(0x48)), b"")])
    paths.note_refused(0.0, gid, "no such port")
    assert [(it.before, it.after) for it in seen] == [("none", "asked"), ("asked", "backoff")]
    assert seen[1].cause == "no such port"


def test_a_sink_that_fails_gets_nothing_more_and_the_others_go_on() -> None:
    transitions, seen = Transitions(), list[Transition]()

    def fail(transition: Transition) -> None:
        raise RuntimeError("a defect")

    transitions.add(fail)
    transitions.add(seen.append)
    for _ in range(2):
        transitions.note(Transition(Topic.LINK, "", "joining", "up", ""))
    assert len(seen) == 2
