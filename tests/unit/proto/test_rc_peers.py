# SPDX-License-Identifier: BSD-2-Clause
"""The policy of connected mode: peers' requests, those that cross ours, restarts (RFC 4755)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ipoibu.base.addr import RC_FLAG, Gid, HwAddr, Qpn
from ipoibu.base.limits import (
    CONNECTION_BACKOFF_JITTER,
    CONNECTION_BACKOFF_MAX_S,
    CONNECTIONS_PER_PORT_MAX,
)
from ipoibu.proto.rc.connection import (
    CloseQp,
    OpenQp,
    Profile,
    ProgramQp,
    RcConnection,
    RcConnectionTable,
)
from ipoibu.proto.rc.events import (
    Accept,
    Cause,
    Disconnect,
    Ended,
    Established,
    Handle,
    Reject,
    Requested,
    Role,
)
from ipoibu.proto.rc.peer import TxMode, TxRoute
from ipoibu.wire.cm_code import Reason
from ipoibu.wire.cm_private import Private
from tests.doubles.rc_desk import (
    CONFIG,
    LINUX_MTU,
    OURS,
    PEER,
    PEER_GID,
    RFC,
    SMALLER,
    Desk,
    attributes,
    paths,
    pick,
)

# Theirs


def test_a_request_is_accepted_when_its_queue_pair_is_ready_and_not_before() -> None:
    desk = Desk()
    handle, effects = desk.request()
    assert effects == [OpenQp(handle)]
    (program, accept) = desk.open(handle)
    assert program == ProgramQp(handle, attributes(), False)
    assert accept == Accept(handle, Qpn(0x100), Private(OURS.qpn, LINUX_MTU).pack())
    effects = desk.event(Established(handle))
    assert pick(TxRoute, effects) == []  # linux: they send by it, we do not
    assert desk.route().tx_mode is TxMode.UD_NOTIFY


def test_in_the_linux_profile_each_side_has_its_own_connection() -> None:
    """C6: always two, one for each direction; crossing is the rule."""
    desk = Desk()
    connect = desk.ask()
    theirs = desk.accept()
    desk.answer(connect)
    assert desk.route().handle == connect.handle
    assert desk.open_qps == {connect.handle, theirs}
    desk.event(Ended(theirs, Cause.DISCONNECTED))
    assert desk.route().handle == connect.handle


@pytest.mark.parametrize("profile", Profile)
def test_a_request_with_garbage_is_rejected_and_counted(profile: Profile) -> None:
    desk = Desk(replace(CONFIG, profile=profile))
    handle = Handle(Role.PASSIVE, 0)
    for private, counter in ((b"", "cm_private_short"), (bytes(92), "cm_private_qpn")):
        effects = desk.event(Requested(handle, PEER_GID, 0, attributes(), private))
        (reject,) = pick(Reject, effects)
        assert reject.reason is Reason.CONSUMER
        assert desk.count(counter) == 1
    assert len(desk.connections) == 0


def test_nobody_connects_to_himself() -> None:
    desk = Desk()
    _, effects = desk.request(OURS)
    assert pick(Reject, effects) != []
    assert desk.count("connection_echo") == 1


def test_who_may_not_speak_on_the_link_gets_no_connection() -> None:
    desk = Desk()
    desk.strangers.add(replace(PEER, flags=0))
    _, effects = desk.request(PEER)
    (reject,) = pick(Reject, effects)
    assert reject.reason is Reason.CONSUMER
    assert desk.count("connection_stranger") == 1
    desk.strangers.clear()
    _, effects = desk.request(PEER)
    assert pick(Reject, effects) == []


def test_a_request_without_a_queue_pair_for_it_is_rejected() -> None:
    desk = Desk()
    handle, _ = desk.request()
    desk.open_qps.remove(handle)
    effects = desk.note(desk.connections.note_open_failed(desk.now, handle, "none left"))
    (reject,) = pick(Reject, effects)
    assert reject.reason is Reason.NO_QP
    assert len(desk.connections) == 0


def test_in_the_rfcs_profile_too_and_the_next_packet_asks_by_itself() -> None:
    desk = Desk(RFC)
    handle, effects = desk.request()
    assert paths(effects) == [TxMode.UD_CONNECTING]
    desk.open_qps.remove(handle)
    effects = desk.note(desk.connections.note_open_failed(desk.now, handle, "none left"))
    assert paths(effects) == [TxMode.UD_NOTIFY]
    desk.wait(2 * CONNECTION_BACKOFF_MAX_S)
    assert desk.connections.deadline() is None


def test_a_newer_request_of_a_host_replaces_its_older_connection() -> None:
    desk = Desk()
    first = desk.accept()
    second, _ = desk.request()
    desk.open(second)
    assert desk.open_qps == {first, second}  # until the new connection is up
    effects = desk.event(Established(second))
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
    assert pick(OpenQp, desk.want()) != []  # our connections do not count as theirs


# Crossing, in the RFC's profile


def test_of_two_requests_that_cross_the_larger_address_wins_and_we_are_larger() -> None:
    """C6: RFC 4755 §3.3: accept only if local < remote, else REJ 28."""
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
    assert desk.route().tx_mode is TxMode.UD_CONNECTING
    desk.open(handle)
    desk.event(Established(handle))
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
    desk.event(Ended(handle, Cause.BROKEN))
    assert desk.route().tx_mode is TxMode.UD


def test_a_packet_waits_for_the_request_that_is_under_way() -> None:
    desk = Desk(RFC)
    handle, _ = desk.request()
    assert desk.want() == []
    effects = desk.event(Ended(handle, Cause.NO_ANSWER))
    assert paths(effects) == [
        TxMode.UD_NOTIFY
    ]  # it came to nothing: the next packet asks by itself
    assert pick(OpenQp, desk.want()) != []


def test_of_two_requests_of_one_host_one_may_fail() -> None:
    desk = Desk(RFC)
    first, _ = desk.request()
    second, _ = desk.request()
    assert paths(desk.event(Ended(first, Cause.NO_ANSWER))) == []
    assert desk.want() == []
    desk.open(second)
    desk.event(Established(second))
    assert desk.route().handle == second


def test_a_host_that_asks_anew_has_lost_what_we_still_have() -> None:
    desk = Desk(RFC)
    first = desk.connect()
    handle, effects = desk.request()
    assert pick(Reject, effects) == []
    assert desk.route().handle == first
    desk.open(handle)
    effects = desk.event(Established(handle))
    assert Disconnect(first) in effects
    assert desk.route().handle == handle
    assert desk.open_qps == {handle}


def test_a_lost_crossing_request_that_the_winner_never_follows_up_is_tried_again() -> None:
    desk = Desk(RFC)
    connect = desk.ask()
    desk.event(Ended(connect.handle, Cause.DECLINED, 28))
    assert paths(desk.wait(1 + CONNECTION_BACKOFF_JITTER)) == [TxMode.UD_NOTIFY]
    assert pick(OpenQp, desk.want()) != []


def test_the_winner_is_welcome_in_the_back_off_too() -> None:
    desk = Desk(RFC)
    desk.event(Ended(desk.ask().handle, Cause.DECLINED, 28))
    handle = desk.accept()
    assert desk.route().handle == handle


def test_a_connection_that_is_under_way_serves_when_another_has_just_failed() -> None:
    desk = Desk(RFC)
    first = desk.connect()
    second, _ = desk.request()
    desk.open(second)
    desk.note(desk.connections.broken(desk.now, first))
    assert desk.route().tx_mode is TxMode.UD
    effects = desk.event(Established(second))
    assert paths(effects) == [TxMode.RC]
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
    """A5: ARP or ND gave another one."""
    desk = Desk()
    handle, theirs = desk.connect(), desk.accept()
    effects = desk.note(desk.connections.forget(desk.now, PEER))
    assert {it.handle for it in pick(Disconnect, effects)} == {handle, theirs}
    assert paths(effects) == [TxMode.UD_NOTIFY]
    assert desk.open_qps == set()
    assert len(desk.connections) == 0
    fresh = HwAddr(Qpn(0x60), PEER_GID, RC_FLAG)
    assert pick(OpenQp, desk.want(fresh)) != []


def test_a_connection_from_a_new_queue_pair_on_the_port_ends_the_older_ones() -> None:
    desk = Desk()
    handle, theirs = desk.connect(), desk.accept()
    fresh = HwAddr(Qpn(0x60), PEER_GID)
    again, effects = desk.request(fresh)
    assert pick(Disconnect, effects) == []  # a request is not enough
    desk.open(again)
    effects = desk.event(Established(again))
    assert {it.handle for it in pick(Disconnect, effects)} == {handle, theirs}
    assert desk.route().tx_mode is TxMode.UD_NOTIFY
    assert desk.open_qps == {again}
    assert desk.count("connection_restart") == 1


def test_memory_of_a_ports_former_queue_pairs_is_bounded() -> None:
    connections, handle = RcConnectionTable(), Handle(Role.PASSIVE, 0)
    connections.add(RcConnection(handle, PEER))
    former = [HwAddr(Qpn(0x60 + n), PEER_GID) for n in range(CONNECTIONS_PER_PORT_MAX + 1)]
    assert all(connections.suspect(hwaddr) for hwaddr in former[:-1])
    assert not connections.suspect(former[0])
    assert connections.suspect(former[-1])
    assert connections.suspect(former[0])  # forgotten


def test_two_hosts_on_one_port_disturb_each_other_once_at_most() -> None:
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
