# SPDX-License-Identifier: BSD-2-Clause
"""The tables of a request and of the SA over the full product of their states and inputs."""

from __future__ import annotations

import enum
import itertools
from typing import Any, Final

import pytest

from ipoibu.proto.machine.table import Impossible, Table
from ipoibu.proto.sa import requests as sa_requests
from ipoibu.proto.sa import transaction as sa_transaction
from ipoibu.proto.sa.rmpp import Progress
from ipoibu.proto.sa.transaction import MACHINE, Action, Input, State

Enum = type[enum.Enum]
TABLES: Final[dict[str, tuple[Table[Any, Any, Any], Enum, Enum, Enum]]] = {
    "request": (MACHINE, State, Input, Action),
    "service": (
        sa_requests.SERVICE,
        sa_requests.Service,
        sa_requests.ServiceInput,
        sa_requests.ServiceAction,
    ),
}
PAIRS: Final = [
    pytest.param(table, state, fed, id=f"{state.name}-{fed.name}")
    for table, states, inputs, _ in TABLES.values()
    for state, fed in itertools.product(states, inputs)
]
# The inputs that we feed ourselves, by state; the SA can cause the others at any time.
OURS: Final = {
    Input.TURN: {State.QUEUED},
    Input.CANCEL: {State.QUEUED, State.WAITING, State.RECEIVING},
    Input.TIMEOUT: {State.WAITING, State.RECEIVING},
    Input.SPENT: {State.WAITING, State.RECEIVING},
    Input.MOVED: {State.WAITING, State.RECEIVING},
    Input.REPEATED: {State.RECEIVING},  # a segment that is there needs one that came before
}


@pytest.mark.parametrize(("table", "state", "fed"), PAIRS)
def test_every_pair_leads_to_a_legal_state_or_is_impossible(
    table: Table[Any, Any, Any], state: enum.Enum, fed: enum.Enum
) -> None:
    if (state, fed) in table:
        following, _ = table.step(state, fed)
        assert isinstance(following, type(state))
    else:
        with pytest.raises(Impossible, match=f"{fed.name} in {state.name}"):
            table.step(state, fed)


@pytest.mark.parametrize("state", [State.WAITING, State.RECEIVING])
@pytest.mark.parametrize("fed", Input)
def test_what_the_sa_can_bring_about_has_a_row_while_a_request_is_out(
    state: State, fed: Input
) -> None:
    assert ((state, fed) in MACHINE) == (state in OURS.get(fed, {state}))


@pytest.mark.parametrize("fed", Input)
def test_nothing_but_a_turn_or_a_cancel_happens_in_the_queue(fed: Input) -> None:
    assert ((State.QUEUED, fed) in MACHINE) == (State.QUEUED in OURS.get(fed, set()))


@pytest.mark.parametrize("fed", Input)
def test_done_is_the_end(fed: Input) -> None:
    assert (State.DONE, fed) not in MACHINE


def test_every_request_ends_with_an_answer_a_failure_or_a_cancel() -> None:
    for _, fed, following, actions in MACHINE:
        ended = {Action.FINISH, Action.GIVE_UP} & set(actions)
        assert len(ended) == (following is State.DONE and fed is not Input.CANCEL), fed


def test_a_state_with_a_timer_is_never_entered_without_it() -> None:
    for state, fed, following, actions in MACHINE:
        if following is not state:
            timed = following in (State.WAITING, State.RECEIVING)
            assert (Action.ARM in actions) == timed, f"{fed.name} in {state.name}"


def test_a_transfer_that_is_given_up_is_aborted_so_that_the_sender_stops() -> None:
    for state, fed, following, actions in MACHINE:
        if state is State.RECEIVING and following is not state:
            is_sender_gone = fed in (Input.STOPPED, Input.WHOLE, Input.MOVED)
            assert (Action.ABORT in actions) != is_sender_gone, fed.name


def test_a_sender_that_repeats_itself_gains_no_time() -> None:
    _, actions = MACHINE.step(State.RECEIVING, Input.REPEATED)
    assert Action.ARM not in actions


@pytest.mark.parametrize(("table", "states", "inputs", "actions"), TABLES.values(), ids=TABLES)
def test_every_state_is_reached_and_every_input_and_action_used(
    table: Table[Any, Any, Any],
    states: Enum,
    inputs: Enum,
    actions: Enum,
) -> None:
    seen = {table.initial}
    for _ in states:
        seen |= {following for state, _, following, _ in table if state in seen}
    assert seen == set(states)
    assert {fed for _, fed, _, _ in table} == set(inputs)
    used = {action for *_, doing in table for action in doing}
    assert used == set(actions)


def test_every_progress_of_a_transfer_is_an_input_or_is_ignored() -> None:
    fed = {Input[progress.name] for progress in Progress if progress is not Progress.IGNORED}
    assert all((State.RECEIVING, one) in MACHINE for one in fed)


def test_every_reason_to_give_up_has_a_failure() -> None:
    inputs = {fed for _, fed, _, actions in MACHINE if Action.GIVE_UP in actions}
    assert {fed.name for fed in inputs} == {"SPENT", "BROKEN", "STOPPED"}
    failures = set(sa_transaction.Failure)
    assert failures == {
        sa_transaction.Failure.TIMEOUT,
        sa_transaction.Failure.BROKEN,
        sa_transaction.Failure.STOPPED,
        sa_transaction.Failure.QUEUE_FULL,
    }
