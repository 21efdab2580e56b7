# SPDX-License-Identifier: BSD-2-Clause
"""The policy of connected mode: when, with whom, by which connection, and what if not (RFC 4755)."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipoibu.addr import RC_FLAG, Gid, HwAddr, Qpn
from ipoibu.fabric.base import Destination
from ipoibu.limits import (
    CONNECTION_BACKOFF_JITTER,
    CONNECTION_BACKOFF_MAX_S,
    CONNECTION_EVICTABLE_S,
    CONNECTION_IDLE_S,
    CONNECTION_SETTLED_S,
)
from ipoibu.proto import channel
from ipoibu.proto.channel import (
    CloseQp,
    ConnectionConfig,
    ConnectionEffect,
    OpenQp,
    Profile,
    ProgramQp,
)
from ipoibu.proto.connection import Connections
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.peer import Route, Way
from ipoibu.proto.rc import (
    Accept,
    Cause,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Established,
    Handle,
    RcAttributes,
    Reject,
    Replied,
    Requested,
    Role,
)
from ipoibu.proto.table import Impossible
from ipoibu.wire.cm_code import Reason
from ipoibu.wire.cm_private import Private, ServiceForm, parse_untrusted, service_id

T = TypeVar("T")

GID: Final = Gid.parse("fe80::215:5dff:fd33:ff0b")
OURS: Final = HwAddr(Qpn(0x48), GID, RC_FLAG)
PEER_GID: Final = Gid.parse("fe80::215:5dff:fd33:ff0c")
PEER: Final = HwAddr(Qpn(0x49), PEER_GID, RC_FLAG)
SMALLER: Final = HwAddr(Qpn(0x47), PEER_GID, RC_FLAG)
CONFIG: Final = ConnectionConfig(OURS, 2044, 2048)
RFC: Final = replace(CONFIG, profile=Profile.RFC)
LINUX_MTU: Final = 65524
SUPERFRAME: Final = 65552


def attributes(qpn: int = 0x5A) -> RcAttributes:
    return RcAttributes(Destination(PEER_GID, Qpn(qpn)), 2048, 1, 2, 18)


class Desk:
    """A policy with what it asked for so far; queue pairs and the manager answer as a test says."""

    def __init__(self, config: ConnectionConfig = CONFIG, *, is_open: bool = True) -> None:
        self.connections = Connections(config, random.Random(1))
        self.now = 1000.0
        self.effects: list[ConnectionEffect] = []
        self.open_qps: set[Handle] = set()
        self._qpns = itertools.count(0x100)
        self._passive = itertools.count()
        if is_open:
            self.note(self.connections.open(self.now))

    def note(self, effects: list[ConnectionEffect]) -> list[ConnectionEffect]:
        for effect in effects:
            if isinstance(effect, OpenQp):
                assert effect.handle not in self.open_qps
                self.open_qps.add(effect.handle)
            elif isinstance(effect, CloseQp):
                self.open_qps.remove(effect.handle)
        self.effects += effects
        return effects

    def want(self, hwaddr: HwAddr = PEER) -> list[ConnectionEffect]:
        to = Destination(hwaddr.gid, hwaddr.qpn)
        return self.note(self.connections.wanted(self.now, hwaddr, to))

    def open(self, handle: Handle) -> list[ConnectionEffect]:
        return self.note(self.connections.opened(self.now, handle, Qpn(next(self._qpns))))

    def hear(self, event: Requested | Replied | Established | Ended) -> list[ConnectionEffect]:
        return self.note(self.connections.event(self.now, event))

    def wait(self, seconds: float) -> list[ConnectionEffect]:
        until, happened = self.now + seconds, []
        while (at := self.connections.deadline()) is not None and at <= until:
            self.now = at
            happened += self.note(self.connections.timer(at))
        self.now = until
        return happened

    def ask(self, hwaddr: HwAddr = PEER) -> Connect:
        """Up to our request."""
        (opened,) = pick(OpenQp, self.want(hwaddr))
        (connect,) = pick(Connect, self.open(opened.handle))
        return connect

    def answer(
        self, connect: Connect, hwaddr: HwAddr = PEER, theirs: Private | None = None
    ) -> list[ConnectionEffect]:
        said = theirs or Private(hwaddr.qpn, LINUX_MTU)
        private = said.pack().ljust(196, b"\0")
        effects = self.hear(Replied(connect.handle, attributes(), private))
        if pick(Confirm, effects):
            effects = effects + self.hear(Established(connect.handle))
        return effects

    def connect(self, hwaddr: HwAddr = PEER) -> Handle:
        connect = self.ask(hwaddr)
        self.answer(connect, hwaddr)
        return connect.handle

    def request(
        self, hwaddr: HwAddr = PEER, theirs: Private | None = None
    ) -> tuple[Handle, list[ConnectionEffect]]:
        """A peer's request, shown to the policy."""
        handle = Handle(Role.PASSIVE, next(self._passive))
        said = theirs or Private(hwaddr.qpn, LINUX_MTU)
        private = said.pack().ljust(92, b"\0")
        wanted = service_id(ServiceForm.LINUX, OURS.qpn)
        return handle, self.hear(Requested(handle, hwaddr.gid, wanted, attributes(), private))

    def accept(self, hwaddr: HwAddr = PEER) -> Handle:
        """A peer's request, up to its establishment."""
        handle, _ = self.request(hwaddr)
        self.open(handle)
        self.hear(Established(handle))
        return handle

    def route(self, hwaddr: HwAddr = PEER) -> Route:
        return self.connections.route(hwaddr)

    def count(self, reason: str) -> int:
        return sum(it == Count(reason) for it in self.effects)


def pick(kind: type[T], effects: list[ConnectionEffect]) -> list[T]:
    return [it for it in effects if isinstance(it, kind)]


def ways(effects: list[ConnectionEffect]) -> list[Way]:
    return [route.way for route in pick(Route, effects)]


# Ours


def test_the_first_packet_makes_a_connection_and_the_others_go_by_datagram_meanwhile() -> None:
    desk = Desk()
    assert desk.route() == Route(replace(PEER, flags=0), Way.WATCHED)
    effects = desk.want()
    (opened,) = pick(OpenQp, effects)
    assert ways(effects) == [Way.DATAGRAM]
    assert desk.route().way is Way.DATAGRAM
    (connect,) = pick(Connect, desk.open(opened.handle))
    assert connect.handle == opened.handle
    assert connect.service_id == 0x1000000000000049  # C7: Linux's form first
    assert connect.destination.gid == PEER_GID
    assert (connect.qpn, connect.path_mtu_bytes) == (0x100, 2048)
    assert parse_untrusted(connect.private) == Private(OURS.qpn, LINUX_MTU)  # C3, C4
    assert desk.want() == []
    effects = desk.hear(Replied(connect.handle, attributes(), Private(PEER.qpn, LINUX_MTU).pack()))
    assert effects == [
        ProgramQp(connect.handle, attributes(), False),
        Confirm(connect.handle),
    ]
    effects = desk.hear(Established(connect.handle))
    expected = Route(replace(PEER, flags=0), Way.CONNECTION, connect.handle, 65520)
    assert pick(Route, effects) == [expected]
    assert desk.route() == expected


def test_a_neighbour_that_does_not_announce_rc_is_left_alone() -> None:
    desk = Desk()
    plain = replace(PEER, flags=0)
    assert desk.want(plain) == []
    assert desk.route(plain).way is Way.DATAGRAM


def test_flags_do_not_make_another_station() -> None:
    """A6: 0xC0 is RC and UC, the rest is ignored."""
    desk = Desk()
    desk.connect()
    assert desk.route(replace(PEER, flags=0xFF)).way is Way.CONNECTION


def test_nothing_happens_while_the_link_is_down() -> None:
    desk = Desk(is_open=False)
    assert desk.want() == []
    assert desk.route().way is Way.DATAGRAM
    _, effects = desk.request()
    (reject,) = pick(Reject, effects)
    assert reject.reason is Reason.NO_RESOURCES
    assert desk.count("connection_link_down") == 1


def test_the_rfcs_service_id_is_tried_where_linuxs_is_unknown() -> None:
    desk = Desk()
    first = desk.ask()
    effects = desk.hear(Ended(first.handle, Cause.NO_SERVICE, 8))
    assert CloseQp(first.handle) in effects
    assert ways(effects) == []
    (opened,) = pick(OpenQp, effects)
    assert opened.handle != first.handle
    (second,) = pick(Connect, desk.open(opened.handle))
    assert second.service_id == 0x0100000000000049
    desk.answer(second)
    assert desk.route().way is Way.CONNECTION
    assert desk.open_qps == {second.handle}


def test_where_no_form_is_known_datagrams_have_to_do_for_a_while() -> None:
    desk = Desk()
    first = desk.ask()
    (opened,) = pick(OpenQp, desk.hear(Ended(first.handle, Cause.NO_SERVICE, 8)))
    desk.open(opened.handle)
    effects = desk.hear(Ended(opened.handle, Cause.NO_SERVICE, 8))
    assert pick(OpenQp, effects) == []
    (log,) = pick(Log, effects)
    assert "nobody listens there; by datagram for 1 s" in log.text
    assert desk.route().way is Way.DATAGRAM
    assert desk.want() == []
    assert desk.open_qps == set()
    assert desk.count("connection_failed") == 1


@pytest.mark.parametrize("cause", set(Cause) - {Cause.NO_SERVICE})
def test_any_other_failure_is_not_tried_with_another_form(cause: Cause) -> None:
    desk = Desk()
    first = desk.ask()
    assert pick(OpenQp, desk.hear(Ended(first.handle, cause))) == []
    assert desk.route().way is Way.DATAGRAM


def test_a_failure_is_tried_again_later_and_later_by_the_next_packet() -> None:
    desk = Desk()
    waits = []
    for _ in range(9):
        desk.hear(Ended(desk.ask().handle, Cause.NO_ANSWER))
        start = desk.now
        deadline = desk.connections.deadline()
        assert deadline is not None
        assert ways(desk.wait(deadline - desk.now)) == [Way.WATCHED]
        waits.append(desk.now - start)
    for wait_s, nominal_s in zip(waits, (1, 2, 4, 8, 16, 32, 64, 64, 64), strict=True):
        assert abs(wait_s / nominal_s - 1) <= CONNECTION_BACKOFF_JITTER
    assert len({round(wait_s / 64, 6) for wait_s in waits[-3:]}) == 3  # a crowd spreads out


def test_failures_are_forgotten_after_a_while_without_packets() -> None:
    desk = Desk()
    desk.hear(Ended(desk.ask().handle, Cause.NO_ANSWER))
    desk.wait(2)
    desk.hear(Ended(desk.ask().handle, Cause.NO_ANSWER))
    desk.wait(3 + 2 * CONNECTION_BACKOFF_MAX_S)
    assert desk.connections.deadline() is None
    desk.hear(Ended(desk.ask().handle, Cause.NO_ANSWER))
    assert ways(desk.wait(1 + CONNECTION_BACKOFF_JITTER)) == [Way.WATCHED]


def test_the_log_tells_of_failures_ever_more_rarely() -> None:
    desk = Desk()
    for _ in range(20):
        desk.hear(Ended(desk.ask().handle, Cause.NO_ANSWER))
        desk.wait(CONNECTION_BACKOFF_MAX_S * 1.3)
    lines = [it.text for it in pick(Log, desk.effects)]
    assert len(lines) == 5  # the 1st, 2nd, 5th, 10th and 20th
    assert desk.count("connection_failed") == 20


def test_no_queue_pair_is_a_failure_like_others() -> None:
    desk = Desk()
    (opened,) = pick(OpenQp, desk.want())
    desk.open_qps.remove(opened.handle)
    effects = desk.note(desk.connections.open_failed(desk.now, opened.handle, "none left"))
    assert any("none left" in it.text for it in pick(Log, effects))
    assert desk.route().way is Way.DATAGRAM
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
    desk = Desk()
    connect = desk.ask()
    effects = desk.hear(Replied(connect.handle, attributes(), private))
    (reject,) = pick(Reject, effects)
    assert (reject.handle, reject.reason) == (connect.handle, Reason.CONSUMER)
    assert parse_untrusted(reject.private) == Private(OURS.qpn, LINUX_MTU)  # C3
    assert desk.count(counter) == 1
    assert desk.open_qps == set()
    assert desk.route().way is Way.DATAGRAM


@pytest.mark.parametrize(
    ("profile", "ours", "theirs", "expected"),
    [
        (Profile.LINUX, LINUX_MTU, LINUX_MTU, 65520),
        (Profile.LINUX, LINUX_MTU, 9004, 9000),
        (Profile.LINUX, 9004, LINUX_MTU, 65520),  # per direction: what the receiver said
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


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [(0, 0, 0), (SUPERFRAME, 0, 0), (0, SUPERFRAME, 0), (SUPERFRAME, 32784, SUPERFRAME)],
)
def test_whoever_accepts_says_no_more_than_was_asked(ours: int, theirs: int, said: int) -> None:
    """A Linux that asks gets eight bytes back, and both ends know what the messages look like."""
    desk = Desk(replace(CONFIG, superframe_bytes=ours))
    handle, _ = desk.request(theirs=Private(PEER.qpn, LINUX_MTU, theirs))
    effects = desk.open(handle)
    (accept,) = pick(Accept, effects)
    (program,) = pick(ProgramQp, effects)
    assert parse_untrusted(accept.private).superframe_bytes == said
    assert program.has_superframes == bool(said)


# The end of it


def test_a_send_that_fails_soon_is_a_failure() -> None:
    desk = Desk()
    handle = desk.connect()
    effects = desk.note(desk.connections.broken(desk.now, handle))
    assert Disconnect(handle) in effects
    assert CloseQp(handle) in effects
    assert ways(effects) == [Way.DATAGRAM]
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
    assert ways(effects) == [Way.WATCHED]
    assert pick(OpenQp, desk.want()) != []


@pytest.mark.parametrize(
    ("after_s", "way"), [(0.0, Way.DATAGRAM), (CONNECTION_SETTLED_S, Way.WATCHED)]
)
def test_a_peer_that_disconnects_is_reached_by_datagram(after_s: float, way: Way) -> None:
    desk = Desk()
    handle = desk.connect()
    desk.wait(after_s)
    effects = desk.hear(Ended(handle, Cause.DISCONNECTED))
    assert pick(Disconnect, effects) == []
    assert ways(effects) == [way]
    assert desk.open_qps == set()


def test_an_idle_connection_is_closed_and_the_next_packet_makes_another() -> None:
    """C10, 512 s as Linux has it; in either role."""
    desk = Desk()
    handle, theirs = desk.connect(), desk.accept()
    desk.wait(CONNECTION_IDLE_S - 1)
    desk.note(desk.connections.active(desk.now, [theirs]))
    effects = desk.wait(1)
    assert pick(Disconnect, effects) == [Disconnect(handle)]
    assert ways(effects) == [Way.WATCHED]
    desk.wait(CONNECTION_IDLE_S - 2)
    assert desk.open_qps == {theirs}
    desk.wait(1)
    assert desk.open_qps == set()
    assert pick(OpenQp, desk.want()) != []


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
    assert desk.want() == []


def test_answers_that_come_too_late_are_nobodys() -> None:
    desk = Desk()
    (opened,) = pick(OpenQp, desk.want())
    desk.note(desk.connections.forget(desk.now, PEER))
    handle = opened.handle
    assert desk.note(desk.connections.opened(desk.now, handle, Qpn(5))) == []
    assert desk.note(desk.connections.open_failed(desk.now, handle, "late")) == []
    assert desk.note(desk.connections.broken(desk.now, handle)) == []
    assert desk.hear(Ended(handle, Cause.NO_ANSWER)) == []
    assert desk.hear(Established(handle)) == []


# Theirs


def test_a_request_is_accepted_when_its_queue_pair_is_ready_and_not_before() -> None:
    desk = Desk()
    handle, effects = desk.request()
    assert effects == [OpenQp(handle)]
    (program, accept) = desk.open(handle)
    assert program == ProgramQp(handle, attributes(), False)
    assert accept == Accept(handle, Qpn(0x100), Private(OURS.qpn, LINUX_MTU).pack())
    effects = desk.hear(Established(handle))
    assert pick(Route, effects) == []  # linux: they send by it, we do not
    assert desk.route().way is Way.WATCHED


def test_in_the_linux_profile_each_side_has_its_own_connection() -> None:
    """C6: always two, one for each direction; crossing is the rule."""
    desk = Desk()
    connect = desk.ask()
    theirs = desk.accept()
    desk.answer(connect)
    assert desk.route().handle == connect.handle
    assert desk.open_qps == {connect.handle, theirs}
    desk.hear(Ended(theirs, Cause.DISCONNECTED))
    assert desk.route().handle == connect.handle


@pytest.mark.parametrize("profile", Profile)
def test_a_request_with_garbage_is_rejected_and_counted(profile: Profile) -> None:
    desk = Desk(replace(CONFIG, profile=profile))
    handle = Handle(Role.PASSIVE, 0)
    for private, counter in ((b"", "cm_private_short"), (bytes(92), "cm_private_qpn")):
        effects = desk.hear(Requested(handle, PEER_GID, 0, attributes(), private))
        (reject,) = pick(Reject, effects)
        assert reject.reason is Reason.CONSUMER
        assert desk.count(counter) == 1
    assert len(desk.connections) == 0


def test_nobody_connects_to_himself() -> None:
    desk = Desk()
    _, effects = desk.request(OURS)
    assert pick(Reject, effects) != []
    assert desk.count("connection_echo") == 1


def test_a_request_without_a_queue_pair_for_it_is_rejected() -> None:
    desk = Desk()
    handle, _ = desk.request()
    desk.open_qps.remove(handle)
    effects = desk.note(desk.connections.open_failed(desk.now, handle, "none left"))
    (reject,) = pick(Reject, effects)
    assert reject.reason is Reason.NO_QP
    assert len(desk.connections) == 0


def test_in_the_rfcs_profile_too_and_the_next_packet_asks_by_itself() -> None:
    desk = Desk(RFC)
    handle, effects = desk.request()
    assert ways(effects) == [Way.DATAGRAM]
    desk.open_qps.remove(handle)
    effects = desk.note(desk.connections.open_failed(desk.now, handle, "none left"))
    assert ways(effects) == [Way.WATCHED]
    desk.wait(2 * CONNECTION_BACKOFF_MAX_S)
    assert desk.connections.deadline() is None


def test_a_newer_request_of_a_station_replaces_its_older_connection() -> None:
    desk = Desk()
    first = desk.accept()
    second, _ = desk.request()
    desk.open(second)
    assert desk.open_qps == {first, second}  # until the new one is there
    effects = desk.hear(Established(second))
    assert Disconnect(first) in effects
    assert desk.open_qps == {second}
    assert desk.count("connection_replaced") == 1


def test_one_port_cannot_take_all_the_room() -> None:
    desk = Desk(replace(CONFIG, per_port_max=3))
    for qpn in range(0x50, 0x53):
        desk.request(HwAddr(Qpn(qpn), PEER_GID))
    _, effects = desk.request(HwAddr(Qpn(0x53), PEER_GID))
    (reject,) = pick(Reject, effects)
    assert reject.reason is Reason.NO_RESOURCES
    assert desk.count("connection_port_full") == 1
    other = HwAddr(Qpn(0x53), Gid.parse("fe80::2"))
    assert pick(OpenQp, desk.request(other)[1]) != []
    assert pick(OpenQp, desk.want()) != []  # ours are not theirs


# Crossing, in the RFC's profile


def test_of_two_requests_that_cross_the_larger_address_wins_and_we_are_larger() -> None:
    """C6, RFC 4755 §3.3: accept only if local < remote, else REJ 28."""
    desk = Desk(RFC)
    connect = desk.ask(SMALLER)
    handle, effects = desk.request(SMALLER)
    (reject,) = pick(Reject, effects)
    assert (reject.handle, reject.reason) == (handle, Reason.CONSUMER)
    assert int(reject.reason) == 28
    assert desk.count("connection_crossed") == 1
    desk.answer(connect, SMALLER)
    assert desk.route(SMALLER).handle == connect.handle


def test_of_two_requests_that_cross_the_larger_address_wins_and_we_are_smaller() -> None:
    desk = Desk(RFC)
    connect = desk.ask()
    handle, effects = desk.request()
    assert Disconnect(connect.handle) in effects
    assert CloseQp(connect.handle) in effects
    assert OpenQp(handle) in effects
    assert desk.route().way is Way.DATAGRAM
    desk.open(handle)
    desk.hear(Established(handle))
    assert desk.route().handle == handle
    assert desk.route().mtu_bytes == 65520
    assert desk.open_qps == {handle}


def test_a_request_that_is_not_on_the_wire_yet_crosses_nothing() -> None:
    desk = Desk(RFC)
    (opened,) = pick(OpenQp, desk.want(SMALLER))
    handle, effects = desk.request(SMALLER)
    assert CloseQp(opened.handle) in effects
    assert OpenQp(handle) in effects


def test_in_the_rfcs_profile_their_connection_serves_us_too() -> None:
    desk = Desk(RFC)
    handle = desk.accept()
    assert desk.route().handle == handle
    assert desk.want() == []
    desk.hear(Ended(handle, Cause.DISCONNECTED))
    assert desk.route().way is Way.DATAGRAM


def test_a_packet_waits_for_the_request_that_is_under_way() -> None:
    desk = Desk(RFC)
    handle, _ = desk.request()
    assert desk.want() == []
    effects = desk.hear(Ended(handle, Cause.NO_ANSWER))
    assert ways(effects) == [Way.WATCHED]  # it came to nothing: the next packet asks by itself
    assert pick(OpenQp, desk.want()) != []


def test_of_two_requests_of_one_station_one_may_fail() -> None:
    desk = Desk(RFC)
    first, _ = desk.request()
    second, _ = desk.request()
    assert ways(desk.hear(Ended(first, Cause.NO_ANSWER))) == []
    assert desk.want() == []
    desk.open(second)
    desk.hear(Established(second))
    assert desk.route().handle == second


def test_a_station_that_asks_anew_has_lost_what_we_still_have() -> None:
    desk = Desk(RFC)
    first = desk.connect()
    handle, effects = desk.request()
    assert pick(Reject, effects) == []
    assert desk.route().handle == first
    desk.open(handle)
    effects = desk.hear(Established(handle))
    assert Disconnect(first) in effects
    assert desk.route().handle == handle
    assert desk.open_qps == {handle}


def test_a_lost_crossing_request_that_the_winner_never_follows_up_is_tried_again() -> None:
    desk = Desk(RFC)
    connect = desk.ask()
    desk.hear(Ended(connect.handle, Cause.DECLINED, 28))
    assert ways(desk.wait(1 + CONNECTION_BACKOFF_JITTER)) == [Way.WATCHED]
    assert pick(OpenQp, desk.want()) != []


def test_the_winner_is_welcome_in_the_back_off_too() -> None:
    desk = Desk(RFC)
    desk.hear(Ended(desk.ask().handle, Cause.DECLINED, 28))
    handle = desk.accept()
    assert desk.route().handle == handle


def test_a_connection_that_is_under_way_serves_when_another_has_just_failed() -> None:
    desk = Desk(RFC)
    first = desk.connect()
    second, _ = desk.request()
    desk.open(second)
    desk.note(desk.connections.broken(desk.now, first))
    assert desk.route().way is Way.DATAGRAM
    effects = desk.hear(Established(second))
    assert ways(effects) == [Way.CONNECTION]
    assert desk.route().handle == second
    desk.wait(CONNECTION_BACKOFF_MAX_S)
    assert desk.route().handle == second


def test_both_ends_of_a_crossing_agree_who_wins() -> None:
    for other in (SMALLER, PEER, HwAddr(OURS.qpn, PEER_GID), HwAddr(OURS.qpn, Gid(bytes(16)))):
        here = Desk(RFC)
        there = Desk(replace(RFC, hwaddr=other))
        here.ask(replace(other, flags=RC_FLAG))
        there.ask(OURS)
        accepted = [
            bool(pick(OpenQp, desk.request(theirs)[1]))
            for desk, theirs in ((here, other), (there, OURS))
        ]
        assert sorted(accepted) == [False, True]


# Restarts


def test_a_queue_pair_that_no_neighbour_has_any_more_loses_its_connections() -> None:
    """A5: ARP or ND told of another one."""
    desk = Desk()
    handle, theirs = desk.connect(), desk.accept()
    effects = desk.note(desk.connections.forget(desk.now, PEER))
    assert {it.handle for it in pick(Disconnect, effects)} == {handle, theirs}
    assert ways(effects) == [Way.WATCHED]
    assert desk.open_qps == set()
    assert len(desk.connections) == 0
    fresh = HwAddr(Qpn(0x60), PEER_GID, RC_FLAG)
    assert pick(OpenQp, desk.want(fresh)) != []


def test_a_connection_from_a_new_queue_pair_on_the_port_ends_the_older_ones() -> None:
    desk = Desk()
    handle, theirs = desk.connect(), desk.accept()
    fresh = HwAddr(Qpn(0x60), PEER_GID)
    again, effects = desk.request(fresh)
    assert pick(Disconnect, effects) == []  # a word is not enough
    desk.open(again)
    effects = desk.hear(Established(again))
    assert {it.handle for it in pick(Disconnect, effects)} == {handle, theirs}
    assert desk.route().way is Way.WATCHED
    assert desk.open_qps == {again}
    assert desk.count("connection_restart") == 1


def test_two_stations_on_one_port_disturb_each_other_once_at_most() -> None:
    desk = Desk()
    sibling = HwAddr(Qpn(0x60), PEER_GID)
    both = [PEER, sibling]
    restarts = []
    for turn in range(10):
        alive = {it.hwaddr.qpn for it in desk.connections.snapshot(desk.now)}
        for hwaddr in both:
            if hwaddr.qpn not in alive:
                desk.accept(hwaddr)
        restarts.append(desk.count("connection_restart"))
        assert restarts[-1] <= 2, turn
    assert {it.hwaddr.qpn for it in desk.connections.snapshot(desk.now)} == {0x49, 0x60}


# Caps


def test_at_the_cap_the_connection_unused_for_longest_makes_room() -> None:
    desk = Desk(replace(CONFIG, connections_max=2))
    one, two, three = (HwAddr(Qpn(0x70 + n), Gid.parse(f"fe80::{n}"), RC_FLAG) for n in (1, 2, 3))
    first, second = desk.connect(one), desk.connect(two)
    desk.wait(CONNECTION_EVICTABLE_S)
    desk.note(desk.connections.active(desk.now, [first]))
    effects = desk.want(three)
    assert Disconnect(second) in effects
    assert pick(OpenQp, effects) != []
    assert ways(effects) == [Way.DATAGRAM, Way.WATCHED]  # three, and two
    assert desk.route(two).way is Way.WATCHED
    assert desk.route(one).handle == first
    assert len(desk.connections) == 2
    assert desk.count("connection_evicted") == 1


def test_a_connection_that_ended_is_not_thrown_out_again() -> None:
    desk = Desk(replace(CONFIG, connections_max=2))
    one, two, three = (HwAddr(Qpn(0x70 + n), Gid.parse(f"fe80::{n}"), RC_FLAG) for n in (1, 2, 3))
    desk.hear(Ended(desk.connect(one), Cause.DISCONNECTED))
    second = desk.connect(two)
    desk.ask(three)
    desk.wait(CONNECTION_EVICTABLE_S)
    assert Disconnect(second) in desk.want(HwAddr(Qpn(0x74), Gid.parse("fe80::4"), RC_FLAG))


def test_at_the_cap_connections_in_use_are_not_thrown_out() -> None:
    desk = Desk(replace(CONFIG, connections_max=1))
    handle = desk.connect()
    other = HwAddr(Qpn(0x70), Gid.parse("fe80::1"), RC_FLAG)
    effects = desk.want(other)
    assert pick(OpenQp, effects) == []
    assert desk.route(other).way is Way.DATAGRAM
    _, effects = desk.request(other)
    (reject,) = pick(Reject, effects)
    assert reject.reason is Reason.NO_RESOURCES
    assert desk.count("connection_full") == 2
    assert desk.open_qps == {handle}
    assert ways(desk.wait(2)) == [Way.WATCHED]


def test_a_flood_of_requests_never_exceeds_the_cap() -> None:
    desk = Desk(replace(CONFIG, connections_max=20))
    for number in range(500):
        gid = Gid.parse(f"fe80::1:{number:x}")
        handle, effects = desk.request(HwAddr(Qpn(0x50), gid))
        if pick(OpenQp, effects):
            desk.open(handle)
            desk.hear(Established(handle))
        assert len(desk.open_qps) <= 20
    assert desk.count("connection_full") == 480


def test_only_so_many_failures_are_remembered() -> None:
    desk = Desk(replace(CONFIG, peers_max=3))
    stations = [HwAddr(Qpn(0x50), Gid.parse(f"fe80::{n:x}"), RC_FLAG) for n in range(1, 5)]
    for hwaddr in stations[:3]:
        desk.hear(Ended(desk.ask(hwaddr).handle, Cause.NO_ANSWER))
    desk.connect(stations[3])
    assert desk.count("connection_peer_evicted") == 1
    assert desk.route(stations[0]).way is Way.WATCHED  # forgotten
    assert desk.route(stations[1]).way is Way.DATAGRAM
    busy = Desk(replace(CONFIG, peers_max=1))
    busy.connect()
    assert pick(OpenQp, busy.want(stations[0])) == []
    assert busy.count("connection_peers_full") == 1


def test_what_is_shown_of_a_connection() -> None:
    desk = Desk(replace(CONFIG, superframe_bytes=SUPERFRAME))
    connect = desk.ask()
    desk.answer(connect, theirs=Private(PEER.qpn, 9004, SUPERFRAME))
    theirs = desk.accept()
    desk.wait(10)
    desk.note(desk.connections.active(desk.now, [theirs]))
    desk.wait(5)
    ours, incoming = desk.connections.snapshot(desk.now)
    assert (ours.handle, ours.hwaddr) == (connect.handle, replace(PEER, flags=0))
    assert (ours.state, ours.qpn, ours.remote_qpn) == (channel.State.LIVE, 0x100, 0x5A)
    assert (ours.mtu_bytes, ours.has_superframes) == (9000, True)
    assert (ours.age_s, ours.idle_s) == (15, 15)
    assert (incoming.handle, incoming.mtu_bytes, incoming.has_superframes) == (theirs, 0, False)
    assert (incoming.age_s, incoming.idle_s) == (15, 5)
    assert str(connect.handle) == "active-0"


# Whatever happens, in whatever order

STATIONS: Final = [PEER, SMALLER, HwAddr(Qpn(0x50), Gid.parse("fe80::3"), RC_FLAG)]
moves = st.tuples(st.integers(0, 11), st.integers(0, 2), st.integers(0, 7))


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(Profile), st.lists(moves, max_size=60))
def test_no_sequence_of_events_loses_a_queue_pair_or_a_route(
    profile: Profile, sequence: list[tuple[int, int, int]]
) -> None:
    desk = Desk(replace(CONFIG, profile=profile, connections_max=4, per_port_max=3, peers_max=2))
    for move, station, choice in sequence:
        _one_move(desk, move, STATIONS[station], choice)
        live = {it.handle for it in desk.connections.snapshot(desk.now)}
        assert desk.open_qps == live
        assert len(live) <= 4
        for hwaddr in STATIONS:
            route = desk.route(hwaddr)
            if route.way is Way.CONNECTION:
                assert route.handle in live
                assert route.mtu_bytes >= CONFIG.datagram_mtu_bytes
    for latest in _latest_routes(desk.effects):
        assert desk.route(replace(latest.hwaddr, flags=RC_FLAG)) == latest
    desk.wait(CONNECTION_IDLE_S + 4 * CONNECTION_BACKOFF_MAX_S)
    desk.note(desk.connections.close(desk.now))
    assert desk.open_qps == set()
    assert desk.connections.deadline() is None
    assert len(desk.connections) == 0
    assert not desk.connections._peers
    assert not desk.connections._resting


def _latest_routes(effects: list[ConnectionEffect]) -> list[Route]:
    """What whoever carries the effects out believes: it must be what `route` says."""
    return list({route.hwaddr: route for route in pick(Route, effects)}.values())


def _one_move(desk: Desk, move: int, hwaddr: HwAddr, choice: int) -> None:
    infos = list(desk.connections.snapshot(desk.now))
    info = infos[choice % len(infos)] if infos else None
    match move:
        case 0 | 1:
            desk.want(hwaddr)
        case 2:
            desk.request(hwaddr)
        case 3:
            desk.wait((0.1, 1, 3, 10, 64, 65, 200, 600)[choice])
        case 4:
            desk.note(desk.connections.forget(desk.now, hwaddr))
        case _ if info is None:
            pass
        case 5 | 6 | 7 | 8:
            _advance(desk, info.handle, info.state, info.hwaddr, choice)
        case 9:
            if info.state not in (channel.State.OPENING, channel.State.INVITED):
                desk.note(desk.connections.broken(desk.now, info.handle))
        case 10:
            if info.state is not channel.State.OPENING:
                desk.hear(Ended(info.handle, list(Cause)[choice]))
        case _:
            desk.note(desk.connections.active(desk.now, [info.handle]))


def _advance(desk: Desk, handle: Handle, state: channel.State, hwaddr: HwAddr, choice: int) -> None:
    """The next good thing that can happen to a connection."""
    match state:
        case channel.State.OPENING | channel.State.INVITED:
            desk.open(handle)
        case channel.State.ASKING:
            theirs = Private(hwaddr.qpn, LINUX_MTU if choice else 100)
            effects = desk.hear(Replied(handle, attributes(), theirs.pack()))
            if pick(Confirm, effects):
                desk.hear(Established(handle))
        case channel.State.REPLYING:
            desk.hear(Established(handle))
        case _:
            with pytest.raises(Impossible):
                desk.open(handle)
