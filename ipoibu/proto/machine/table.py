# SPDX-License-Identifier: BSD-2-Clause
"""State machines as data: (state, input) -> (state, actions), with nothing hidden in code.

Every machine of the engine is one `Table`, a literal beside its states; a `Machine` runs it for all
subjects that have such a state. Three rules hold for all tables:

- An absent key is an error in this program (`Impossible`). A peer can never cause it: every input
  that a peer can bring about has a row in every state.
- The caller carries the actions out in the order of the row, after the state has changed.
- A timer belongs to the state that armed it: leaving the state cancels the timer.

docs/make/draw_state_machines.py draws docs/reference/state-machines.md from these objects.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from ipoibu.proto.machine.timers import Timers

S = TypeVar("S", bound=enum.Enum)
F = TypeVar("F", bound=enum.Enum)  # the inputs
A = TypeVar("A", bound=enum.Enum)
K = TypeVar("K", bound=Hashable)


class Impossible(RuntimeError):
    """An input in a state that has no row for it: the engine fed its own machine wrongly."""


class Table(Generic[S, F, A]):
    """An immutable state machine; each subject (neighbour, group, connection ...) keeps its state."""

    def __init__(
        self, name: str, initial: S, rows: Mapping[tuple[S, F], tuple[S, tuple[A, ...]]]
    ) -> None:
        self.name = name
        self.initial = initial
        self._rows = dict(rows)

    def step(self, state: S, fed: F) -> tuple[S, tuple[A, ...]]:
        """Return the next state and the actions; raise `Impossible` where the table has no row."""
        try:
            return self._rows[state, fed]
        except KeyError:
            raise Impossible(f"{self.name}: {fed.name} in {state.name}") from None

    def ignores(self, state: S, fed: F) -> bool:
        """Return whether the input changes nothing in this state."""
        return self.step(state, fed) == (state, ())

    def __contains__(self, key: tuple[S, F]) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[tuple[S, F, S, tuple[A, ...]]]:
        """Yield the rows in the order of the source."""
        for (state, fed), (following, actions) in self._rows.items():
            yield state, fed, following, actions


class Subject(Protocol[S]):
    """An object that a machine moves from state to state."""

    state: S


class Machine(Generic[S, F, A, K]):
    """Runs a table for many subjects; `key` names a subject, and its one timer, among them.

    The timers call `ring(now, key)` when the subject's timer expires: it feeds the time-out.
    """

    def __init__(
        self, table: Table[S, F, A], timers: Timers, ring: Callable[[float, K], None]
    ) -> None:
        self._table = table
        self._timers = timers
        self._ring = ring

    def feed(self, subject: Subject[S], key: K, fed: F) -> tuple[S, tuple[A, ...]]:
        """Change the subject's state, and cancel the timer of a state that it leaves.

        Return the state before, and the actions that the caller has to carry out now.
        """
        before = subject.state
        subject.state, actions = self._table.step(before, fed)
        if subject.state is not before:
            self.cancel(key)
        return before, actions

    def arm(self, key: K, at: float) -> None:
        """Start the timer of the subject's state, or move it."""
        self._timers.arm(self._ring, key, at)

    def cancel(self, key: K) -> None:
        """Stop the timer, if it runs."""
        self._timers.cancel(self._ring, key)
