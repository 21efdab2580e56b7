# SPDX-License-Identifier: BSD-2-Clause
"""State machines as data: (state, input) -> (state, actions), nothing hidden in code.

Every machine of the engine is one `Table`, written out as a literal beside the states that it is about.
Three rules hold for all of them:

- An absent key is an error in this program (`Impossible`), never a peer's doing: whatever a peer can
  bring about has a row in every state.
- Actions are carried out in the order in which the row names them, after the state has changed.
- A timer belongs to the state in which it was armed: leaving the state cancels it.

The pictures in docs/state-machines.md are drawn from these objects.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

S = TypeVar("S", bound=enum.Enum)
F = TypeVar("F", bound=enum.Enum)  # what is fed: the input
A = TypeVar("A", bound=enum.Enum)


class Impossible(RuntimeError):
    """An input in a state that has no row for it: the engine fed its own machine wrongly."""


class Table(Generic[S, F, A]):
    """An immutable machine; the state itself lives in whatever the machine is about."""

    def __init__(
        self, name: str, initial: S, rows: Mapping[tuple[S, F], tuple[S, tuple[A, ...]]]
    ) -> None:
        self.name = name
        self.initial = initial
        self._rows = dict(rows)

    def step(self, state: S, fed: F) -> tuple[S, tuple[A, ...]]:
        """The next state and what to do; `Impossible` where the table has no row."""
        try:
            return self._rows[state, fed]
        except KeyError:
            raise Impossible(f"{self.name}: {fed.name} in {state.name}") from None

    def __contains__(self, key: tuple[S, F]) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[tuple[S, F, S, tuple[A, ...]]]:
        """The rows in the order in which they are written."""
        for (state, fed), (following, actions) in self._rows.items():
            yield state, fed, following, actions
