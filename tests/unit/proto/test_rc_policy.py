# SPDX-License-Identifier: BSD-2-Clause
"""The policy of connected mode, our own connections: when, how, and failures (RFC 4755)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from ipoibu.base.addr import HwAddr, Qpn
from ipoibu.base.limits import (
    CONNECTION_BACKOFF_JITTER,
    CONNECTION_BACKOFF_MAX_S,
    CONNECTION_DISMISSALS_BURST,
    CONNECTION_DISMISSALS_PER_S,
    CONNECTION_IDLE_S,
    CONNECTION_SETTLED_S,
)
from ipoibu.proto.effects import Log
from ipoibu.proto.rc.connection import CloseQp, OpenQp, Profile, ProgramQp
from ipoibu.proto.rc.events import (
    Accept,
    Cause,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Established,
    Handle,
    Reject,
    Replied,
    Role,
)
from ipoibu.proto.rc.peer import TxMode, TxRoute
from ipoibu.wire.cm_code import Reason
from ipoibu.wire.cm_private import Private, ServiceForm, parse_untrusted
from tests.doubles.rc_desk import (
    CONFIG,
    LINUX_MTU,
    OURS,
    PEER,
    PEER_GID,
    SMALLER,
    SUPERFRAME,
    Desk,
    attributes,
    paths,
    pick,
)

# Ours


def test_the_first_packet_makes_a_connection_and_the_others_go_by_datagram_meanwhile() -> None:
    """C1."""
    desk = Desk()
    assert desk.route() == TxRoute(replace(PEER, flags=0), TxMode.UD_NOTIFY)
    effects = desk.want()
    (opened,) = pick(OpenQp, effects)
    assert paths(effects) == [TxMode.UD_CONNECTING]
    assert desk.route().tx_mode is TxMode.UD_CONNECTING
    (connect,) = pick(Connect, desk.open(opened.handle))
    assert connect.handle == opened.handle
    assert connect.service_id == 0x1000000000000049  # C7: Linux's form first
    assert connect.destination.gid == PEER_GID
    assert (connect.qpn, connect.path_mtu_bytes) == (0x100, 2048)
    assert parse_untrusted(connect.private) == Private(OURS.qpn, LINUX_MTU)  # C3, C4
    assert desk.want() == []
    effects = desk.event(Replied(connect.handle, attributes(), Private(PEER.qpn, LINUX_MTU).pack()))
    assert effects == [
        ProgramQp(connect.handle, attributes(), False),
        Confirm(connect.handle),
    ]
    effects = desk.event(Established(connect.handle))
    expected = TxRoute(replace(PEER, flags=0), TxMode.RC, connect.handle, 65520)
    assert pick(TxRoute, effects) == [expected]
    assert desk.route() == expected


def test_a_neighbour_that_does_not_announce_rc_is_left_alone() -> None:
    desk = Desk()
    plain = replace(PEER, flags=0)
    assert desk.want(plain) == [TxRoute(plain, TxMode.UD)]
    assert desk.route(plain).tx_mode is TxMode.UD


def test_flags_do_not_make_another_host() -> None:
    """A6: 0xC0 is RC and UC, the rest is ignored."""
    desk = Desk()
    desk.connect()
    assert desk.route(replace(PEER, flags=0xFF)).tx_mode is TxMode.RC


def test_nothing_happens_while_the_link_is_down() -> None:
    desk = Desk(is_open=False)
    assert desk.want() == [TxRoute(replace(PEER, flags=0), TxMode.UD)]
    assert desk.route().tx_mode is TxMode.UD
    _, effects = desk.request()
    (reject,) = pick(Reject, effects)
    assert reject.reason is Reason.NO_RESOURCES
    assert desk.count("connection_link_down") == 1


def test_the_rfcs_service_id_is_tried_where_linuxs_is_unknown() -> None:
    desk = Desk()
    first = desk.ask()
    effects = desk.event(Ended(first.handle, Cause.NO_SERVICE, 8))
    assert CloseQp(first.handle) in effects
    assert paths(effects) == []
    (opened,) = pick(OpenQp, effects)
    assert opened.handle != first.handle
    (second,) = pick(Connect, desk.open(opened.handle))
    assert second.service_id == 0x0100000000000049
    desk.answer(second)
    assert desk.route().tx_mode is TxMode.RC
    assert desk.open_qps == {second.handle}


def test_where_no_form_is_known_datagrams_have_to_do_for_a_while() -> None:
    desk = Desk()
    asked = desk.ask().handle
    for _ in range(len(ServiceForm) - 1):
        (opened,) = pick(OpenQp, desk.event(Ended(asked, Cause.NO_SERVICE, 8)))
        asked = opened.handle
        desk.open(asked)
    effects = desk.event(Ended(asked, Cause.NO_SERVICE, 8))
    assert pick(OpenQp, effects) == []
    (log,) = pick(Log, effects)
    assert "no service listens there; packets go by datagram for 1 s" in log.text
    assert desk.route().tx_mode is TxMode.UD
    assert desk.want() == []
    assert desk.open_qps == set()
    assert desk.count("connection_failed") == 1


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.NO_SERVICE])
def test_any_other_failure_is_not_tried_with_another_form(cause: Cause) -> None:
    desk = Desk()
    first = desk.ask()
    assert pick(OpenQp, desk.event(Ended(first.handle, cause))) == []
    assert desk.route().tx_mode is TxMode.UD


def test_a_failure_is_tried_again_later_and_later_by_the_next_packet() -> None:
    desk = Desk()
    waits = []
    for _ in range(9):
        desk.event(Ended(desk.ask().handle, Cause.NO_ANSWER))
        start = desk.now
        deadline = desk.connections.deadline()
        assert deadline is not None
        assert paths(desk.wait(deadline - desk.now)) == [TxMode.UD_NOTIFY]
        waits.append(desk.now - start)
    for wait_s, nominal_s in zip(waits, (1, 2, 4, 8, 16, 32, 64, 64, 64), strict=True):
        assert abs(wait_s / nominal_s - 1) <= CONNECTION_BACKOFF_JITTER
    assert len({round(wait_s / 64, 6) for wait_s in waits[-3:]}) == 3  # a crowd spreads out


def test_failures_are_forgotten_after_a_while_without_packets() -> None:
    desk = Desk()
    desk.event(Ended(desk.ask().handle, Cause.NO_ANSWER))
    desk.wait(2)
    desk.event(Ended(desk.ask().handle, Cause.NO_ANSWER))
    desk.wait(3 + 2 * CONNECTION_BACKOFF_MAX_S)
    assert desk.connections.deadline() is None
    desk.event(Ended(desk.ask().handle, Cause.NO_ANSWER))
    assert paths(desk.wait(1 + CONNECTION_BACKOFF_JITTER)) == [TxMode.UD_NOTIFY]


def test_failures_are_logged_ever_more_rarely() -> None:
    desk = Desk()
    for _ in range(20):
        desk.event(Ended(desk.ask().handle, Cause.NO_ANSWER))
        desk.wait(CONNECTION_BACKOFF_MAX_S * 1.3)
    lines = [it.text for it in pick(Log, desk.effects)]
    assert len(lines) == 5  # the 1st, 2nd, 5th, 10th and 20th
    assert desk.count("connection_failed") == 20


def test_no_queue_pair_is_a_failure_like_others() -> None:
    desk = Desk()
    (opened,) = pick(OpenQp, desk.want())
    desk.open_qps.remove(opened.handle)
    desk.note(desk.connections.note_open_failed(desk.now, opened.handle, "none left"))
    assert desk.transitions[-1].reason == "none left"
    assert desk.route().tx_mode is TxMode.UD
    assert desk.count("connection_no_qp") == 1


@pytest.mark.parametrize(
    ("private", "counter"),
    [
        (b"", "cm_private_short"),
        (Private(Qpn(0x49), 72).pack(), "connection_mtu"),
        (Private(Qpn(0x49), 2047).pack(), "connection_mtu"),  # datagrams take 2044 + 4
        (Private(Qpn(0x99), LINUX_MTU).pack(), "connection_other"),
        (bytes.fromhex("00000049 00000004"), "cm_private_mtu"),
        (bytes.fromhex("00ffffff 0000fff4"), "cm_private_qpn"),
    ],
)
def test_a_reply_that_does_not_do_is_rejected(private: bytes, counter: str) -> None:
    """C3: the REJ has our UD queue pair, too."""
    desk = Desk()
    connect = desk.ask()
    effects = desk.event(Replied(connect.handle, attributes(), private))
    (reject,) = pick(Reject, effects)
    assert (reject.handle, reject.reason) == (connect.handle, Reason.CONSUMER)
    assert parse_untrusted(reject.private) == Private(OURS.qpn, LINUX_MTU)
    assert desk.count(counter) == 1
    assert desk.open_qps == set()
    assert desk.route().tx_mode is TxMode.UD


@pytest.mark.parametrize(
    ("profile", "ours", "theirs", "expected"),
    [
        (Profile.LINUX, LINUX_MTU, LINUX_MTU, 65520),
        (Profile.LINUX, LINUX_MTU, 9004, 9000),
        (Profile.LINUX, 9004, LINUX_MTU, 65520),  # per direction: the receiver's limit
        (Profile.RFC, LINUX_MTU, 9004, 9000),
        (Profile.RFC, 9004, LINUX_MTU, 9000),  # min of both
    ],
)
def test_the_mtu_of_a_connection(profile: Profile, ours: int, theirs: int, expected: int) -> None:
    """C5."""
    desk = Desk(replace(CONFIG, profile=profile, receive_mtu_bytes=ours))
    connect = desk.ask()
    assert parse_untrusted(connect.private).receive_mtu_bytes == ours
    desk.answer(connect, theirs=Private(PEER.qpn, theirs))
    assert desk.route().mtu_bytes == expected


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [(0, 0, 0), (SUPERFRAME, 0, 0), (0, SUPERFRAME, 0), (SUPERFRAME, 32784, 32784)],
)
def test_super_frames_need_both_ends(ours: int, theirs: int, expected: int) -> None:
    desk = Desk(replace(CONFIG, superframe_bytes=ours))
    connect = desk.ask()
    assert parse_untrusted(connect.private).superframe_bytes == ours
    effects = desk.answer(connect, theirs=Private(PEER.qpn, LINUX_MTU, theirs))
    (program,) = pick(ProgramQp, effects)
    assert program.has_superframes == bool(expected)
    assert desk.route().superframe_bytes == expected


LONGEST: Final = [
    (0, 0, 2048),
    (8928, 0, 2048),
    (0, 8928, 2048),
    (8928, 1428, 1428),
    (1428, 8928, 1428),
    (8928, 8928, 8192),
]


@pytest.mark.parametrize(("ours", "theirs", "expected"), LONGEST)
def test_packets_are_as_long_as_both_ends_take_them(ours: int, theirs: int, expected: int) -> None:
    desk = Desk(replace(CONFIG, packet_bytes=ours))
    connect = desk.ask()
    assert connect.path_mtu_bytes == CONFIG.path_mtu_bytes  # an MTU of InfiniBand in the REQ
    assert parse_untrusted(connect.private).packet_bytes == ours
    effects = desk.answer(connect, theirs=Private(PEER.qpn, LINUX_MTU, 0, theirs))
    (program,) = pick(ProgramQp, effects)
    assert program.attributes.path_mtu_bytes == expected


@pytest.mark.parametrize(("ours", "theirs", "expected"), LONGEST)
def test_whoever_accepts_takes_packets_as_long_as_both_do(
    ours: int, theirs: int, expected: int
) -> None:
    desk = Desk(replace(CONFIG, packet_bytes=ours))
    handle, _ = desk.request(theirs=Private(PEER.qpn, LINUX_MTU, 0, theirs))
    effects = desk.open(handle)
    (accept,) = pick(Accept, effects)
    (program,) = pick(ProgramQp, effects)
    assert parse_untrusted(accept.private).packet_bytes == (ours if theirs else 0)
    assert program.attributes.path_mtu_bytes == expected


@pytest.mark.parametrize(
    ("ours", "theirs", "declared"),
    [(0, 0, 0), (SUPERFRAME, 0, 0), (0, SUPERFRAME, 0), (SUPERFRAME, 32784, SUPERFRAME)],
)
def test_whoever_accepts_says_no_more_than_was_asked(ours: int, theirs: int, declared: int) -> None:
    """A Linux host that asks gets eight bytes back, and both ends know the form of the messages."""
    desk = Desk(replace(CONFIG, superframe_bytes=ours))
    handle, _ = desk.request(theirs=Private(PEER.qpn, LINUX_MTU, theirs))
    effects = desk.open(handle)
    (accept,) = pick(Accept, effects)
    (program,) = pick(ProgramQp, effects)
    assert parse_untrusted(accept.private).superframe_bytes == declared
    assert program.has_superframes == bool(declared)


# The end of it


def test_a_send_that_fails_soon_is_a_failure() -> None:
    desk = Desk()
    handle = desk.connect()
    effects = desk.note(desk.connections.broken(desk.now, handle))
    assert Disconnect(handle) in effects
    assert CloseQp(handle) in effects
    assert paths(effects) == [TxMode.UD]
    assert desk.want() == []


def test_a_connection_that_fails_at_once_every_time_is_tried_more_and_more_rarely() -> None:
    desk = Desk()
    for nominal_s in (1, 2, 4, 8):
        desk.note(desk.connections.broken(desk.now, desk.connect()))
        start, deadline = desk.now, desk.connections.deadline()
        assert deadline is not None
        desk.wait(deadline - start)
        assert abs((desk.now - start) / nominal_s - 1) <= CONNECTION_BACKOFF_JITTER


def test_a_send_that_fails_late_makes_the_next_packet_try_again() -> None:
    desk = Desk()
    handle = desk.connect()
    desk.wait(CONNECTION_SETTLED_S)
    effects = desk.note(desk.connections.broken(desk.now, handle))
    assert Disconnect(handle) in effects
    assert paths(effects) == [TxMode.UD_NOTIFY]
    assert pick(OpenQp, desk.want()) != []


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("after_s", [0.0, CONNECTION_SETTLED_S])
def test_a_peer_that_disconnects_gets_another_connection_with_the_next_packet(
    after_s: float, profile: Profile
) -> None:
    """It has flushed its neighbours, or starts anew: that is no failure, and what is too long for a datagram
    waits for the connection."""
    desk = Desk(replace(CONFIG, profile=profile))
    for _ in range(CONNECTION_DISMISSALS_BURST):
        handle = desk.connect()
        desk.wait(after_s)
        effects = desk.event(Ended(handle, Cause.DISCONNECTED))
        assert pick(Disconnect, effects) == []
        assert paths(effects) == [TxMode.UD_NOTIFY]
        assert desk.open_qps == set()
    assert desk.count("connection_failed") == 0


def test_a_peer_that_disconnects_again_and_again_is_left_alone_for_a_while() -> None:
    desk = Desk()
    for _ in range(CONNECTION_DISMISSALS_BURST):
        desk.event(Ended(desk.connect(), Cause.DISCONNECTED))
    effects = desk.event(Ended(desk.connect(), Cause.DISCONNECTED))
    assert paths(effects) == [TxMode.UD]
    assert desk.want() == []
    assert desk.count("connection_failed") == 1
    desk.wait(4 * CONNECTION_BACKOFF_MAX_S)
    for _ in range(4 * CONNECTION_DISMISSALS_BURST):
        desk.event(Ended(desk.connect(), Cause.DISCONNECTED))
        assert desk.route().tx_mode is TxMode.UD_NOTIFY
        desk.wait(1 / CONNECTION_DISMISSALS_PER_S)


def test_a_peer_that_disconnected_once_is_forgotten_after_a_while() -> None:
    desk = Desk()
    desk.event(Ended(desk.connect(), Cause.DISCONNECTED))
    desk.wait(2 * CONNECTION_BACKOFF_MAX_S)
    assert desk.connections.deadline() is None


@pytest.mark.parametrize("cause", [Cause.BROKEN, Cause.STALE, Cause.NO_ANSWER])
def test_an_end_that_nobody_wanted_is_a_failure(cause: Cause) -> None:
    desk = Desk()
    assert paths(desk.event(Ended(desk.connect(), cause))) == [TxMode.UD]


def test_an_idle_connection_is_closed_and_the_next_packet_makes_another() -> None:
    """C10: 512 s, as in Linux, and twice as long on the passive side."""
    desk = Desk()
    handle, theirs = desk.connect(), desk.accept()
    desk.wait(CONNECTION_IDLE_S - 1)
    desk.note(desk.connections.active(desk.now, [theirs]))
    effects = desk.wait(1)
    assert pick(Disconnect, effects) == [Disconnect(handle)]
    assert paths(effects) == [TxMode.UD_NOTIFY]
    desk.wait(2 * CONNECTION_IDLE_S - 2)
    assert desk.open_qps == {theirs}
    desk.wait(1)
    assert desk.open_qps == set()
    assert pick(OpenQp, desk.want()) != []


def test_how_long_a_connection_may_idle_is_configured() -> None:
    desk = Desk(replace(CONFIG, idle_s=3.0))
    handle = desk.connect()
    desk.wait(2.5)
    desk.note(desk.connections.active(desk.now, [handle]))
    assert pick(Disconnect, desk.wait(2.5)) == []
    assert pick(Disconnect, desk.wait(0.5)) == [Disconnect(handle)]


def test_activity_of_what_is_gone_or_not_there_yet_is_ignored() -> None:
    desk = Desk()
    connect = desk.ask()
    late = [connect.handle, Handle(Role.PASSIVE, 99)]
    assert desk.note(desk.connections.active(desk.now, late)) == []


def test_the_link_goes_down_with_every_connection() -> None:
    """C10."""
    desk = Desk()
    handle, theirs = desk.connect(), desk.accept()
    (asked, *_) = (desk.ask(SMALLER).handle,)
    invited, _ = desk.request(HwAddr(Qpn(0x77), PEER_GID))
    effects = desk.note(desk.connections.close(desk.now))
    assert {it.handle for it in pick(Disconnect, effects)} == {handle, theirs, asked}
    assert [it.handle for it in pick(Reject, effects)] == [invited]
    assert desk.open_qps == set()
    assert desk.connections.deadline() is None
    assert len(desk.connections) == 0
    assert desk.want() == [TxRoute(replace(PEER, flags=0), TxMode.UD)]


def test_answers_that_come_too_late_are_nobodys() -> None:
    desk = Desk()
    (opened,) = pick(OpenQp, desk.want())
    desk.note(desk.connections.forget(desk.now, PEER))
    handle = opened.handle
    assert desk.note(desk.connections.note_opened(desk.now, handle, Qpn(5))) == []
    assert desk.note(desk.connections.note_open_failed(desk.now, handle, "late")) == []
    assert desk.note(desk.connections.broken(desk.now, handle)) == []
    assert desk.event(Ended(handle, Cause.NO_ANSWER)) == []
    assert desk.event(Established(handle)) == []
