# SPDX-License-Identifier: BSD-2-Clause
"""Medians, percentiles and ratios of a handful of figures, some of which may be missing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

Figures = Sequence[float | None]  # one for each round; None: that round has none


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, minimum and maximum of some figures."""

    median: float
    low: float
    high: float
    count: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def spread(figures: Iterable[float | None]) -> Spread | None:
    """Return the spread of the figures, or None if there are none."""
    known = [figure for figure in figures if figure is not None]
    if not known:
        return None
    return Spread(statistics.median(known), min(known), max(known), len(known))


def ratio(figures: Figures, against: Figures) -> Spread | None:
    """Return the spread of the ratios, each within one round; a figure of zero has no ratio."""
    pairs = zip(figures, against, strict=False)
    return spread(a / b for a, b in pairs if a is not None and b)


def percentile(figures: Sequence[float], percent: float) -> float:
    """Return the percentile by nearest rank: a figure at least as large as `percent` % of all."""
    if not figures:
        raise ValueError("a percentile of nothing")
    rank = math.ceil(percent / 100 * len(figures) * (1 - 1e-12))  # 99.9 % of 2000 is 1998 exactly
    return sorted(figures)[max(0, rank - 1)]
