# SPDX-License-Identifier: BSD-2-Clause
"""What the tables of connected mode hold to, beside what all tables do (`test_machines`)."""

from __future__ import annotations

from typing import Final

import pytest

from ipoibu.proto.cm.state import HALF_OPEN, MACHINE, OVER, Action, Input, State
from ipoibu.proto.rc import connection as rc_connection
from ipoibu.proto.rc import peer as rc_peer

ASKING: Final = {State.REQ_SENT, State.MRA_RECEIVED}  # active, the peer's id not known yet
ACTIVE: Final = {State.REP_RECEIVED, State.MRA_REP_SENT}
PASSIVE: Final = {State.REQ_RECEIVED, State.MRA_SENT, State.REP_SENT, State.MRA_REP_RECEIVED}
BOTH: Final = {State.ESTABLISHED, State.DREQ_SENT, State.TIME_WAIT}
UNTIMED: Final = {State.CLOSED, State.ESTABLISHED}
RETRIED: Final = {
    State.REQ_SENT,
    State.MRA_RECEIVED,
    State.REP_SENT,
    State.MRA_REP_RECEIVED,
    State.DREQ_SENT,
}
# The inputs that a peer can cause, by `CmConnection.is_meant_by`, and those that the manager and the policy
# feed.
POSSIBLE: Final[dict[Input, set[State]]] = {
    Input.REQ: {State.CLOSED} | PASSIVE | BOTH,
    Input.REP: {State.CLOSED} | ASKING | ACTIVE | BOTH,
    Input.RTU: {State.CLOSED} | PASSIVE | BOTH,
    Input.MRA: {State.CLOSED} | ASKING | PASSIVE | BOTH,
    Input.REJ: set(State),
    Input.DREQ: set(State) - ASKING,
    Input.DREP: set(State) - ASKING,
    Input.STALE: (ASKING | ACTIVE | BOTH) - OVER,
    Input.CONNECT: {State.CLOSED},
    Input.ACCEPT: {State.REQ_RECEIVED, State.MRA_SENT},
    Input.CONFIRM: ACTIVE,
    Input.REJECT: ACTIVE | {State.REQ_RECEIVED, State.MRA_SENT},
    Input.DISCONNECT: set(State) - OVER,
    Input.TIMEOUT: set(State) - UNTIMED,
    Input.SPENT: RETRIED,
}


# The CM connection


@pytest.mark.parametrize("fed", Input)
def test_the_hand_shake_has_a_row_for_everything_that_can_happen_and_for_nothing_else(
    fed: Input,
) -> None:
    assert {state for state in State if (state, fed) in MACHINE} == POSSIBLE[fed]


def test_every_end_is_notified_once_unless_the_policy_made_it() -> None:
    for state, fed, following, actions in MACHINE:
        ends = state not in OVER and following in OVER
        ours = fed in (Input.REJECT, Input.DISCONNECT)
        assert (Action.REPORT_ENDED in actions) == (ends and not ours), (
            f"{fed.name} in {state.name}"
        )


def test_the_beginning_is_notified_when_it_begins() -> None:
    for state, fed, following, actions in MACHINE:
        begins = following is State.ESTABLISHED and state is not following
        assert (Action.REPORT_ESTABLISHED in actions) == begins, f"{fed.name} in {state.name}"


def test_what_leaves_the_table_is_forgotten() -> None:
    for state, fed, following, actions in MACHINE:
        leaves = following is State.CLOSED and state is not State.CLOSED
        assert (Action.FORGET in actions) == leaves, f"{fed.name} in {state.name}"
        assert Action.FORGET not in actions[:-1], "nothing can be done with it afterwards"


def test_no_end_of_ours_goes_without_a_word_to_the_peer() -> None:
    """For each end that the peer did not cause: else the peer would keep the connection for ever."""
    ours = {Input.REJECT, Input.DISCONNECT, Input.STALE}
    farewells = {Action.SEND_REJ, Action.SEND_DREQ}
    for state, fed, _, actions in MACHINE:
        if fed in ours and state is not State.CLOSED:
            assert farewells & set(actions), f"{fed.name} in {state.name}"


def test_a_queue_pair_that_was_up_ends_in_time_wait() -> None:
    """§12.9.8.4: late datagrams of the old connection must not count for a new one."""
    up = {State.REP_SENT, State.MRA_REP_RECEIVED, State.ESTABLISHED, State.DREQ_SENT}
    for state, fed, following, _ in MACHINE:
        if state in up:
            assert following is not State.CLOSED, f"{fed.name} in {state.name}"


def test_half_open_is_what_a_peer_began_and_nobody_has_finished() -> None:
    assert HALF_OPEN == PASSIVE
    for state, fed, following, _ in MACHINE:
        if following in HALF_OPEN and state not in HALF_OPEN:
            assert fed is Input.REQ


# RcConnectionTable


@pytest.mark.parametrize(
    "state", [state for state in rc_connection.State if state is not rc_connection.State.NONE]
)
def test_any_connection_can_be_dropped_and_leaves_no_queue_pair(state: rc_connection.State) -> None:
    following, actions = rc_connection.MACHINE.step(state, rc_connection.Input.DROPPED)
    assert following is rc_connection.State.NONE
    assert rc_connection.Action.CLOSE in actions
    assert rc_connection.Action.REPORT not in actions  # the code that drops it knows


def test_a_queue_pair_is_opened_once_and_closed_once() -> None:
    act = rc_connection.Action
    for state, fed, following, actions in rc_connection.MACHINE:
        assert (act.OPEN in actions) == (state is rc_connection.State.NONE)
        leaves = following is rc_connection.State.NONE
        was_made = fed is not rc_connection.Input.UNOPENED
        assert (act.CLOSE in actions) == (leaves and was_made), f"{fed.name} in {state.name}"
        assert (act.FORGET in actions) == leaves


def test_the_manager_hears_of_every_end_that_it_has_not_announced() -> None:
    known = set(rc_connection.State) - {rc_connection.State.NONE, rc_connection.State.OPENING}
    messages = {rc_connection.Action.DISCONNECT, rc_connection.Action.REJECT}
    for state, fed, following, actions in rc_connection.MACHINE:
        if state in known and following is rc_connection.State.NONE:
            is_known = fed is rc_connection.Input.ENDED
            assert bool(messages & set(actions)) != is_known, f"{fed.name} in {state.name}"


def test_a_queue_pair_is_programmed_before_the_peer_may_send() -> None:
    act = rc_connection.Action
    for *_, actions in rc_connection.MACHINE:
        for action in (act.ACCEPT, act.CONFIRM):
            if action in actions:
                assert actions.index(act.PROGRAM) < actions.index(action)


# Peers


@pytest.mark.parametrize("state", rc_peer.State)
def test_packets_requests_and_good_news_may_come_at_any_time(state: rc_peer.State) -> None:
    for fed in (
        rc_peer.Input.WANTED,
        rc_peer.Input.EXPECTED,
        rc_peer.Input.SERVED,
        rc_peer.Input.GONE,
    ):
        assert (state, fed) in rc_peer.MACHINE


def test_a_peer_is_always_reached_somehow() -> None:
    """Leaving UP and entering UP both set a route."""
    paths = {rc_peer.Action.UD_NOTIFY, rc_peer.Action.UD}
    for state, fed, following, actions in rc_peer.MACHINE:
        if state is rc_peer.State.UP and following is not state:
            assert paths & set(actions), fed.name
        assert (rc_peer.Action.RC in actions) == (fed is rc_peer.Input.SERVED)


def test_the_next_packet_is_notified_exactly_where_it_would_start_something() -> None:
    starts = {
        state
        for state, fed, following, _ in rc_peer.MACHINE
        if fed is rc_peer.Input.WANTED
        and following is rc_peer.State.TRYING
        and state is not following
    }
    assert starts == {rc_peer.State.NONE, rc_peer.State.READY}
    for state, fed, following, actions in rc_peer.MACHINE:
        if following in starts and state not in starts:
            assert rc_peer.Action.UD_NOTIFY in actions, f"{fed.name} in {state.name}"


def test_nothing_can_follow_what_may_fail_at_once() -> None:
    """START feeds FAILED itself when there is no room: later actions would act on an old state."""
    for *_, actions in rc_peer.MACHINE:
        for last in (rc_peer.Action.START, rc_peer.Action.FORGET):
            assert last not in actions[:-1]
