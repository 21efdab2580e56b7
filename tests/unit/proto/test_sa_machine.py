# SPDX-License-Identifier: BSD-2-Clause
"""What the table of a request to the SA holds to, beside what all tables do (`test_machines`)."""

from __future__ import annotations

from typing import Final

import pytest

from ipoibu.proto.sa import transaction as sa_transaction
from ipoibu.proto.sa.rmpp import Progress
from ipoibu.proto.sa.transaction import MACHINE, Action, Input, State

# The inputs that we feed ourselves, by state; the SA can cause the others at any time.
OURS: Final = {
    Input.TURN: {State.QUEUED},
    Input.CANCEL: {State.QUEUED, State.WAITING, State.RECEIVING},
    Input.TIMEOUT: {State.WAITING, State.RECEIVING},
    Input.SPENT: {State.WAITING, State.RECEIVING},
    Input.MOVED: {State.WAITING, State.RECEIVING},
    Input.REPEATED: {State.RECEIVING},  # a segment that is there needs one that came before
}


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


def test_a_transfer_that_is_given_up_is_aborted_so_that_the_sender_stops() -> None:
    for state, fed, following, actions in MACHINE:
        if state is State.RECEIVING and following is not state:
            is_sender_gone = fed in (Input.STOPPED, Input.WHOLE, Input.MOVED)
            assert (Action.ABORT in actions) != is_sender_gone, fed.name


def test_a_sender_that_repeats_itself_gains_no_time() -> None:
    _, actions = MACHINE.step(State.RECEIVING, Input.REPEATED)
    assert Action.ARM not in actions


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
