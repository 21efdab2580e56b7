# SPDX-License-Identifier: BSD-2-Clause
"""The log of transitions: what it says, at which level, and that floods do not fill it."""

from __future__ import annotations

import logging
from ipaddress import ip_address

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.limits import EVENT_LOGS_BURST
from ipoibu.endpoint.interface.event_log import EventLog
from ipoibu.proto.machine.drops import Drops
from ipoibu.proto.machine.transition import Topic, Transition
from ipoibu.wire import arp
from tests.doubles.engine_bench import OUR_V4, PEER, PEER_AGAIN, PEER_V4, Bench
from tests.doubles.network import PERFECT
from tests.doubles.rc_world import CONFIG, World

TV = "239.1.2.3"

Lines = list[tuple[str, str]]


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def log(now: list[float], caplog: pytest.LogCaptureFixture) -> EventLog:
    caplog.set_level(logging.DEBUG, "ipoibu.endpoint.interface.event_log")
    return EventLog("ib0", lambda: now[0])


def told(log: EventLog, transitions: list[Transition], caplog: pytest.LogCaptureFixture) -> Lines:
    """Give the transitions to the log, and return its lines with their levels."""
    caplog.clear()
    for transition in transitions:
        log.take(transition)
    return [(it.levelname, it.getMessage()) for it in caplog.records]


def test_a_neighbour_is_learnt_moves_and_fails(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.clear()
    bench.host.transitions.clear()
    bench.arp(arp.request(PEER, PEER_V4, OUR_V4))
    bench.arp(arp.request(PEER_AGAIN, PEER_V4, PEER_V4), multicast=True)
    lines = told(log, bench.host.transitions, caplog)
    assert lines == [
        (
            "DEBUG",
            f"ib0: neighbour {PEER_V4} learnt: {PEER}: an unknown peer asked us and gave its address",
        ),
        (
            "WARNING",
            f"ib0: neighbour {PEER_V4} moved from {PEER} to {PEER_AGAIN}: an unsolicited message"
            " gives another address, and overrides",
        ),
    ]


@pytest.mark.parametrize(
    ("before", "hwaddr", "why"),
    [("incomplete", None, "no host answers"), ("probe", PEER, f"{PEER} does not answer")],
)
def test_a_neighbour_that_does_not_answer_has_failed(
    before: str,
    hwaddr: HwAddr | None,
    why: str,
    log: EventLog,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cause = "the state's time is over, and all solicitations are sent"
    failed = Transition(Topic.NEIGHBOUR, PEER_V4, before, "failed", cause, hwaddr=hwaddr)
    assert told(log, [failed], caplog) == [("INFO", f"ib0: neighbour {PEER_V4} failed: {why}")]


def test_a_group_is_joined_and_left(log: EventLog, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.host.transitions.clear()
    bench.host.join(TV)
    bench.run(0.1)
    mgid = bench.host.transitions[-1].subject
    bench.host.leave(TV)
    bench.run(0.1)
    bench.host.join(TV)  # back before the group was left
    bench.run(0.1)
    bench.host.leave(TV)
    bench.run(5)
    assert told(log, bench.host.transitions, caplog) == [
        ("INFO", f"ib0: joined group {mgid}"),
        ("INFO", f"ib0: left group {mgid}: the group has no users"),
    ]


def test_a_refused_group_is_a_warning_for_the_1st_2nd_and_5th_time(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.host.transitions.clear()
    mgid = Gid.parse("ff12:401b:ffff::f01:203")
    bench.host.refused.add(mgid)
    bench.host.join(TV)
    bench.run(70)
    lines = told(log, bench.host.transitions, caplog)
    assert {level for level, _ in lines} == {"WARNING"}
    texts = [text for _, text in lines]
    assert all(text.startswith(f"ib0: cannot join group {mgid}: ") for text in texts)
    assert len(texts) == 3
    assert texts[1].endswith(" (2 times)")
    assert texts[2].endswith(" (5 times)")
    bench.host.refused.clear()
    bench.run(20)
    bench.host.carry_out(bench.host.engine.note_attach_failed(bench.now, mgid, "gone"))
    late = told(log, bench.host.transitions[-2:], caplog)
    assert ("WARNING", f"ib0: cannot join group {mgid}: gone") in late, "the count begins anew"


def test_a_connection_is_made_and_ended_with_the_reason(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(1, PERFECT, CONFIG)
    a, b = world.host(), world.host()
    a.send(b)
    world.run(5)
    b.stop()
    world.run(5)
    lines = told(log, [it for it in a.transitions if it.detail == "active"], caplog)
    peer = HwAddr(b.interface.qpn, b.interface.gid)
    assert lines[:2] == [
        ("INFO", f"ib0: connected to {peer}, active"),
        (
            "INFO",
            f"ib0: the connection to {peer}, active, ended: the connection manager reports the end:"
            " the peer ended the connection",
        ),
    ]


def test_a_connection_that_breaks_or_gets_no_queue_pair_is_a_warning(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Transition(
        Topic.CONNECTION, PEER, "live", "none", "the queue pair failed", detail="active"
    )
    unmade = Transition(
        Topic.CONNECTION,
        PEER,
        "opening",
        "none",
        "the fabric could not make the queue pair",
        detail="active",
        reason="no memory",
    )
    assert told(log, [broken, unmade], caplog) == [
        ("WARNING", f"ib0: the connection to {PEER}, active, ended: the queue pair failed"),
        (
            "WARNING",
            f"ib0: no connection to {PEER}, active: the fabric could not make the queue pair:"
            " no memory",
        ),
    ]


def test_a_malformed_message_names_its_peer_once_a_minute(
    log: EventLog, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    bench.host.transitions.clear()
    for _ in range(3):
        bench.raw(b"\x08\x06\0\0" + b"\0" * 8, PEER)
    (line,) = told(log, bench.host.transitions, caplog)
    assert line == (
        "INFO",
        f"ib0: dropped a message of {PEER.gid} queue pair {PEER.qpn}: arp_hardware"
        " (`ipoibu stats` counts them)",
    )
    assert bench.host.counts["arp_hardware"] == 3
    bench.run(61)
    bench.host.transitions.clear()
    bench.raw(b"\x08\x06\0\0" + b"\0" * 8, PEER)
    assert [it.topic for it in bench.host.transitions] == [Topic.DROP]


def test_drops_of_more_peers_than_we_remember_forget_the_oldest() -> None:
    seen: list[Transition] = []
    drops = Drops(seen.append, cap=2)
    for peer in ("a", "b", "b", "c", "b", "a"):
        drops.note(1.0, peer, "arp_short")
    assert [it.subject for it in seen] == ["a", "b", "c", "a"]


def test_a_flood_leaves_a_bounded_number_of_lines_and_says_how_many_are_missing(
    log: EventLog, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    flood = [
        Transition(
            Topic.NEIGHBOUR,
            ip_address(f"10.0.{n >> 8}.{n & 255}"),
            "none",
            "stale",
            "an unknown peer asked us and gave its address",
            hwaddr=HwAddr(Qpn(n + 2), PEER.gid),
        )
        for n in range(1000)
    ]
    assert len(told(log, flood, caplog)) == EVENT_LOGS_BURST
    now[0] += 1.0
    ((_, text),) = told(log, flood[:1], caplog)
    assert text.endswith(f"({1000 - EVENT_LOGS_BURST:.0f} such lines left out before)")
