# SPDX-License-Identifier: BSD-2-Clause
"""The communication manager: connections, message by message."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ipoibu.base.addr import Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    CM_RESPITE_MAX_S,
    CM_RETRIES,
    CM_TIMEWAIT_S,
    CM_WAIT_MAX_S,
    CM_WAIT_MIN_S,
)
from ipoibu.proto.cm.cm import Cm, MadSource
from ipoibu.proto.cm.state import State
from ipoibu.proto.rc.events import (
    Accept,
    Cause,
    Confirm,
    Connect,
    ConnectionManager,
    Disconnect,
    Ended,
    Established,
    Handle,
    Replied,
    Requested,
    Role,
    SendMad,
)
from ipoibu.wire import cm
from ipoibu.wire.cm_code import About, Reason, Transport, seconds
from ipoibu.wire.cm_setup import Rep, Req
from ipoibu.wire.mad import GSI_QPN
from tests.doubles.cm_desk import (
    A_GUID,
    B_GUID,
    CONFIG,
    OURS,
    PEER_ID,
    PKEY,
    REQ,
    SERVICE,
    TID,
    WAIT_S,
    A,
    B,
    Desk,
    counts,
    only,
    rep_to,
    reported,
    sent,
)


def test_the_active_side_from_connect_to_the_end() -> None:
    """C11."""
    desk = Desk()
    req = desk.connect()
    (mad,) = (it for it in desk.effects if isinstance(it, SendMad))
    assert (mad.destination.gid, mad.destination.qpn) == (B, GSI_QPN)
    assert (req.service_id, req.qpn, req.ca_guid, req.pkey) == (SERVICE, 0x50, A_GUID, PKEY)
    assert (req.primary.local_gid, req.primary.remote_gid) == (A, B)
    assert (req.transport, req.mtu, req.has_srq) == (Transport.RC, 4, True)
    assert (req.retries, req.rnr_retries) == (0, 0)
    assert req.private.startswith(b"hi\0")
    rep = rep_to(req)
    (replied,) = reported(desk.receive(rep))
    assert isinstance(replied, Replied)
    assert replied.private.startswith(b"welcome\0")
    attributes = replied.attributes
    assert (attributes.destination.gid, attributes.destination.qpn) == (B, 0x4A)
    # a message's starting PSN is what its receiver sends with
    assert (attributes.send_psn, attributes.receive_psn) == (rep.psn, req.psn)
    assert (attributes.path_mtu_bytes, attributes.retries, attributes.rnr_retries) == (2048, 0, 1)
    effects = desk.do(Confirm(OURS))
    assert only(effects) == cm.Rtu(req.local_id, PEER_ID, bytes(224))
    assert reported(effects) == [Established(OURS)]
    dreq = only(desk.do(Disconnect(OURS)))
    assert dreq == cm.Dreq(req.local_id, PEER_ID, Qpn(0x4A), bytes(220))
    assert reported(desk.receive(cm.Drep(PEER_ID, req.local_id))) == []
    assert desk.states == [State.TIME_WAIT]
    desk.wait(CM_TIMEWAIT_S)
    assert len(desk.cm) == 0
    assert desk.cm.deadline() is None


def test_the_passive_side_from_request_to_the_end() -> None:
    desk = Desk()
    (requested,) = reported(desk.receive(REQ))
    assert isinstance(requested, Requested)
    assert (requested.gid, requested.service_id) == (B, SERVICE)
    assert requested.private.startswith(b"hello\0")
    attributes = requested.attributes
    to = attributes.destination
    assert (to.gid, to.qpn, to.sl, to.hop_limit) == (B, 0x4A, 2, 64)
    assert (to.traffic_class, to.flow_label, to.static_rate) == (5, 0x12345, 3)
    assert (attributes.path_mtu_bytes, attributes.ack_timeout) == (2048, 19)
    assert attributes.send_psn == REQ.psn
    effects = desk.do(Accept(requested.handle, Qpn(0x51), b"welcome"))
    rep = only(effects)
    assert isinstance(rep, Rep)
    assert (rep.remote_id, rep.qpn, rep.ca_guid) == (PEER_ID, 0x51, A_GUID)
    assert rep.psn == attributes.receive_psn
    assert rep.private.startswith(b"welcome\0")
    (mad,) = (it for it in effects if isinstance(it, SendMad))
    assert cm.parse_untrusted(mad.raw)[0] == TID  # of the request
    assert reported(desk.receive(cm.Rtu(PEER_ID, rep.local_id))) == [Established(requested.handle)]
    effects = desk.receive(cm.Dreq(PEER_ID, rep.local_id, Qpn(0x51)), tid=9)
    (mad,) = (it for it in effects if isinstance(it, SendMad))
    assert cm.parse_untrusted(mad.raw) == (9, cm.Drep(rep.local_id, PEER_ID, bytes(224)))
    assert reported(effects) == [Ended(requested.handle, Cause.DISCONNECTED)]
    desk.wait(CM_TIMEWAIT_S)
    assert len(desk.cm) == 0


def test_the_manager_keeps_the_contract_that_the_policy_relies_on() -> None:
    """mypy checks the types; this test drives a manager by the methods of the contract alone."""
    manager: ConnectionManager = Cm(CONFIG, random.Random(1))
    manager.listen({SERVICE: PKEY})
    connect = Connect(OURS, Destination(B, Qpn(0x49)), SERVICE, Qpn(0x50), 2048, b"")
    assert isinstance(only(manager.request(1.0, connect)), Req)
    assert manager.deadline() == pytest.approx(1.0 + WAIT_S)
    assert isinstance(only(manager.timer(1.0 + WAIT_S)), Req)
    assert isinstance(only(manager.stop(3.0)), cm.Rej)


def test_identifiers_and_sequence_numbers_are_random() -> None:
    desk = Desk()
    asked = [desk.connect(Handle(Role.ACTIVE, serial)) for serial in range(50)]
    ids = {req.local_id for req in asked}
    psns = {req.psn for req in asked}
    assert len(ids) == len(psns) == 50
    assert max(ids) - min(ids) > 1 << 28
    assert max(psns) - min(psns) > 1 << 20


def test_a_request_is_repeated_and_then_given_up_with_our_guid() -> None:
    """X2."""
    desk = Desk()
    req = desk.connect()
    effects = desk.wait(WAIT_S * (CM_RETRIES + 0.5))
    assert sent(effects) == [req] * CM_RETRIES
    assert reported(effects) == []
    effects = desk.wait(WAIT_S)
    guid = A_GUID.to_bytes(8, "big")
    assert only(effects) == cm.Rej(req.local_id, 0, About.OTHER, Reason.TIMEOUT, guid, bytes(148))
    assert reported(effects) == [Ended(OURS, Cause.NO_ANSWER)]
    assert len(desk.cm) == 0


def test_whoever_gives_up_asking_is_known_by_its_guid() -> None:
    desk = Desk()
    (requested,) = reported(desk.receive(REQ))
    guid = B_GUID.to_bytes(8, "big")
    gave_up = cm.Rej(PEER_ID, 0, About.OTHER, Reason.TIMEOUT, guid)
    assert reported(desk.receive(replace(gave_up, info=A_GUID.to_bytes(8, "big")))) == []
    (ended,) = reported(desk.receive(gave_up))
    assert ended == Ended(requested.handle, Cause.NO_ANSWER, Reason.TIMEOUT)


def test_giving_up_is_understood_without_a_grh() -> None:
    desk = Desk()
    plain = MadSource(Qpn(GSI_QPN), None, lid=12)
    (requested,) = reported(desk.receive(REQ, plain))
    gave_up = cm.Rej(PEER_ID, 0, About.OTHER, Reason.TIMEOUT, B_GUID.to_bytes(8, "big"))
    assert reported(desk.receive(gave_up, replace(plain, lid=13))) == []
    assert reported(desk.receive(gave_up, plain)) == [
        Ended(requested.handle, Cause.NO_ANSWER, Reason.TIMEOUT)
    ]


def test_a_reply_is_repeated_as_often_as_the_peer_asked_within_our_limit() -> None:
    desk = Desk()
    (requested,) = reported(desk.receive(replace(REQ, local_timeout=16, cm_retries=2)))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    effects = desk.wait(seconds(16) * 2.5)
    assert sent(effects) == [rep] * 2
    effects = desk.wait(seconds(16))
    assert only(effects) == cm.Dreq(rep.local_id, PEER_ID, Qpn(0x4A), bytes(220))
    assert reported(effects) == [Ended(requested.handle, Cause.NO_ANSWER)]
    assert reported(desk.receive(cm.Rtu(PEER_ID, rep.local_id))) == []  # too late
    assert len(sent(desk.wait(seconds(16) * 2))) == 2  # a DREQ is repeated, where a REJ is not
    desk.wait(60)
    assert len(desk.cm) == 0


@pytest.mark.parametrize(
    ("code", "expected_s"),
    [(0, CM_WAIT_MIN_S), (10, CM_WAIT_MIN_S), (18, seconds(18)), (31, CM_WAIT_MAX_S)],
)
def test_a_peers_time_out_is_bounded_by_ours(code: int, expected_s: float) -> None:
    desk = Desk()
    (requested,) = reported(desk.receive(replace(REQ, local_timeout=code)))
    desk.do(Accept(requested.handle, Qpn(0x51), b""))
    assert desk.cm.deadline() == pytest.approx(desk.now + expected_s)


def test_a_peers_ack_time_out_is_bounded_and_never_for_ever() -> None:
    for code, expected in ((0, CONFIG.ack_timeout), (5, 5), (31, 20)):
        primary = replace(REQ.primary, ack_timeout=code)
        (requested,) = reported(Desk().receive(replace(REQ, primary=primary)))
        assert isinstance(requested, Requested)
        assert requested.attributes.ack_timeout == expected


def test_half_open_requests_end_within_a_minute_whatever_the_peer_asks_for() -> None:
    desk = Desk()
    (requested,) = reported(desk.receive(replace(REQ, local_timeout=31, cm_retries=15)))
    desk.do(Accept(requested.handle, Qpn(0x51), b""))
    assert reported(desk.wait(60)) == [Ended(requested.handle, Cause.NO_ANSWER)]
    desk.wait(60)
    assert len(desk.cm) == 0


def test_who_thinks_too_long_asks_the_peer_to_wait_then_refuses() -> None:
    """MRA, §12.6.6: the passive side."""
    desk = Desk()
    (requested,) = reported(desk.receive(REQ))
    mra = only(desk.wait(3))
    assert isinstance(mra, cm.Mra)
    assert (mra.remote_id, mra.about) == (PEER_ID, About.REQ)
    assert only(desk.receive(REQ)) == mra  # again, since it may be lost
    effects = desk.wait(seconds(mra.service_timeout))
    (rej,) = sent(effects)
    assert isinstance(rej, cm.Rej)
    assert (rej.local_id, rej.about, rej.reason) == (mra.local_id, About.REQ, Reason.NO_RESOURCES)
    assert reported(effects) == [Ended(requested.handle, Cause.OVERDUE)]
    assert desk.do(Accept(requested.handle, Qpn(0x51), b"")) == []  # too late


def test_who_thinks_too_long_about_a_reply_asks_for_time_too() -> None:
    desk = Desk()
    rep = rep_to(desk.connect())
    desk.receive(rep)
    mra = only(desk.wait(1))
    assert isinstance(mra, cm.Mra)
    assert (mra.remote_id, mra.about) == (PEER_ID, About.REP)
    assert only(desk.receive(rep)) == mra
    assert isinstance(only(desk.do(Confirm(OURS))), cm.Rtu)


def test_a_peer_that_asks_for_time_gets_it_once_and_within_bounds() -> None:
    desk = Desk()
    req = desk.connect()
    mra = cm.Mra(PEER_ID, req.local_id, About.REQ, 31)  # 2.4 hours
    assert desk.receive(mra) == []
    assert desk.cm.deadline() == pytest.approx(desk.now + CM_RESPITE_MAX_S + WAIT_S)
    first = desk.cm.deadline()
    desk.wait(5)
    assert counts(desk.receive(mra)) == ["cm_duplicate"]
    assert desk.cm.deadline() == first
    effects = desk.wait(CM_RESPITE_MAX_S)
    assert sent(effects)[0] == req  # asked again
    assert reported(desk.receive(rep_to(req))) != []


def test_a_peer_that_asks_for_time_before_its_rtu_gets_it() -> None:
    desk = Desk()
    (requested,) = reported(desk.receive(REQ))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    desk.receive(cm.Mra(PEER_ID, rep.local_id, About.REP, 20))
    assert sent(desk.wait(8)) == []
    assert only(desk.wait(1)) == rep
    assert reported(desk.receive(cm.Rtu(PEER_ID, rep.local_id))) == [Established(requested.handle)]


def test_a_request_that_comes_again_is_answered_by_the_reply_that_was_lost() -> None:
    desk = Desk()
    (requested,) = reported(desk.receive(REQ))
    assert counts(desk.receive(REQ)) == ["cm_duplicate"]  # nothing to say yet
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    assert only(desk.receive(REQ)) == rep
    desk.receive(cm.Rtu(PEER_ID, rep.local_id))
    assert sent(desk.receive(REQ)) == []
    assert desk.states == [State.ESTABLISHED]


def test_a_reply_that_comes_again_is_answered_by_the_rtu_that_was_lost() -> None:
    desk = Desk()
    req = desk.connect()
    rep = rep_to(req)
    desk.receive(rep)
    assert counts(desk.receive(rep)) == ["cm_duplicate"]
    rtu = only(desk.do(Confirm(OURS)))
    assert only(desk.receive(rep)) == rtu
    assert desk.states == [State.ESTABLISHED]


def test_a_dreq_that_comes_again_is_answered_again_even_when_all_is_forgotten() -> None:
    desk = Desk()
    req = desk.connect()
    desk.receive(rep_to(req))
    desk.do(Confirm(OURS))
    dreq = cm.Dreq(PEER_ID, req.local_id, req.qpn)
    drep = cm.Drep(req.local_id, PEER_ID, bytes(224))
    assert only(desk.receive(dreq)) == drep
    assert only(desk.receive(dreq)) == drep
    desk.wait(CM_TIMEWAIT_S)
    assert len(desk.cm) == 0
    assert only(desk.receive(dreq)) == drep


def test_ends_that_cross_are_one_end() -> None:
    desk = Desk()
    req = desk.connect()
    desk.receive(rep_to(req))
    desk.do(Confirm(OURS))
    desk.do(Disconnect(OURS))
    effects = desk.receive(cm.Dreq(PEER_ID, req.local_id, req.qpn))
    assert isinstance(only(effects), cm.Drep)
    assert reported(effects) == []
    assert desk.states == [State.TIME_WAIT]


def test_a_dreq_is_repeated_and_then_the_end_is_taken_for_granted() -> None:
    desk = Desk()
    req = desk.connect()
    desk.receive(rep_to(req))
    desk.do(Confirm(OURS))
    dreq = only(desk.do(Disconnect(OURS)))
    effects = desk.wait(60)
    assert sent(effects) == [dreq] * CM_RETRIES
    assert reported(effects) == []
    assert len(desk.cm) == 0


def test_a_dreq_for_another_queue_pair_is_not_believed() -> None:
    desk = Desk()
    req = desk.connect()
    desk.receive(rep_to(req))
    desk.do(Confirm(OURS))
    effects = desk.receive(cm.Dreq(PEER_ID, req.local_id, Qpn(0x99)))
    assert sent(effects) == []  # the sender would take a DREP for the end
    assert reported(effects) == []
    assert desk.states == [State.ESTABLISHED]


def test_a_request_that_is_late_does_not_come_back_to_life() -> None:
    desk = Desk()
    (requested,) = reported(desk.receive(REQ))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    desk.receive(cm.Rtu(PEER_ID, rep.local_id))
    desk.receive(cm.Dreq(PEER_ID, rep.local_id, Qpn(0x51)))
    effects = desk.receive(REQ)
    (rej,) = sent(effects)
    assert isinstance(rej, cm.Rej)
    assert (rej.about, rej.reason) == (About.REQ, Reason.STALE_CONNECTION)
    assert rej.remote_id == PEER_ID
    assert reported(effects) == []


def accepted(desk: Desk, req: Req) -> tuple[Requested, Rep]:
    """B asks, and the policy accepts."""
    (requested,) = reported(desk.receive(req))
    assert isinstance(requested, Requested)
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    return requested, rep


def test_a_peer_that_lost_its_connection_and_proves_itself_ends_ours() -> None:
    """§12.9.8.3.1, stale connections: the same queue pair, another communication id."""
    desk = Desk()
    first, rep = accepted(desk, REQ)
    desk.receive(cm.Rtu(PEER_ID, rep.local_id))
    second, rep = accepted(desk, replace(REQ, local_id=PEER_ID + 1))
    assert second.handle != first.handle
    effects = desk.receive(cm.Rtu(PEER_ID + 1, rep.local_id))
    assert reported(effects) == [Ended(first.handle, Cause.STALE), Established(second.handle)]
    assert isinstance(only(effects), cm.Dreq)
    assert "cm_stale" in counts(effects)


def test_requests_with_a_false_source_do_not_end_the_connection_of_that_peer() -> None:
    """The REPs go to the real peer, which refuses them, or to nobody."""
    desk = Desk()
    first, rep = accepted(desk, REQ)
    desk.receive(cm.Rtu(PEER_ID, rep.local_id))
    desk.effects.clear()
    for number in range(1, 20):
        forged = replace(REQ, local_id=PEER_ID + number)
        for event in reported(desk.receive(forged)):
            assert isinstance(event, Requested)
            desk.do(Accept(event.handle, Qpn(0x52), b""))
    refused, *unanswered = [it for it in sent(desk.effects) if isinstance(it, Rep)]
    assert unanswered
    desk.receive(cm.Rej(refused.remote_id, refused.local_id, About.REP, Reason.INVALID_COMM_ID))
    for rep in unanswered:  # the forger does not see the REPs
        desk.receive(cm.Rtu(rep.remote_id, rep.local_id ^ 1))
    desk.wait(120)
    ended = [it.handle for it in desk.effects if isinstance(it, Ended)]
    assert len(ended) == 1 + len(unanswered)
    assert first.handle not in ended
    assert (first.handle, State.ESTABLISHED) in list(desk.cm.snapshot())


def test_a_forged_request_does_not_refuse_the_reply_of_the_real_peer() -> None:
    """It names the queue pair that B is about to answer with."""
    desk = Desk()
    accepted(desk, replace(REQ, local_id=PEER_ID + 1))
    effects = desk.receive(rep_to(desk.connect()))
    assert [type(event) for event in reported(effects)] == [Replied]
    assert Established(OURS) in desk.do(Confirm(OURS))


def test_a_reply_from_a_queue_pair_in_use_ends_both_connections() -> None:
    desk = Desk()
    desk.receive(rep_to(desk.connect()))
    desk.do(Confirm(OURS))
    other = Handle(Role.ACTIVE, 8)
    rep = replace(rep_to(desk.connect(other)), local_id=PEER_ID + 1)
    effects = desk.receive(rep)
    assert reported(effects) == [Ended(OURS, Cause.STALE), Ended(other, Cause.STALE)]
    assert [type(message) for message in sent(effects)] == [cm.Dreq, cm.Rej]
