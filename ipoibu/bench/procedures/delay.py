# SPDX-License-Identifier: BSD-2-Clause
"""Delay and its variation: RFC 8219 §7.2 and §7.3, RFC 5481.

Typical latency is the median, worst-case latency the 99.9 % percentile. PDV is how far that percentile is
from the smallest delay, IPDV the difference of each delay to the one before.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

from ipoibu.bench.statistic import percentile

WORST_PERCENT: Final = 99.9
TAGGED_LEAST: Final = 500  # frames of a latency trial with a stamp: RFC 8219 §7.2


@dataclass(frozen=True, slots=True)
class Delay:
    """The delays of one stream, in microseconds."""

    count: int
    least_us: float
    median_us: float
    worst_us: float
    pdv_us: float
    ipdv_median_us: float  # of its amount
    ipdv_least_us: float
    ipdv_most_us: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def delay(tagged: Sequence[tuple[int, int]]) -> Delay | None:
    """Return the figures of stamped frames: number and delay in nanoseconds, in the order of sending; None
    for fewer than two."""
    each_us = [nanoseconds / 1000 for _, nanoseconds in sorted(tagged)]
    if len(each_us) < 2:
        return None
    changes_us = [after - before for before, after in pairwise(each_us)]
    worst_us = percentile(each_us, WORST_PERCENT)
    return Delay(
        count=len(each_us),
        least_us=min(each_us),
        median_us=statistics.median(each_us),
        worst_us=worst_us,
        pdv_us=worst_us - min(each_us),
        ipdv_median_us=statistics.median(map(abs, changes_us)),
        ipdv_least_us=min(changes_us),
        ipdv_most_us=max(changes_us),
    )
