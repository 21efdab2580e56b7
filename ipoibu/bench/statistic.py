# SPDX-License-Identifier: BSD-2-Clause
"""Medians, percentiles and ratios of a handful of figures, some of which may be missing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

Figures = Sequence[float | None]  # one a round; None: not measured in that round


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some figures, and how far they lie apart."""

    median: float
    low: float
    high: float
    count: int

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def spread(figures: Iterable[float | None]) -> Spread | None:
    """None when nothing was measured."""
    known = [figure for figure in figures if figure is not None]
    if not known:
        return None
    return Spread(statistics.median(known), min(known), max(known), len(known))


def ratio(figures: Figures, against: Figures) -> Spread | None:
    """Of figures of the same round: never one round's to another's. Zero measured has no ratio."""
    pairs = zip(figures, against, strict=False)
    return spread(a / b for a, b in pairs if a is not None and b)


def percentile(figures: Sequence[float], percent: float) -> float:
    """By nearest rank: a figure that was seen, at least as large as `percent` % of all."""
    if not figures:
        raise ValueError("a percentile of nothing")
    rank = math.ceil(percent / 100 * len(figures))
    return sorted(figures)[max(0, rank - 1)]
