# SPDX-License-Identifier: BSD-2-Clause
"""The communication manager: hand-shakes message by message, and what must not happen."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipoibu.addr import Gid, PKey, Qpn
from ipoibu.fabric.base import Destination
from ipoibu.limits import (
    CM_ANSWERS_BURST,
    CM_RESPITE_MAX_S,
    CM_RETRIES,
    CM_TIMEWAIT_S,
    CM_WAIT_MAX_S,
    CM_WAIT_MIN_S,
)
from ipoibu.proto.cm import Cm, CmConfig, MadSource
from ipoibu.proto.effects import Count
from ipoibu.proto.handshake import State
from ipoibu.proto.rc import (
    CAUSES,
    Accept,
    Cause,
    CmEffect,
    Confirm,
    Connect,
    ConnectionManager,
    Disconnect,
    Ended,
    Established,
    Handle,
    Reject,
    Replied,
    Requested,
    Role,
    SendMad,
)
from ipoibu.wire import cm
from ipoibu.wire.cm_code import About, Attribute, Reason, Transport, seconds
from ipoibu.wire.cm_setup import Path, Rep, Req
from ipoibu.wire.mad import GSI_QPN

A: Final = Gid.parse("fe80::215:5dff:fd33:ff0b")
B: Final = Gid.parse("fe80::215:5dff:fd33:ff0c")
STRANGER: Final = Gid.parse("fe80::bad")
A_GUID: Final = 0x00155DFFFD33FF0B
B_GUID: Final = 0x00155DFFFD33FF0C
PKEY: Final = PKey(0xFFFF)
SERVICE: Final = 0x1000000000000049
CONFIG: Final = CmConfig(A, A_GUID, PKEY, 2048)
FROM_B: Final = MadSource(Qpn(GSI_QPN), B)
WAIT_S: Final = seconds(CONFIG.response_timeout)
OURS: Final = Handle(Role.ACTIVE, 7)
PEER_ID: Final = 0xB0B0B0B0
TID: Final = 0x1122334455667788
REQ: Final = Req(
    local_id=PEER_ID,
    service_id=SERVICE,
    ca_guid=B_GUID,
    qpn=Qpn(0x4A),
    psn=0x123456,
    pkey=PKEY,
    mtu=4,
    primary=Path(B, A, 0xFFFF, 0xFFFF, 0x12345, 3, 5, 64, 2, False, 19),
    private=b"hello",
    remote_timeout=20,
    local_timeout=20,
    cm_retries=15,
    has_srq=True,
)


class Desk:
    """A manager at port A, with what it said so far."""

    def __init__(self, config: CmConfig = CONFIG) -> None:
        self.cm = Cm(config, random.Random(1))
        self.cm.listen(frozenset({SERVICE}))
        self.now = 100.0
        self.effects: list[CmEffect] = []

    def do(self, request: Connect | Confirm | Accept | Reject | Disconnect) -> list[CmEffect]:
        return self._note(self.cm.request(self.now, request))

    def hear(
        self, message: cm.Spoken, source: MadSource = FROM_B, tid: int = TID
    ) -> list[CmEffect]:
        return self._note(self.cm.received(self.now, source, cm.pack(tid, message)))

    def wait(self, seconds_: float) -> list[CmEffect]:
        """Let time pass, from deadline to deadline."""
        until, happened = self.now + seconds_, []
        while (at := self.cm.deadline()) is not None and at <= until:
            self.now = at
            happened += self._note(self.cm.timer(at))
        self.now = until
        return happened

    def connect(self, handle: Handle = OURS) -> Req:
        """Ask B, and return what was sent."""
        way = Destination(B, Qpn(0x49))
        effects = self.do(Connect(handle, way, SERVICE, Qpn(0x50), 2048, b"hi"))
        message = only(effects)
        assert isinstance(message, Req)
        return message

    @property
    def states(self) -> list[State]:
        return [state for _, state in self.cm.snapshot()]

    def _note(self, effects: list[CmEffect]) -> list[CmEffect]:
        self.effects += effects
        return effects


def sent(effects: list[CmEffect]) -> list[cm.Message]:
    return [cm.parse_untrusted(it.raw)[1] for it in effects if isinstance(it, SendMad)]


def only(effects: list[CmEffect]) -> cm.Message:
    (message,) = sent(effects)
    return message


def counts(effects: list[CmEffect]) -> list[str]:
    return [it.reason for it in effects if isinstance(it, Count)]


def told(effects: list[CmEffect]) -> list[Requested | Replied | Established | Ended]:
    return [it for it in effects if isinstance(it, Requested | Replied | Established | Ended)]


def rep_to(req: Req) -> Rep:
    return Rep(PEER_ID, req.local_id, B_GUID, Qpn(0x4A), 0xABCDEF, b"welcome", rnr_retries=1)


def test_the_active_side_from_connect_to_the_end() -> None:
    desk = Desk()
    req = desk.connect()
    (mad,) = (it for it in desk.effects if isinstance(it, SendMad))
    assert (mad.destination.gid, mad.destination.qpn) == (B, GSI_QPN)
    assert (req.service_id, req.qpn, req.ca_guid, req.pkey) == (SERVICE, 0x50, A_GUID, PKEY)
    assert (req.primary.local_gid, req.primary.remote_gid) == (A, B)
    assert (req.transport, req.mtu, req.has_srq) == (Transport.RC, 4, True)
    assert (req.retries, req.rnr_retries) == (0, 0)  # C11
    assert req.private.startswith(b"hi\0")
    rep = rep_to(req)
    (replied,) = told(desk.hear(rep))
    assert isinstance(replied, Replied)
    assert replied.private.startswith(b"welcome\0")
    attributes = replied.attributes
    assert (attributes.destination.gid, attributes.destination.qpn) == (B, 0x4A)
    # a message's starting PSN is what its receiver sends with
    assert (attributes.send_psn, attributes.receive_psn) == (rep.psn, req.psn)
    assert (attributes.path_mtu_bytes, attributes.retries, attributes.rnr_retries) == (2048, 0, 1)
    effects = desk.do(Confirm(OURS))
    assert only(effects) == cm.Rtu(req.local_id, PEER_ID, bytes(224))
    assert told(effects) == [Established(OURS)]
    dreq = only(desk.do(Disconnect(OURS)))
    assert dreq == cm.Dreq(req.local_id, PEER_ID, Qpn(0x4A), bytes(220))
    assert told(desk.hear(cm.Drep(PEER_ID, req.local_id))) == []
    assert desk.states == [State.TIME_WAIT]
    desk.wait(CM_TIMEWAIT_S)
    assert len(desk.cm) == 0
    assert desk.cm.deadline() is None


def test_the_passive_side_from_request_to_the_end() -> None:
    desk = Desk()
    (requested,) = told(desk.hear(REQ))
    assert isinstance(requested, Requested)
    assert (requested.gid, requested.service_id) == (B, SERVICE)
    assert requested.private.startswith(b"hello\0")
    attributes = requested.attributes
    way = attributes.destination
    assert (way.gid, way.qpn, way.sl, way.hop_limit) == (B, 0x4A, 2, 64)
    assert (way.traffic_class, way.flow_label, way.static_rate) == (5, 0x12345, 3)
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
    assert told(desk.hear(cm.Rtu(PEER_ID, rep.local_id))) == [Established(requested.handle)]
    effects = desk.hear(cm.Dreq(PEER_ID, rep.local_id, Qpn(0x51)), tid=9)
    (mad,) = (it for it in effects if isinstance(it, SendMad))
    assert cm.parse_untrusted(mad.raw) == (9, cm.Drep(rep.local_id, PEER_ID, bytes(224)))
    assert told(effects) == [Ended(requested.handle, Cause.DISCONNECTED)]
    desk.wait(CM_TIMEWAIT_S)
    assert len(desk.cm) == 0


def test_the_manager_keeps_the_contract_that_the_policy_relies_on() -> None:
    """mypy holds the types to it; this, that a policy can be driven by nothing but the contract."""
    manager: ConnectionManager = Cm(CONFIG, random.Random(1))
    manager.listen(frozenset({SERVICE}))
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
    desk = Desk()
    req = desk.connect()
    effects = desk.wait(WAIT_S * (CM_RETRIES + 0.5))
    assert sent(effects) == [req] * CM_RETRIES
    assert told(effects) == []
    effects = desk.wait(WAIT_S)
    guid = A_GUID.to_bytes(8, "big")
    assert only(effects) == cm.Rej(req.local_id, 0, About.OTHER, Reason.TIMEOUT, guid, bytes(148))
    assert told(effects) == [Ended(OURS, Cause.NO_ANSWER)]
    assert len(desk.cm) == 0


def test_whoever_gives_up_asking_is_known_by_its_guid() -> None:
    desk = Desk()
    (requested,) = told(desk.hear(REQ))
    guid = B_GUID.to_bytes(8, "big")
    gave_up = cm.Rej(PEER_ID, 0, About.OTHER, Reason.TIMEOUT, guid)
    assert told(desk.hear(replace(gave_up, info=A_GUID.to_bytes(8, "big")))) == []
    (ended,) = told(desk.hear(gave_up))
    assert ended == Ended(requested.handle, Cause.NO_ANSWER, Reason.TIMEOUT)


def test_giving_up_is_understood_without_a_grh() -> None:
    desk = Desk()
    plain = MadSource(Qpn(GSI_QPN), None, lid=12)
    (requested,) = told(desk.hear(REQ, plain))
    gave_up = cm.Rej(PEER_ID, 0, About.OTHER, Reason.TIMEOUT, B_GUID.to_bytes(8, "big"))
    assert told(desk.hear(gave_up, replace(plain, lid=13))) == []
    assert told(desk.hear(gave_up, plain)) == [
        Ended(requested.handle, Cause.NO_ANSWER, Reason.TIMEOUT)
    ]


def test_a_reply_is_repeated_as_often_as_the_peer_asked_within_our_limit() -> None:
    desk = Desk()
    (requested,) = told(desk.hear(replace(REQ, local_timeout=16, cm_retries=2)))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    effects = desk.wait(seconds(16) * 2.5)
    assert sent(effects) == [rep] * 2
    effects = desk.wait(seconds(16))
    assert only(effects) == cm.Dreq(rep.local_id, PEER_ID, Qpn(0x4A), bytes(220))
    assert told(effects) == [Ended(requested.handle, Cause.NO_ANSWER)]
    assert told(desk.hear(cm.Rtu(PEER_ID, rep.local_id))) == []  # too late
    assert len(sent(desk.wait(seconds(16) * 2))) == 2  # a DREQ is repeated, where a REJ is not
    desk.wait(60)
    assert len(desk.cm) == 0


@pytest.mark.parametrize(
    ("code", "expected_s"),
    [(0, CM_WAIT_MIN_S), (10, CM_WAIT_MIN_S), (18, seconds(18)), (31, CM_WAIT_MAX_S)],
)
def test_a_peers_time_out_is_bounded_by_ours(code: int, expected_s: float) -> None:
    desk = Desk()
    (requested,) = told(desk.hear(replace(REQ, local_timeout=code)))
    desk.do(Accept(requested.handle, Qpn(0x51), b""))
    assert desk.cm.deadline() == pytest.approx(desk.now + expected_s)


def test_a_peers_ack_time_out_is_bounded_and_never_for_ever() -> None:
    for code, expected in ((0, CONFIG.ack_timeout), (5, 5), (31, 20)):
        primary = replace(REQ.primary, ack_timeout=code)
        (requested,) = told(Desk().hear(replace(REQ, primary=primary)))
        assert isinstance(requested, Requested)
        assert requested.attributes.ack_timeout == expected


def test_half_open_requests_end_within_a_minute_whatever_the_peer_asks_for() -> None:
    desk = Desk()
    (requested,) = told(desk.hear(replace(REQ, local_timeout=31, cm_retries=15)))
    desk.do(Accept(requested.handle, Qpn(0x51), b""))
    assert told(desk.wait(60)) == [Ended(requested.handle, Cause.NO_ANSWER)]
    desk.wait(60)
    assert len(desk.cm) == 0


def test_who_thinks_too_long_asks_the_peer_to_wait_then_refuses() -> None:
    """MRA, §12.6.6: the passive side."""
    desk = Desk()
    (requested,) = told(desk.hear(REQ))
    mra = only(desk.wait(3))
    assert isinstance(mra, cm.Mra)
    assert (mra.remote_id, mra.about) == (PEER_ID, About.REQ)
    assert only(desk.hear(REQ)) == mra  # again, since it may be lost
    effects = desk.wait(seconds(mra.service_timeout))
    (rej,) = sent(effects)
    assert isinstance(rej, cm.Rej)
    assert (rej.local_id, rej.about, rej.reason) == (mra.local_id, About.REQ, Reason.NO_RESOURCES)
    assert told(effects) == [Ended(requested.handle, Cause.OVERDUE)]
    assert desk.do(Accept(requested.handle, Qpn(0x51), b"")) == []  # too late


def test_who_thinks_too_long_about_a_reply_asks_for_time_too() -> None:
    desk = Desk()
    rep = rep_to(desk.connect())
    desk.hear(rep)
    mra = only(desk.wait(1))
    assert isinstance(mra, cm.Mra)
    assert (mra.remote_id, mra.about) == (PEER_ID, About.REP)
    assert only(desk.hear(rep)) == mra
    assert isinstance(only(desk.do(Confirm(OURS))), cm.Rtu)


def test_a_peer_that_asks_for_time_gets_it_once_and_within_bounds() -> None:
    desk = Desk()
    req = desk.connect()
    mra = cm.Mra(PEER_ID, req.local_id, About.REQ, 31)  # 2.4 hours
    assert desk.hear(mra) == []
    assert desk.cm.deadline() == pytest.approx(desk.now + CM_RESPITE_MAX_S + WAIT_S)
    first = desk.cm.deadline()
    desk.wait(5)
    assert counts(desk.hear(mra)) == ["cm_duplicate"]
    assert desk.cm.deadline() == first
    effects = desk.wait(CM_RESPITE_MAX_S)
    assert sent(effects)[0] == req  # asked again
    assert told(desk.hear(rep_to(req))) != []


def test_a_peer_that_asks_for_time_before_its_rtu_gets_it() -> None:
    desk = Desk()
    (requested,) = told(desk.hear(REQ))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    desk.hear(cm.Mra(PEER_ID, rep.local_id, About.REP, 20))
    assert sent(desk.wait(8)) == []
    assert only(desk.wait(1)) == rep
    assert told(desk.hear(cm.Rtu(PEER_ID, rep.local_id))) == [Established(requested.handle)]


def test_a_request_that_comes_again_is_answered_by_the_reply_that_was_lost() -> None:
    desk = Desk()
    (requested,) = told(desk.hear(REQ))
    assert counts(desk.hear(REQ)) == ["cm_duplicate"]  # nothing to say yet
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    assert only(desk.hear(REQ)) == rep
    desk.hear(cm.Rtu(PEER_ID, rep.local_id))
    assert sent(desk.hear(REQ)) == []
    assert desk.states == [State.ESTABLISHED]


def test_a_reply_that_comes_again_is_answered_by_the_rtu_that_was_lost() -> None:
    desk = Desk()
    req = desk.connect()
    rep = rep_to(req)
    desk.hear(rep)
    assert counts(desk.hear(rep)) == ["cm_duplicate"]
    rtu = only(desk.do(Confirm(OURS)))
    assert only(desk.hear(rep)) == rtu
    assert desk.states == [State.ESTABLISHED]


def test_a_dreq_that_comes_again_is_answered_again_even_when_all_is_forgotten() -> None:
    desk = Desk()
    req = desk.connect()
    desk.hear(rep_to(req))
    desk.do(Confirm(OURS))
    dreq = cm.Dreq(PEER_ID, req.local_id, req.qpn)
    drep = cm.Drep(req.local_id, PEER_ID, bytes(224))
    assert only(desk.hear(dreq)) == drep
    assert only(desk.hear(dreq)) == drep
    desk.wait(CM_TIMEWAIT_S)
    assert len(desk.cm) == 0
    assert only(desk.hear(dreq)) == drep


def test_ends_that_cross_are_one_end() -> None:
    desk = Desk()
    req = desk.connect()
    desk.hear(rep_to(req))
    desk.do(Confirm(OURS))
    desk.do(Disconnect(OURS))
    effects = desk.hear(cm.Dreq(PEER_ID, req.local_id, req.qpn))
    assert isinstance(only(effects), cm.Drep)
    assert told(effects) == []
    assert desk.states == [State.TIME_WAIT]


def test_a_dreq_is_repeated_and_then_the_end_is_taken_for_granted() -> None:
    desk = Desk()
    req = desk.connect()
    desk.hear(rep_to(req))
    desk.do(Confirm(OURS))
    dreq = only(desk.do(Disconnect(OURS)))
    effects = desk.wait(60)
    assert sent(effects) == [dreq] * CM_RETRIES
    assert told(effects) == []
    assert len(desk.cm) == 0


def test_a_dreq_for_another_queue_pair_is_not_believed() -> None:
    desk = Desk()
    req = desk.connect()
    desk.hear(rep_to(req))
    desk.do(Confirm(OURS))
    effects = desk.hear(cm.Dreq(PEER_ID, req.local_id, Qpn(0x99)))
    assert told(effects) == []
    assert desk.states == [State.ESTABLISHED]


def test_a_request_that_is_late_does_not_come_back_to_life() -> None:
    desk = Desk()
    (requested,) = told(desk.hear(REQ))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    desk.hear(cm.Rtu(PEER_ID, rep.local_id))
    desk.hear(cm.Dreq(PEER_ID, rep.local_id, Qpn(0x51)))
    effects = desk.hear(REQ)
    (rej,) = sent(effects)
    assert isinstance(rej, cm.Rej)
    assert (rej.about, rej.reason) == (About.REQ, Reason.STALE_CONNECTION)
    assert rej.remote_id == PEER_ID
    assert told(effects) == []


def test_a_peer_that_lost_its_connection_ends_ours_and_may_ask_again() -> None:
    """§12.9.8.3.1, stale connections: the same queue pair, another communication id."""
    desk = Desk()
    (requested,) = told(desk.hear(REQ))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    desk.hear(cm.Rtu(PEER_ID, rep.local_id))
    again = replace(REQ, local_id=PEER_ID + 1)
    effects = desk.hear(again)
    assert told(effects) == [Ended(requested.handle, Cause.STALE)]
    dreq, rej = sent(effects)
    assert isinstance(dreq, cm.Dreq)
    assert isinstance(rej, cm.Rej)
    assert (rej.reason, rej.remote_id) == (Reason.STALE_CONNECTION, PEER_ID + 1)
    (fresh,) = told(desk.hear(replace(again, local_id=PEER_ID + 2)))
    assert isinstance(fresh, Requested)
    assert fresh.handle != requested.handle


def test_a_reply_from_a_queue_pair_in_use_ends_both_connections() -> None:
    desk = Desk()
    desk.hear(rep_to(desk.connect()))
    desk.do(Confirm(OURS))
    other = Handle(Role.ACTIVE, 8)
    rep = replace(rep_to(desk.connect(other)), local_id=PEER_ID + 1)
    effects = desk.hear(rep)
    assert told(effects) == [Ended(OURS, Cause.STALE), Ended(other, Cause.STALE)]
    assert [type(message) for message in sent(effects)] == [cm.Dreq, cm.Rej]


def test_another_port_with_the_same_numbers_is_another_peer() -> None:
    """A CA's GUID is a claim: nobody ends another's connections by it."""
    desk = Desk()
    (requested,) = told(desk.hear(REQ))
    foreign = replace(REQ, local_id=5, primary=replace(REQ.primary, local_gid=STRANGER))
    (other,) = told(desk.hear(foreign, MadSource(Qpn(GSI_QPN), STRANGER)))
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
    effects = desk.hear(message, MadSource(Qpn(GSI_QPN), STRANGER))
    assert counts(effects) == ["cm_foreign"]
    assert desk.states == [State.REQ_SENT]
    desk.hear(message, FROM_B)
    assert desk.states != [State.REQ_SENT]


def test_a_copied_request_from_elsewhere_is_not_taken_for_the_first() -> None:
    desk = Desk()
    (_,) = told(desk.hear(REQ, MadSource(Qpn(GSI_QPN), None, lid=7)))
    assert counts(desk.hear(REQ, MadSource(Qpn(GSI_QPN), None, lid=8))) == ["cm_foreign"]


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
    effects = desk.hear(req)
    assert only(effects) == cm.Rej(0, req.local_id, About.REQ, reason, info, bytes(148))
    assert told(effects) == []
    assert len(desk.cm) == 0


def test_limited_membership_of_the_partition_is_membership() -> None:
    assert told(Desk().hear(replace(REQ, pkey=PKey(0x7FFF)))) != []


def test_without_a_grh_the_way_back_is_the_lid() -> None:
    desk = Desk()
    source = MadSource(Qpn(GSI_QPN), None, lid=12, sl=3)
    effects = desk.hear(REQ, source)
    (requested,) = told(effects)
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
    (requested,) = told(desk.hear(replace(REQ, primary=primary), source))
    assert isinstance(requested, Requested)
    assert requested.attributes.destination.dlid == 99
    assert requested.attributes.destination.hop_limit == 1


def test_a_local_path_is_asked_for_with_lids_a_routed_one_without() -> None:
    """As Linux does: with a hop limit above 1 LIDs mean nothing."""
    desk = Desk(replace(CONFIG, lid=7))
    for hop_limit, lids in ((1, (7, 9)), (64, (0xFFFF, 0xFFFF))):
        way = Destination(B, Qpn(0x49), dlid=9, hop_limit=hop_limit)
        handle = Handle(Role.ACTIVE, hop_limit)
        req = only(desk.do(Connect(handle, way, SERVICE, Qpn(0x50), 1024, b"")))
        assert isinstance(req, Req)
        assert (req.primary.local_lid, req.primary.remote_lid) == lids
        assert req.primary.subnet_local == (hop_limit == 1)
        assert req.mtu == 3


@pytest.mark.parametrize("reason", [*Reason, 34, 99, 0xFFFF])
def test_every_reason_of_a_peer_has_a_named_cause(reason: int) -> None:
    desk = Desk()
    req = desk.connect()
    effects = desk.hear(cm.Rej(0, req.local_id, About.REQ, reason))
    assert told(effects) == [Ended(OURS, CAUSES.get(reason, Cause.INCOMPATIBLE), reason)]
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
        (requested,) = told(desk.hear(REQ))
        rej = only(desk.do(Reject(requested.handle, reason, b"who")))
        assert isinstance(rej, cm.Rej)
        assert (rej.local_id, rej.remote_id, rej.about) == (0, PEER_ID, About.REQ)
        assert rej.reason == reason
        assert rej.private.startswith(b"who\0")
        assert len(desk.cm) == 0


def test_a_reply_can_be_rejected() -> None:
    desk = Desk()
    req = desk.connect()
    desk.hear(rep_to(req))
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
    effects = desk.hear(replace(rep_to(req), **rep))  # type: ignore[arg-type]
    assert counts(effects) == ["cm_unexpected"]
    assert desk.states == [State.REQ_SENT]
    assert told(desk.hear(rep_to(req))) != []


def test_who_believes_in_a_connection_that_is_not_there_is_told() -> None:
    desk = Desk()
    rep = Rep(PEER_ID, 0xDEAD, B_GUID, Qpn(0x4A), 1)
    rej = only(desk.hear(rep))
    assert rej == cm.Rej(0xDEAD, PEER_ID, About.REP, Reason.INVALID_COMM_ID, b"", bytes(148))
    drep = only(desk.hear(cm.Dreq(PEER_ID, 0xDEAD, Qpn(1))))
    assert drep == cm.Drep(0xDEAD, PEER_ID, bytes(224))
    for quiet in (
        cm.Rtu(PEER_ID, 0xDEAD),
        cm.Drep(PEER_ID, 0xDEAD),
        cm.Mra(PEER_ID, 0xDEAD, About.REQ, 1),
        cm.Rej(PEER_ID, 0xDEAD, About.OTHER, Reason.CONSUMER),
    ):
        assert counts(desk.hear(quiet)) == ["cm_unexpected"]


def test_answers_to_nonsense_are_limited_in_rate() -> None:
    desk = Desk()
    replies = 0
    for number in range(1000):
        replies += len(sent(desk.hear(cm.Dreq(number, 0xDEAD, Qpn(1)))))
    assert replies == CM_ANSWERS_BURST
    desk.now += 1
    assert sent(desk.hear(cm.Dreq(1, 0xDEAD, Qpn(1)))) != []


def test_garbage_is_counted_by_its_reason() -> None:
    desk = Desk()
    good = cm.pack(TID, REQ)
    for raw, reason in (
        (b"", "mad_short"),
        (good[:200], "cm_short"),
        (b"\x02" + good[1:], "mad_version"),
        (good[:1] + b"\x03" + good[2:], "cm_class"),
    ):
        assert counts(desk.cm.received(1.0, FROM_B, raw)) == [reason]
    lap = good[:16] + b"\x00\x19" + good[18:]
    assert counts(desk.cm.received(1.0, FROM_B, lap)) == ["cm_unknown"]


# Caps


def flood(desk: Desk, number: int) -> list[CmEffect]:
    """One more request, from a port of its own."""
    gid = Gid.parse(f"fe80::1:{number:x}")
    primary = replace(REQ.primary, local_gid=gid)
    req = replace(REQ, local_id=number + 1, qpn=Qpn(number + 2), primary=primary)
    return desk.hear(req, MadSource(Qpn(GSI_QPN), gid))


def test_a_flood_of_requests_is_refused_at_the_cap_and_counted() -> None:
    desk = Desk(replace(CONFIG, half_open_max=10))
    taken = [told(flood(desk, number)) for number in range(10)]
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
    assert told(flood(desk, 1000)) != []


def test_one_port_cannot_take_all_the_room() -> None:
    desk = Desk(replace(CONFIG, half_open_per_port_max=3))
    for number in range(20):
        desk.hear(replace(REQ, local_id=number + 1, qpn=Qpn(number + 2)))
    assert len(desk.cm) == 3
    assert told(flood(desk, 1)) != []


def test_a_connection_that_begins_or_ends_makes_room_for_the_next_request() -> None:
    desk = Desk(replace(CONFIG, half_open_max=1))
    (requested,) = told(desk.hear(REQ))
    assert told(flood(desk, 1)) == []
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    assert told(flood(desk, 1)) == []
    desk.hear(cm.Rtu(PEER_ID, rep.local_id))
    (other,) = told(flood(desk, 1))
    desk.do(Reject(other.handle, Reason.CONSUMER))
    assert told(flood(desk, 2)) != []


def test_the_table_of_connections_has_a_cap_for_ours_and_theirs() -> None:
    desk = Desk(replace(CONFIG, connections_max=2))
    desk.connect(Handle(Role.ACTIVE, 1))
    desk.connect(Handle(Role.ACTIVE, 2))
    handle = Handle(Role.ACTIVE, 3)
    connect = Connect(handle, Destination(B, Qpn(0x49)), SERVICE, Qpn(0x50), 2048, b"")
    assert told(desk.do(connect)) == [Ended(handle, Cause.FULL)]
    effects = flood(desk, 1)
    assert counts(effects) == ["cm_full"]
    assert isinstance(only(effects), cm.Rej)


def test_time_wait_is_cut_short_when_there_is_no_room() -> None:
    desk = Desk(replace(CONFIG, connections_max=1))
    req = desk.connect()
    desk.hear(rep_to(req))
    desk.do(Confirm(OURS))
    desk.hear(cm.Dreq(PEER_ID, req.local_id, req.qpn))
    assert desk.states == [State.TIME_WAIT]
    desk.connect(Handle(Role.ACTIVE, 8))
    assert desk.states == [State.REQ_SENT]
    assert "cm_time_wait_cut" in counts(desk.effects)
    desk.wait(60)
    assert len(desk.cm) == 0


def test_what_left_time_wait_makes_no_room_twice() -> None:
    desk = Desk(replace(CONFIG, connections_max=1))
    req = desk.connect()
    desk.hear(rep_to(req))
    desk.do(Confirm(OURS))
    desk.hear(cm.Dreq(PEER_ID, req.local_id, req.qpn))
    desk.wait(CM_TIMEWAIT_S)
    desk.connect(Handle(Role.ACTIVE, 8))
    handle = Handle(Role.ACTIVE, 9)
    connect = Connect(handle, Destination(B, Qpn(0x49)), SERVICE, Qpn(0x50), 2048, b"")
    assert told(desk.do(connect)) == [Ended(handle, Cause.FULL)]
    assert desk.states == [State.REQ_SENT]


def test_two_requests_with_one_handle_are_the_callers_mistake() -> None:
    desk = Desk()
    desk.connect()
    with pytest.raises(ValueError, match="active-7 is under way"):
        desk.connect()


def test_stopping_says_farewell_once_and_forgets() -> None:
    desk = Desk()
    desk.hear(rep_to(desk.connect()))
    desk.do(Confirm(OURS))
    desk.connect(Handle(Role.ACTIVE, 8))
    flood(desk, 1)
    farewells = sent(desk.cm.stop(desk.now))
    assert sorted(type(message).__name__ for message in farewells) == ["Dreq", "Rej", "Rej"]
    assert len(desk.cm) == 0
    assert desk.cm.deadline() is None
    assert told(flood(desk, 2)) == []  # nobody listens


# Whatever comes, in whatever state


def to_state(desk: Desk, state: State) -> tuple[Handle, int]:
    """Bring a connection into a state; its handle, and our id of it."""
    if state in (State.REQ_SENT, State.MRA_RECEIVED, State.REP_RECEIVED, State.MRA_REP_SENT):
        req = desk.connect()
        match state:
            case State.MRA_RECEIVED:
                desk.hear(cm.Mra(PEER_ID, req.local_id, About.REQ, 20))
            case State.REP_RECEIVED | State.MRA_REP_SENT:
                desk.hear(rep_to(req))
                desk.wait(1.0 if state is State.MRA_REP_SENT else 0.0)
        return OURS, req.local_id
    (requested,) = told(desk.hear(REQ))
    if state in (State.REQ_RECEIVED, State.MRA_SENT):
        effects = desk.wait(3.0 if state is State.MRA_SENT else 0.0)
        ids = [message.local_id for message in sent(effects) if isinstance(message, cm.Mra)]
        return requested.handle, ids[0] if ids else next(iter(desk.cm._by_id))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    match state:
        case State.MRA_REP_RECEIVED:
            desk.hear(cm.Mra(PEER_ID, rep.local_id, About.REP, 20))
        case State.ESTABLISHED | State.DREQ_SENT | State.TIME_WAIT:
            desk.hear(cm.Rtu(PEER_ID, rep.local_id))
            if state is State.DREQ_SENT:
                desk.do(Disconnect(requested.handle))
            if state is State.TIME_WAIT:
                desk.hear(cm.Dreq(PEER_ID, rep.local_id, Qpn(0x51)))
    return requested.handle, rep.local_id


def peers_messages(our_id: int, their_id: int, qpn: int) -> list[cm.Spoken]:
    """Every kind, about every kind, with these identifiers."""
    return [
        replace(REQ, local_id=their_id),
        Rep(their_id, our_id, B_GUID, Qpn(0x4A), 1),
        cm.Rtu(their_id, our_id),
        *(cm.Mra(their_id, our_id, about, 31) for about in range(4)),
        *(
            cm.Rej(their_id, our_id, about, reason, B_GUID.to_bytes(8, "big"))
            for about in range(4)
            for reason in (Reason.TIMEOUT, Reason.STALE_CONNECTION, 999)
        ),
        cm.Dreq(their_id, our_id, Qpn(qpn)),
        cm.Drep(their_id, our_id),
    ]


LIVING: Final = [state for state in State if state is not State.CLOSED]


@pytest.mark.parametrize("state", LIVING)
def test_every_message_in_every_state_is_handled_and_everything_ends(state: State) -> None:
    """Right and wrong identifiers, each after a fresh start; what is left ends by itself or by us."""
    for our_offset in (0, 1):
        for their_id in (PEER_ID, PEER_ID + 1, 0):
            for qpn in (0x50, 0x51, 0):
                probe = Desk()
                _, our_id = to_state(probe, state)
                number = len(peers_messages(our_id, their_id, qpn))
                for at in range(number):
                    desk = Desk()
                    handle, our_id = to_state(desk, state)
                    assert state in desk.states
                    message = peers_messages(our_id + our_offset, their_id, qpn)[at]
                    desk.hear(message)
                    desk.hear(message)
                    desk.do(Disconnect(handle))
                    for fresh in [it for it in told(desk.effects) if isinstance(it, Requested)]:
                        desk.do(Disconnect(fresh.handle))
                    desk.wait(120)
                    assert len(desk.cm) == 0
                    ended = [it.handle for it in told(desk.effects) if isinstance(it, Ended)]
                    assert len(ended) == len(set(ended))


@pytest.mark.parametrize(
    "state", [state for state in LIVING if state not in (State.REQ_SENT, State.MRA_RECEIVED)]
)
def test_a_peer_that_ends_it_gets_its_answer_wherever_we_are(state: State) -> None:
    desk = Desk()
    handle, our_id = to_state(desk, state)
    thinking = state in (State.REQ_RECEIVED, State.MRA_SENT)
    ours = handle.role is Role.ACTIVE
    qpn = Qpn(0) if thinking else Qpn(0x50) if ours else Qpn(0x51)
    known = [it for it in told(desk.effects) if isinstance(it, Ended)]
    effects = desk.hear(cm.Dreq(PEER_ID, our_id, qpn))
    if thinking:  # there is nothing to end yet, and the peer cannot know better
        assert effects == []
        return
    assert only(effects) == cm.Drep(our_id, PEER_ID, bytes(224))
    over = state in (State.DREQ_SENT, State.TIME_WAIT)
    expected = [] if known or over else [Ended(handle, Cause.DISCONNECTED)]
    assert told(effects) == expected


moves = st.one_of(
    st.tuples(st.just("hear"), st.integers(0, 20), st.sampled_from([0, 1]), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 3, 5, 20]), st.just(0), st.just(0)),
    st.tuples(
        st.just("do"),
        st.sampled_from([0, 1, 2, 3, 4]),
        st.integers(0, 3),
        st.just(0),
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(moves, max_size=30))
def test_no_sequence_of_events_breaks_the_rules(
    sequence: list[tuple[str, int, int, int]],
) -> None:
    """The policy answers as it may, or not at all; a peer says whatever it likes."""
    desk = Desk(replace(CONFIG, connections_max=6, half_open_max=3))
    serial = 0
    for move, first, second, third in sequence:
        open_: dict[Handle, str] = {}
        for event in told(desk.effects):
            if isinstance(event, Ended):
                open_.pop(event.handle, None)
            else:
                open_[event.handle] = type(event).__name__
        ids = list(desk.cm._by_id) or [1]
        match move:
            case "hear":
                our_id = ids[first % len(ids)] + second
                messages = peers_messages(our_id, PEER_ID + third, 0x50 + second)
                desk.hear(messages[first % len(messages)])
            case "wait":
                desk.wait(first)
            case _ if first == 0:
                serial += 1
                way = Destination(B, Qpn(0x49))
                handle = Handle(Role.ACTIVE, serial)
                desk.do(Connect(handle, way, SERVICE, Qpn(0x50), 2048, b""))
            case _ if open_:
                handle, latest = list(open_.items())[second % len(open_)]
                if first == 1 or latest == "Established":
                    desk.do(Disconnect(handle))
                elif latest == "Replied":
                    desk.do(Confirm(handle) if first < 4 else Reject(handle, Reason.CONSUMER))
                elif latest == "Requested" and not _is_accepted(desk, handle):
                    accept = Accept(handle, Qpn(0x51), b"")
                    desk.do(accept if first < 4 else Reject(handle, Reason.CONSUMER))
        assert len(desk.cm) <= 6
        assert sum(desk.cm._half_open.values()) <= 3
    ended = [it.handle for it in told(desk.effects) if isinstance(it, Ended)]
    assert len(ended) == len(set(ended))
    for handle, _ in list(desk.cm.snapshot()):
        desk.do(Disconnect(handle))
    desk.wait(120)
    assert len(desk.cm) == 0
    assert desk.cm.deadline() is None
    for table in (desk.cm._by_handle, desk.cm._by_request, desk.cm._by_qpn, desk.cm._time_wait):
        assert not table
    assert not desk.cm._half_open


def _is_accepted(desk: Desk, handle: Handle) -> bool:
    """The policy remembers what it has answered; here the manager's state is asked."""
    state = dict(desk.cm.snapshot()).get(handle)
    return state not in (State.REQ_RECEIVED, State.MRA_SENT)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([*Attribute, 0x19]), st.binary(min_size=232, max_size=232)),
        max_size=10,
    )
)
def test_random_bytes_never_raise_and_never_make_a_connection(
    datagrams: list[tuple[int, bytes]],
) -> None:
    desk = Desk()
    desk.connect()
    for attribute, body in datagrams:
        head = bytes.fromhex("01070203 00000000 0000000000000001")
        raw = head + attribute.to_bytes(2, "big") + bytes(6) + body
        effects = desk.cm.received(desk.now, FROM_B, raw)
        assert told(effects) == []
    assert desk.states == [State.REQ_SENT]
