# SPDX-License-Identifier: BSD-2-Clause
"""Confidence intervals for the difference of two means, and the rounds that a difference needs.

Student's distribution by the incomplete beta function; Welch's interval for rounds that do not belong
together, the paired one for rounds that do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CONFIDENCE: Final = 0.95
POWER: Final = 0.8  # the chance that so many rounds show a difference that is there
ROUNDS_MAX: Final = 1_000_000
_STEPS: Final = 300  # of an iteration, which needs some dozens
_NORMAL: Final = statistics.NormalDist()
_TINY: Final = 1e-300
_EPSILON: Final = 1e-14


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of means, its standard error, and the degrees of freedom of that."""

    mean: float
    error: float
    freedom: float

    def bounds(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        reach = quantile(0.5 + confidence / 2, self.freedom) * self.error
        return self.mean - reach, self.mean + reach

    def chance(self) -> float:
        """Return the chance of a difference at least as large where there is none (p, two-sided)."""
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return tails(self.mean / self.error, self.freedom)


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the difference of the second's mean to the first's; both have two figures or more."""
    parts = [statistics.variance(figures) / len(figures) for figures in (first, second)]
    mean = statistics.fmean(second) - statistics.fmean(first)
    if sum(parts) == 0:
        return Difference(mean, 0.0, len(first) + len(second) - 2)
    below = sum(
        part**2 / (len(figures) - 1) for part, figures in zip(parts, (first, second), strict=True)
    )
    return Difference(mean, math.sqrt(sum(parts)), sum(parts) ** 2 / below)


def paired(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Return the mean difference within the pairs, of which there are two or more."""
    each = [b - a for a, b in zip(first, second, strict=True)]
    error = math.sqrt(statistics.variance(each) / len(each))
    return Difference(statistics.fmean(each), error, len(each) - 1)


def rounds_needed(
    difference: float, first: Sequence[float], second: Sequence[float], *, in_pairs: bool
) -> int | None:
    """Return how many rounds each side needs to show such a difference with the chance POWER, if the
    rounds vary as these do; None if more than ROUNDS_MAX."""
    if in_pairs:
        variances = [statistics.variance(b - a for a, b in zip(first, second, strict=True))]
    else:
        variances = [statistics.variance(figures) for figures in (first, second)]
    square = sum(variances)
    if square == 0:
        return 2
    share = square**2 / sum(variance**2 for variance in variances)  # of the degrees of freedom

    def is_enough(rounds: int) -> bool:
        freedom = share * (rounds - 1)
        reach = quantile(0.5 + CONFIDENCE / 2, freedom) + quantile(POWER, freedom)
        return reach * math.sqrt(square / rounds) <= abs(difference)

    normal = sum(map(_NORMAL.inv_cdf, (0.5 + CONFIDENCE / 2, POWER)))
    rounds = max(2, math.ceil(square * (normal / difference) ** 2))  # Student's t needs a few more
    while rounds <= ROUNDS_MAX and not is_enough(rounds):
        rounds += 1
    return rounds if rounds <= ROUNDS_MAX else None


def holm(chances: Sequence[float]) -> list[float]:
    """Return each chance corrected for the number of comparisons, by Holm's steps."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    corrected = [0.0] * len(chances)
    highest = 0.0
    for step, at in enumerate(order):
        highest = max(highest, min(1.0, chances[at] * (len(chances) - step)))
        corrected[at] = highest
    return corrected


def tails(t: float, freedom: float) -> float:
    """Return the chance that Student's t is farther from zero than `t`, on either side."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(chance: float, freedom: float) -> float:
    """Return the t below which Student's t is with this chance, of more than one half.

    Newton's method begins at the normal distribution's, which is less, and the distribution is concave:
    so each step stays below the result.
    """
    front = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    peak = math.exp(front) / math.sqrt(freedom * math.pi)
    t = _NORMAL.inv_cdf(chance)
    for _ in range(_STEPS):
        density = peak * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = (tails(t, freedom) / 2 - (1 - chance)) / density
        t += step
        if abs(step) < 1e-10 * t:
            break
    return t


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function (DLMF 8.17)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logarithm + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):  # there the fraction converges fast (DLMF 8.17.22)
        return front * _fraction(a, b, x) / a
    return 1 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of DLMF 8.17.22, by Lentz's method."""
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, _STEPS):
        m = step // 2
        if step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / (1 + term * d or _TINY)
        c = 1 + term / c or _TINY
        value *= c * d
        if abs(c * d - 1) < _EPSILON:
            break
    return 1 / value
