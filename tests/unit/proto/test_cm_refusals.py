# SPDX-License-Identifier: BSD-2-Clause
"""The communication manager: invalid messages, refusals, and caps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.limits import CM_ANSWERS_BURST, CM_TIMEWAIT_S
from ipoibu.proto.cm.cm import MadSource
from ipoibu.proto.cm.state import State
from ipoibu.proto.rc.events import (
    CAUSES,
    Accept,
    Cause,
    CmEffect,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Handle,
    Reject,
    Requested,
    Role,
    SendMad,
)
from ipoibu.wire import cm
from ipoibu.wire.cm_code import About, Reason, Transport
from ipoibu.wire.cm_setup import Rep, Req
from ipoibu.wire.mad import GSI_QPN
from tests.doubles.cm_desk import (
    A_GUID,
    B_GUID,
    CONFIG,
    FROM_B,
    OURS,
    PEER_ID,
    REQ,
    SERVICE,
    STRANGER,
    TID,
    A,
    B,
    Desk,
    counts,
    only,
    rep_to,
    reported,
    sent,
)


def test_another_port_with_the_same_numbers_is_another_peer() -> None:
    """A CA's GUID is only a claim: no port can end another port's connections by it."""
    desk = Desk()
    (requested,) = reported(desk.receive(REQ))
    foreign = replace(REQ, local_id=5, primary=replace(REQ.primary, local_gid=STRANGER))
    (other,) = reported(desk.receive(foreign, MadSource(Qpn(GSI_QPN), STRANGER)))
    assert isinstance(other, Requested)
    assert desk.states == [State.REQ_RECEIVED, State.REQ_RECEIVED]
    assert requested.handle != other.handle


@pytest.mark.parametrize(
    "make",
    [
        rep_to,
        lambda req: cm.Rej(0, req.local_id, About.REQ, Reason.CONSUMER),
        lambda req: cm.Mra(PEER_ID, req.local_id, About.REQ, 20),
    ],
    ids=["rep", "rej", "mra"],
)
def test_nobody_else_can_speak_for_the_peer(make: Callable[[Req], cm.Spoken]) -> None:
    desk = Desk()
    message = make(desk.connect())
    effects = desk.receive(message, MadSource(Qpn(GSI_QPN), STRANGER))
    assert counts(effects) == ["cm_foreign"]
    assert desk.states == [State.REQ_SENT]
    desk.receive(message, FROM_B)
    assert desk.states != [State.REQ_SENT]


def test_a_copied_request_from_elsewhere_is_not_taken_for_the_first() -> None:
    desk = Desk()
    (_,) = reported(desk.receive(REQ, MadSource(Qpn(GSI_QPN), None, lid=7)))
    assert counts(desk.receive(REQ, MadSource(Qpn(GSI_QPN), None, lid=8))) == ["cm_foreign"]


REFUSED: Final[list[tuple[str, Req, int, bytes]]] = [
    ("service", replace(REQ, service_id=SERVICE + 1), 8, b""),
    ("id", replace(REQ, local_id=0), 6, b""),
    ("transport", replace(REQ, transport=Transport.UC), 9, b""),
    ("gid", replace(REQ, primary=replace(REQ.primary, remote_gid=B)), 12, A.raw),
    ("third party", replace(REQ, primary=replace(REQ.primary, local_gid=STRANGER)), 12, b""),
    ("pkey", replace(REQ, pkey=PKey(0x8001)), 5, b""),
    ("qpn 0", replace(REQ, qpn=Qpn(0)), 5, b""),
    ("qpn 1", replace(REQ, qpn=Qpn(1)), 5, b""),
    ("qpn multicast", replace(REQ, qpn=Qpn(0xFFFFFF)), 5, b""),
    ("mtu 0", replace(REQ, mtu=0), 26, b"\x04"),
    ("mtu 4096", replace(REQ, mtu=5), 26, b"\x04"),
    ("mtu 15", replace(REQ, mtu=15), 26, b"\x04"),
]


@pytest.mark.parametrize(
    ("req", "reason", "info"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_a_request_that_cannot_be_met_is_refused_with_its_reason(
    req: Req, reason: int, info: bytes
) -> None:
    desk = Desk()
    effects = desk.receive(req)
    assert only(effects) == cm.Rej(0, req.local_id, About.REQ, reason, info, bytes(148))
    assert reported(effects) == []
    assert len(desk.cm) == 0


@pytest.mark.parametrize(
    "message", [replace(REQ, service_id=SERVICE + 1), cm.Dreq(PEER_ID, 5, Qpn(0x50))]
)
def test_who_has_no_connection_is_answered_in_the_partition_that_it_spoke_in(
    message: Req | cm.Dreq,
) -> None:
    """The peer may not be a member of another partition, and would lose an answer in it."""
    source = replace(FROM_B, pkey=PKey(0x8001))
    answers = [it for it in Desk().receive(message, source) if isinstance(it, SendMad)]
    assert [answer.pkey for answer in answers] == [PKey(0x8001)]


def test_limited_membership_of_the_partition_is_membership() -> None:
    assert reported(Desk().receive(replace(REQ, pkey=PKey(0x7FFF)))) != []


def test_without_a_grh_the_answer_goes_to_the_lid() -> None:
    desk = Desk()
    source = MadSource(Qpn(GSI_QPN), None, lid=12, sl=3)
    effects = desk.receive(REQ, source)
    (requested,) = reported(effects)
    assert isinstance(requested, Requested)
    assert requested.attributes.destination.dlid == 12  # the REQ's are permissive
    (mad,) = (
        it for it in desk.do(Accept(requested.handle, Qpn(0x51), b"")) if isinstance(it, SendMad)
    )
    assert (mad.destination.dlid, mad.destination.sl, mad.destination.gid) == (12, 3, B)


def test_a_lid_that_the_request_names_is_used_for_the_data() -> None:
    desk = Desk()
    primary = replace(REQ.primary, local_lid=99, hop_limit=0, subnet_local=True)
    source = MadSource(Qpn(GSI_QPN), B, lid=12)
    (requested,) = reported(desk.receive(replace(REQ, primary=primary), source))
    assert isinstance(requested, Requested)
    assert requested.attributes.destination.dlid == 99
    assert requested.attributes.destination.hop_limit == 1


def test_a_local_path_is_asked_for_with_lids_a_routed_one_without() -> None:
    """LIDs have no meaning with a hop limit above 1; Linux does the same."""
    desk = Desk(replace(CONFIG, lid=7))
    for hop_limit, lids in ((1, (7, 9)), (64, (0xFFFF, 0xFFFF))):
        destination = Destination(B, Qpn(0x49), dlid=9, hop_limit=hop_limit)
        handle = Handle(Role.ACTIVE, hop_limit)
        req = only(desk.do(Connect(handle, destination, SERVICE, Qpn(0x50), 1024, b"")))
        assert isinstance(req, Req)
        assert (req.primary.local_lid, req.primary.remote_lid) == lids
        assert req.primary.subnet_local == (hop_limit == 1)
        assert req.mtu == 3


@pytest.mark.parametrize("reason", [*Reason, 34, 99, 0xFFFF])
def test_every_reason_of_a_peer_has_a_named_cause(reason: int) -> None:
    desk = Desk()
    req = desk.connect()
    effects = desk.receive(cm.Rej(0, req.local_id, About.REQ, reason))
    assert reported(effects) == [Ended(OURS, CAUSES.get(reason, Cause.INCOMPATIBLE), reason)]
    assert len(desk.cm) == 0


def test_causes_that_the_policy_acts_upon() -> None:
    assert CAUSES[8] is Cause.NO_SERVICE
    assert CAUSES[28] is Cause.DECLINED
    assert CAUSES[3] is Cause.NO_RESOURCES
    assert CAUSES[10] is Cause.STALE


@pytest.mark.parametrize("reason", [Reason.CONSUMER, Reason.NO_RESOURCES])
def test_what_the_policy_rejects_leaves_nothing_and_may_come_again(reason: Reason) -> None:
    desk = Desk()
    for _ in range(3):
        (requested,) = reported(desk.receive(REQ))
        rej = only(desk.do(Reject(requested.handle, reason, b"who")))
        assert isinstance(rej, cm.Rej)
        assert (rej.local_id, rej.remote_id, rej.about) == (0, PEER_ID, About.REQ)
        assert rej.reason == reason
        assert rej.private.startswith(b"who\0")
        assert len(desk.cm) == 0


def test_a_reply_can_be_rejected() -> None:
    desk = Desk()
    req = desk.connect()
    desk.receive(rep_to(req))
    rej = only(desk.do(Reject(OURS, Reason.CONSUMER)))
    assert rej == cm.Rej(req.local_id, PEER_ID, About.REP, Reason.CONSUMER, b"", bytes(148))
    assert len(desk.cm) == 0


def test_a_request_that_is_withdrawn_says_so_by_our_guid() -> None:
    desk = Desk()
    req = desk.connect()
    rej = only(desk.do(Disconnect(OURS)))
    assert isinstance(rej, cm.Rej)
    assert (rej.local_id, rej.reason) == (req.local_id, Reason.TIMEOUT)
    assert rej.info == A_GUID.to_bytes(8, "big")
    assert len(desk.cm) == 0


@pytest.mark.parametrize("rep", [{"local_id": 0}, {"qpn": Qpn(1)}, {"qpn": Qpn(0xFFFFFF)}])
def test_a_reply_that_makes_no_sense_is_no_reply(rep: dict[str, Qpn]) -> None:
    desk = Desk()
    req = desk.connect()
    effects = desk.receive(replace(rep_to(req), **rep))  # type: ignore[arg-type]
    assert counts(effects) == ["cm_unexpected"]
    assert desk.states == [State.REQ_SENT]
    assert reported(desk.receive(rep_to(req))) != []


def test_a_peer_that_believes_in_a_missing_connection_is_notified() -> None:
    desk = Desk()
    rep = Rep(PEER_ID, 0xDEAD, B_GUID, Qpn(0x4A), 1)
    rej = only(desk.receive(rep))
    assert rej == cm.Rej(0xDEAD, PEER_ID, About.REP, Reason.INVALID_COMM_ID, b"", bytes(148))
    drep = only(desk.receive(cm.Dreq(PEER_ID, 0xDEAD, Qpn(1))))
    assert drep == cm.Drep(0xDEAD, PEER_ID, bytes(224))
    for quiet in (
        cm.Rtu(PEER_ID, 0xDEAD),
        cm.Drep(PEER_ID, 0xDEAD),
        cm.Mra(PEER_ID, 0xDEAD, About.REQ, 1),
        cm.Rej(PEER_ID, 0xDEAD, About.OTHER, Reason.CONSUMER),
    ):
        assert counts(desk.receive(quiet)) == ["cm_unexpected"]


def test_answers_to_nonsense_are_limited_in_rate() -> None:
    desk = Desk()
    replies = 0
    for number in range(1000):
        replies += len(sent(desk.receive(cm.Dreq(number, 0xDEAD, Qpn(1)))))
    assert replies == CM_ANSWERS_BURST
    desk.now += 1
    assert sent(desk.receive(cm.Dreq(1, 0xDEAD, Qpn(1)))) != []


def test_garbage_is_counted_by_its_reason() -> None:
    desk = Desk()
    good = cm.pack(TID, REQ)
    for raw, reason in (
        (b"", "mad_short"),
        (good[:200], "cm_short"),
        (b"\x02" + good[1:], "mad_version"),
        (good[:1] + b"\x03" + good[2:], "cm_class"),
    ):
        assert counts(desk.cm.note_received(1.0, FROM_B, raw)) == [reason]
    lap = good[:16] + b"\x00\x19" + good[18:]
    assert counts(desk.cm.note_received(1.0, FROM_B, lap)) == ["cm_unknown"]


# Caps


def flood(desk: Desk, number: int) -> list[CmEffect]:
    """Send one more request, from another port."""
    gid = Gid.parse(f"fe80::1:{number:x}")
    primary = replace(REQ.primary, local_gid=gid)
    req = replace(REQ, local_id=number + 1, qpn=Qpn(number + 2), primary=primary)
    return desk.receive(req, MadSource(Qpn(GSI_QPN), gid))


def test_a_flood_of_requests_is_refused_at_the_cap_and_counted() -> None:
    desk = Desk(replace(CONFIG, half_open_max=10))
    taken = [reported(flood(desk, number)) for number in range(10)]
    assert all(taken)
    effects = flood(desk, 10)
    (rej,) = sent(effects)
    assert isinstance(rej, cm.Rej)
    assert rej.reason == Reason.NO_RESOURCES
    assert counts(effects) == ["cm_half_open_full"]
    for number in range(11, 500):
        flood(desk, number)
    assert len(desk.cm) == 10
    refusals = [message for message in sent(desk.effects) if isinstance(message, cm.Rej)]
    assert len(refusals) == CM_ANSWERS_BURST
    desk.wait(60)
    assert len(desk.cm) == 0
    assert reported(flood(desk, 1000)) != []


def test_one_port_cannot_take_all_the_room() -> None:
    desk = Desk(replace(CONFIG, half_open_per_port_max=3))
    for number in range(20):
        desk.receive(replace(REQ, local_id=number + 1, qpn=Qpn(number + 2)))
    assert len(desk.cm) == 3
    assert reported(flood(desk, 1)) != []


def test_a_connection_that_begins_or_ends_makes_room_for_the_next_request() -> None:
    desk = Desk(replace(CONFIG, half_open_max=1))
    (requested,) = reported(desk.receive(REQ))
    assert reported(flood(desk, 1)) == []
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    assert reported(flood(desk, 1)) == []
    desk.receive(cm.Rtu(PEER_ID, rep.local_id))
    (other,) = reported(flood(desk, 1))
    desk.do(Reject(other.handle, Reason.CONSUMER))
    assert reported(flood(desk, 2)) != []


def test_the_table_of_connections_has_a_cap_for_ours_and_theirs() -> None:
    desk = Desk(replace(CONFIG, connections_max=2))
    desk.connect(Handle(Role.ACTIVE, 1))
    desk.connect(Handle(Role.ACTIVE, 2))
    handle = Handle(Role.ACTIVE, 3)
    connect = Connect(handle, Destination(B, Qpn(0x49)), SERVICE, Qpn(0x50), 2048, b"")
    assert reported(desk.do(connect)) == [Ended(handle, Cause.FULL)]
    effects = flood(desk, 1)
    assert counts(effects) == ["cm_full"]
    assert isinstance(only(effects), cm.Rej)


def test_time_wait_is_cut_short_when_there_is_no_room() -> None:
    desk = Desk(replace(CONFIG, connections_max=1))
    req = desk.connect()
    desk.receive(rep_to(req))
    desk.do(Confirm(OURS))
    desk.receive(cm.Dreq(PEER_ID, req.local_id, req.qpn))
    assert desk.states == [State.TIME_WAIT]
    desk.connect(Handle(Role.ACTIVE, 8))
    assert desk.states == [State.REQ_SENT]
    assert "cm_time_wait_cut" in counts(desk.effects)
    desk.wait(60)
    assert len(desk.cm) == 0


def test_what_left_time_wait_makes_no_room_twice() -> None:
    desk = Desk(replace(CONFIG, connections_max=1))
    req = desk.connect()
    desk.receive(rep_to(req))
    desk.do(Confirm(OURS))
    desk.receive(cm.Dreq(PEER_ID, req.local_id, req.qpn))
    desk.wait(CM_TIMEWAIT_S)
    desk.connect(Handle(Role.ACTIVE, 8))
    handle = Handle(Role.ACTIVE, 9)
    connect = Connect(handle, Destination(B, Qpn(0x49)), SERVICE, Qpn(0x50), 2048, b"")
    assert reported(desk.do(connect)) == [Ended(handle, Cause.FULL)]
    assert desk.states == [State.REQ_SENT]


def test_two_requests_with_one_handle_are_the_callers_mistake() -> None:
    desk = Desk()
    desk.connect()
    with pytest.raises(ValueError, match="active-7 is under way"):
        desk.connect()


def test_stopping_says_farewell_once_and_forgets() -> None:
    desk = Desk()
    desk.receive(rep_to(desk.connect()))
    desk.do(Confirm(OURS))
    desk.connect(Handle(Role.ACTIVE, 8))
    flood(desk, 1)
    farewells = sent(desk.cm.stop(desk.now))
    assert sorted(type(message).__name__ for message in farewells) == ["Dreq", "Rej", "Rej"]
    assert len(desk.cm) == 0
    assert desk.cm.deadline() is None
    assert reported(flood(desk, 2)) == []  # no interface listens
