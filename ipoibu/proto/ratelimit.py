# SPDX-License-Identifier: BSD-2-Clause
"""Rate limits: a token bucket for messages, and the thinning of repeated log lines."""

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


def should_log(occurrence: int) -> bool:
    """Return whether to log the n-th occurrence of the same trouble: 1, 2, 5, 10, 20, 50, 100 ...

    OpenSM thins its log the same way: the reader sees that the trouble goes on, and the log stays short.
    """
    while occurrence >= 10 and occurrence % 10 == 0:
        occurrence //= 10
    return occurrence in (1, 2, 5)
