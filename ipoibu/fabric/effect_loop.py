# SPDX-License-Identifier: BSD-2-Clause
"""Runs a sans-IO machine: carries its effects out in order, and calls it at its deadlines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

_E = TypeVar("_E")
_E_co = TypeVar("_E_co", covariant=True)


class TimedMachine(Protocol[_E_co]):
    """The clock's part of a machine; its other inputs return effects, too."""

    def deadline(self) -> float | None:
        """Return the time of the next call of `timer`."""
        ...

    def timer(self, now: float) -> Iterable[_E_co]: ...


def wait_ms(deadline: float | None, now: float) -> float | None:
    """Return how long to sleep until the deadline, and no less; None without one."""
    return None if deadline is None else max(0.0, (deadline - now) * 1000 + 1)


class EffectLoop(Generic[_E]):
    """Carries effects out one at a time, on the thread that feeds the machine.

    `carry_out` may return further effects or call `perform`: they queue up behind the earlier ones.
    """

    def __init__(
        self, machine: TimedMachine[_E], carry_out: Callable[[_E], Iterable[_E] | None]
    ) -> None:
        self.machine = machine
        self._carry_out = carry_out
        self._effects: deque[_E] = deque()
        self._is_performing = False

    def perform(self, effects: Iterable[_E]) -> None:
        """Carry out `effects`, and then those that they cause."""
        self._effects.extend(effects)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while self._effects:
                self._effects.extend(self._carry_out(self._effects.popleft()) or ())
        finally:
            self._is_performing = False
        self._note_performed()

    def run_timer(self, now: float) -> None:
        self.perform(self.machine.timer(now))

    def wait_ms(self, now: float) -> float | None:
        """Return how long to sleep until the machine's deadline; None without one."""
        return wait_ms(self.machine.deadline(), now)

    def stop(self) -> None:
        """Carry out no more effects, and forget `carry_out`, so that Python can free its owner at once."""
        self._carry_out = _ignore

    def _note_performed(self) -> None:
        """Called when all effects are carried out."""


class TimedEffectLoop(EffectLoop[_E]):
    """An `EffectLoop` that also runs the machine's timer, on an asyncio loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        machine: TimedMachine[_E],
        carry_out: Callable[[_E], Iterable[_E] | None],
    ) -> None:
        super().__init__(machine, carry_out)
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False

    def stop(self) -> None:
        super().stop()
        self._is_stopped = True
        self._cancel()

    def _note_performed(self) -> None:
        deadline = None if self._is_stopped else self.machine.deadline()
        if self._timer is not None and self._timer.when() == deadline:
            return
        self._cancel()
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._note_expired)

    def _note_expired(self) -> None:
        self._timer = None
        self.run_timer(self._loop.time())

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _ignore(effect: object) -> None:
    """Takes the place of `carry_out` after `stop`."""
