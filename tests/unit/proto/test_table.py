# SPDX-License-Identifier: BSD-2-Clause
"""`Machine`: the effect of one step on the subject and on its timer."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pytest

from ipoibu.proto.machine.table import Impossible, Machine, Table
from ipoibu.proto.machine.timers import Timers


class State(enum.Enum):
    IDLE = "idle"
    BUSY = "busy"


class Input(enum.Enum):
    START = "start"
    NUDGE = "nudge"
    STOP = "stop"


class Action(enum.Enum):
    ARM = "arm"
    BEEP = "beep"


LAMP = Table(
    "Lamp",
    State.IDLE,
    {
        (State.IDLE, Input.START): (State.BUSY, (Action.ARM, Action.BEEP)),
        (State.IDLE, Input.STOP): (State.IDLE, ()),
        (State.BUSY, Input.NUDGE): (State.BUSY, (Action.BEEP,)),
        (State.BUSY, Input.STOP): (State.IDLE, ()),
    },
)


@dataclass
class Lamp:
    state: State = State.IDLE


class Bench:
    def __init__(self) -> None:
        self.timers = Timers()
        self.rung: list[tuple[float, str]] = []
        self.machine = Machine(LAMP, self.timers, self.ring)

    def ring(self, now: float, key: str) -> None:
        self.rung.append((now, key))


def test_a_step_changes_the_state_and_returns_the_former_one_with_the_actions() -> None:
    bench, lamp = Bench(), Lamp()
    assert bench.machine.feed(lamp, "a", Input.START) == (State.IDLE, (Action.ARM, Action.BEEP))
    assert lamp.state is State.BUSY


def test_leaving_a_state_cancels_its_timer() -> None:
    bench, lamp = Bench(), Lamp(State.BUSY)
    bench.machine.arm("a", 1.0)
    bench.machine.feed(lamp, "a", Input.STOP)
    assert bench.timers.deadline() is None


def test_staying_in_a_state_keeps_its_timer() -> None:
    bench, lamp = Bench(), Lamp(State.BUSY)
    bench.machine.arm("a", 1.0)
    bench.machine.feed(lamp, "a", Input.NUDGE)
    bench.timers.run(1.0)
    assert bench.rung == [(1.0, "a")]


def test_every_subject_has_a_timer_of_its_own() -> None:
    bench, first, second = Bench(), Lamp(State.BUSY), Lamp(State.BUSY)
    bench.machine.arm("first", 1.0)
    bench.machine.arm("second", 2.0)
    bench.machine.feed(first, "first", Input.STOP)
    bench.timers.run(2.0)
    assert bench.rung == [(2.0, "second")]
    assert second.state is State.BUSY


def test_an_impossible_input_changes_nothing() -> None:
    bench, lamp = Bench(), Lamp()
    with pytest.raises(Impossible, match="Lamp: NUDGE in IDLE"):
        bench.machine.feed(lamp, "a", Input.NUDGE)
    assert lamp.state is State.IDLE


def test_a_table_ignores_an_input_that_changes_and_does_nothing() -> None:
    assert LAMP.ignores(State.IDLE, Input.STOP)
    assert not LAMP.ignores(State.BUSY, Input.STOP)
    assert not LAMP.ignores(State.BUSY, Input.NUDGE)
