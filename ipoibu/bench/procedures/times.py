# SPDX-License-Identifier: BSD-2-Clause
"""How long the procedures measure: short by default, so that a person waits minutes, or as the RFCs say."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds and repetitions of the parts of both procedures."""

    trial_s: float  # of a throughput or loss trial: RFC 2544 §24
    tries: int  # trials in a row that lose frames make a rate fail: one by the RFC
    settle_s: float  # without a frame, then those that lack are lost: RFC 2544 §23
    latency_s: float  # RFC 2544 §26.2
    latency_repeats: int
    burst_s: float  # the longest burst at full speed: RFC 2544 §26.4
    burst_repeats: int  # RFC 9004 §5.4
    transfer_s: float  # of TCP: RFC 6349 §4

    def with_seconds(self, seconds: float) -> Times:
        """Return the same with such trials and transfers."""
        return replace(self, trial_s=seconds, latency_s=seconds, transfer_s=seconds)

    def with_repeats(self, repeats: int) -> Times:
        return replace(self, latency_repeats=repeats, burst_repeats=repeats)

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


QUICK: Final = Times(0.2, 2, 0.1, 0.5, 1, 0.05, 3, 1.0)
SHORT: Final = Times(0.5, 2, 0.2, 1.5, 1, 0.1, 5, 2.0)
RFC: Final = Times(60.0, 1, 2.0, 120.0, 20, 2.0, 50, 30.0)


# The times that each procedure uses
USED: Final = {
    "rfc2544": ("trial_s", "settle_s", "latency_s", "latency_repeats", "burst_s", "burst_repeats"),
    "rfc6349": ("transfer_s",),
}


def shorter(procedure: str, times: Times) -> list[str]:
    """Return a phrase for each time or number of a procedure that is less than its RFC's."""
    own, full = times.as_dict(), RFC.as_dict()
    return [
        f"{name} {own[name]:g} instead of {full[name]:g}"
        for name in USED[procedure]
        if own[name] < full[name]
    ]
