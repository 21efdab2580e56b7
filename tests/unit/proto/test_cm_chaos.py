# SPDX-License-Identifier: BSD-2-Clause
"""The communication manager: any message in any state."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipoibu.base.addr import Qpn
from ipoibu.base.ib import Destination
from ipoibu.proto.cm.state import State
from ipoibu.proto.rc.events import (
    Accept,
    Cause,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Handle,
    Reject,
    Requested,
    Role,
)
from ipoibu.wire import cm
from ipoibu.wire.cm_code import About, Attribute, Reason
from ipoibu.wire.cm_setup import Rep
from tests.doubles.cm_desk import (
    B_GUID,
    CONFIG,
    FROM_B,
    OURS,
    PEER_ID,
    REQ,
    SERVICE,
    B,
    Desk,
    only,
    rep_to,
    reported,
    sent,
)


def to_state(desk: Desk, state: State) -> tuple[Handle, int]:
    """Bring a connection into a state; return its handle, and our id of it."""
    if state in (State.REQ_SENT, State.MRA_RECEIVED, State.REP_RECEIVED, State.MRA_REP_SENT):
        req = desk.connect()
        match state:
            case State.MRA_RECEIVED:
                desk.receive(cm.Mra(PEER_ID, req.local_id, About.REQ, 20))
            case State.REP_RECEIVED | State.MRA_REP_SENT:
                desk.receive(rep_to(req))
                desk.wait(1.0 if state is State.MRA_REP_SENT else 0.0)
        return OURS, req.local_id
    (requested,) = reported(desk.receive(REQ))
    if state in (State.REQ_RECEIVED, State.MRA_SENT):
        effects = desk.wait(3.0 if state is State.MRA_SENT else 0.0)
        ids = [message.local_id for message in sent(effects) if isinstance(message, cm.Mra)]
        return requested.handle, ids[0] if ids else next(iter(desk.cm._by_id))
    rep = only(desk.do(Accept(requested.handle, Qpn(0x51), b"")))
    assert isinstance(rep, Rep)
    match state:
        case State.MRA_REP_RECEIVED:
            desk.receive(cm.Mra(PEER_ID, rep.local_id, About.REP, 20))
        case State.ESTABLISHED | State.DREQ_SENT | State.TIME_WAIT:
            desk.receive(cm.Rtu(PEER_ID, rep.local_id))
            if state is State.DREQ_SENT:
                desk.do(Disconnect(requested.handle))
            if state is State.TIME_WAIT:
                desk.receive(cm.Dreq(PEER_ID, rep.local_id, Qpn(0x51)))
    return requested.handle, rep.local_id


def peers_messages(our_id: int, their_id: int, qpn: int) -> list[cm.Spoken]:
    """Return messages of every kind, about every kind, with these identifiers."""
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
    """Right and wrong identifiers, each after a fresh start; remaining connections end by time or by us."""
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
                    desk.receive(message)
                    desk.receive(message)
                    desk.do(Disconnect(handle))
                    for fresh in [it for it in reported(desk.effects) if isinstance(it, Requested)]:
                        desk.do(Disconnect(fresh.handle))
                    desk.wait(120)
                    assert len(desk.cm) == 0
                    ended = [it.handle for it in reported(desk.effects) if isinstance(it, Ended)]
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
    known = [it for it in reported(desk.effects) if isinstance(it, Ended)]
    effects = desk.receive(cm.Dreq(PEER_ID, our_id, qpn))
    if thinking:  # there is nothing to end yet, and the peer cannot know better
        assert effects == []
        return
    assert only(effects) == cm.Drep(our_id, PEER_ID, bytes(224))
    over = state in (State.DREQ_SENT, State.TIME_WAIT)
    expected = [] if known or over else [Ended(handle, Cause.DISCONNECTED)]
    assert reported(effects) == expected


moves = st.one_of(
    st.tuples(st.just("receive"), st.integers(0, 20), st.sampled_from([0, 1]), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 3, 5, 20]), st.just(0), st.just(0)),
    st.tuples(
        st.just("do"),
        st.sampled_from([0, 1, 2, 3, 4]),
        st.integers(0, 3),
        st.just(0),
    ),
)


@settings(max_examples=300)
@given(st.lists(moves, max_size=30))
def test_no_sequence_of_events_breaks_the_rules(
    sequence: list[tuple[str, int, int, int]],
) -> None:
    """The policy answers in any valid way, or not at all; the peer sends any messages."""
    desk = Desk(replace(CONFIG, connections_max=6, half_open_max=3))
    serial = 0
    for move, first, second, third in sequence:
        open_: dict[Handle, str] = {}
        for event in reported(desk.effects):
            if isinstance(event, Ended):
                open_.pop(event.handle, None)
            else:
                open_[event.handle] = type(event).__name__
        ids = list(desk.cm._by_id) or [1]
        match move:
            case "receive":
                our_id = ids[first % len(ids)] + second
                messages = peers_messages(our_id, PEER_ID + third, 0x50 + second)
                desk.receive(messages[first % len(messages)])
            case "wait":
                desk.wait(first)
            case _ if first == 0:
                serial += 1
                destination = Destination(B, Qpn(0x49))
                handle = Handle(Role.ACTIVE, serial)
                desk.do(Connect(handle, destination, SERVICE, Qpn(0x50), 2048, b""))
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
    ended = [it.handle for it in reported(desk.effects) if isinstance(it, Ended)]
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
    """Return whether the policy accepted the request: the policy remembers its answers, this test asks the
    manager."""
    state = dict(desk.cm.snapshot()).get(handle)
    return state not in (State.REQ_RECEIVED, State.MRA_SENT)


@settings(max_examples=200)
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
        effects = desk.cm.note_received(desk.now, FROM_B, raw)
        assert reported(effects) == []
    assert desk.states == [State.REQ_SENT]
