# SPDX-License-Identifier: BSD-2-Clause
"""Retries after refusals: how long to wait before the next try, and which refusals to log.

    backoff = Backoff(GROUP_BACKOFF_MIN_S, GROUP_BACKOFF_MAX_S)

    if backoff.refusals.add():                     # on a refusal: True for the 1st, 2nd, 5th, 10th ...
        log(f"cannot join: {reason}{backoff.refusals.times}")       # "cannot join: timeout (5 times)"
    retry_at = now + backoff.next_s()              # 1 s, then 2, 4, 8, 16, 16 ...

    backoff.reset()                                # on success

Code that does not retry uses `Repeats` alone, to thin the log.
"""

from __future__ import annotations

from ipoibu.proto.machine.ratelimit import should_log


class Repeats:
    """Counts how often the same trouble occurs, and thins its log lines."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self) -> bool:
        """Count one more occurrence; return whether to log it."""
        self.count += 1
        return should_log(self.count)

    @property
    def times(self) -> str:
        """Return the end of the log line: " (5 times)", or nothing the first time."""
        return f" ({self.count} times)" if self.count > 1 else ""

    def clear(self) -> None:
        self.count = 0


class Backoff:
    """The waits between retries, which double from `min_s` up to `max_s`, and the `refusals` so far."""

    __slots__ = ("_max_s", "_min_s", "_next_s", "refusals")

    def __init__(self, min_s: float, max_s: float) -> None:
        self._min_s = self._next_s = min_s
        self._max_s = max_s
        self.refusals = Repeats()

    def next_s(self) -> float:
        """Return how long to wait now, and double the next wait."""
        wait_s, self._next_s = self._next_s, min(2 * self._next_s, self._max_s)
        return wait_s

    def shorten(self) -> None:
        """Begin with the shortest wait again; the count of refusals goes on."""
        self._next_s = self._min_s

    def reset(self) -> None:
        """The retry succeeded: begin with the shortest wait again, and count from zero."""
        self.shorten()
        self.refusals.clear()
