# SPDX-License-Identifier: BSD-2-Clause
"""Rate limits: a token bucket for messages, a pace for work, and the thinning of repeated log lines."""

from __future__ import annotations


class TokenBucket:
    """At most `burst` at once and `per_s` a second in the long run. RFC 4443 §2.4 (f) asks for one."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._since = 0.0

    def take(self, now: float) -> bool:
        """Return whether one more message may go out at `now`, which never runs backwards."""
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._since) * self._per_s)
        self._since = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


class Pace:
    """A token bucket in which what comes too early gets a later turn: `burst` at once, `per_s` a second."""

    __slots__ = ("_early_s", "_interval_s", "_turn")

    def __init__(self, per_s: float, burst: float) -> None:
        self._interval_s = 1 / per_s
        self._early_s = (burst - 1) / per_s
        self._turn = 0.0  # of the next one, if all came at the even pace

    def next(self, now: float) -> float:
        """Return the time of the next turn, `now` at the earliest."""
        return max(now, self._turn - self._early_s)

    def take(self, now: float) -> None:
        """Take the turn that `next` returned."""
        self._turn = max(now, self._turn) + self._interval_s


def should_log(occurrence: int) -> bool:
    """Return whether to log the n-th occurrence of the same trouble: 1, 2, 5, 10, 20, 50, 100 ...

    OpenSM thins its log the same way: the reader sees that the trouble goes on, and the log stays short.
    """
    while occurrence >= 10 and occurrence % 10 == 0:
        occurrence //= 10
    return occurrence in (1, 2, 5)
