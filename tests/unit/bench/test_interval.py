# SPDX-License-Identifier: BSD-2-Clause
"""Known answers: Student's t of printed tables, and Welch's example computed by hand."""

from __future__ import annotations

import math

import pytest

from ipoibu.bench.interval import holm, paired, quantile, rounds_needed, tails, welch


@pytest.mark.parametrize(
    ("chance", "freedom", "t"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 10, 2.2281),
        (0.95, 4, 2.1318),
        (0.995, 30, 2.7500),
        (0.8, 8, 0.8889),
        (0.975, 1e9, 1.9600),
    ],
)
def test_quantiles_are_those_of_the_printed_tables(chance: float, freedom: float, t: float) -> None:
    assert quantile(chance, freedom) == pytest.approx(t, abs=5e-5)
    assert tails(t, freedom) == pytest.approx(2 * (1 - chance), rel=1e-3)


def test_welch_weighs_each_side_by_its_own_variance() -> None:
    """Variances 1 of 3 figures and 4 of 3: the error is the root of 5/3, the freedom 50/17."""
    found = welch([9.0, 10.0, 11.0], [10.0, 12.0, 14.0])
    assert found.mean == 2.0
    assert found.error == pytest.approx(math.sqrt(5 / 3))
    assert found.freedom == pytest.approx(50 / 17)
    low, high = found.bounds()
    assert (low + high) / 2 == pytest.approx(2.0)
    assert (high - low) / 2 == pytest.approx(3.2196 * math.sqrt(5 / 3), rel=1e-3)
    assert found.chance() == pytest.approx(tails(2 / math.sqrt(5 / 3), 50 / 17))


def test_pairs_take_away_what_both_share() -> None:
    first, second = [10.0, 20.0, 30.0, 40.0], [11.0, 21.0, 31.5, 40.5]
    found = paired(first, second)
    assert (found.mean, found.freedom) == (1.0, 3)
    assert found.error == pytest.approx(math.sqrt(1 / 6) / 2)
    assert found.bounds()[0] > 0
    assert welch(first, second).bounds()[0] < 0


def test_figures_without_any_spread_leave_no_doubt() -> None:
    assert welch([5.0, 5.0], [5.0, 5.0]).chance() == 1.0
    assert welch([5.0, 5.0], [6.0, 6.0]).chance() == 0.0
    assert welch([5.0, 5.0], [6.0, 6.0]).bounds() == (1.0, 1.0)
    assert rounds_needed(0.01, [5.0, 5.0], [6.0, 6.0], in_pairs=False) == 2


def test_the_rounds_needed_are_those_of_the_usual_formula() -> None:
    """For many rounds, (1.96 + 0.8416)^2 and the sum of the variances, over the difference squared."""
    figures = [-1.0, 1.0] * 50
    deviation = math.sqrt(100 / 99)
    expected = 2 * (1.95996 + 0.84162) ** 2 * (deviation / 0.1) ** 2
    found = rounds_needed(0.1, figures, figures, in_pairs=False)
    assert found == pytest.approx(expected, abs=2)
    steady = [0.0] * 100
    assert rounds_needed(0.1, steady, figures, in_pairs=True) == pytest.approx(expected / 2, abs=3)


def test_a_hopeless_difference_has_no_number_of_rounds() -> None:
    assert rounds_needed(1e-6, [-1.0, 1.0], [-1.0, 1.0], in_pairs=False) is None


def test_so_many_rounds_and_no_fewer_show_the_difference() -> None:
    noise = [-0.05, 0.05, 0.0, 0.02, -0.02]
    needed = rounds_needed(0.03, noise, noise, in_pairs=False)
    assert needed is not None
    variance = sum(it**2 for it in noise) / 4

    def reach(rounds: int) -> float:
        freedom = 2 * (rounds - 1)
        return (quantile(0.975, freedom) + quantile(0.8, freedom)) * math.sqrt(
            2 * variance / rounds
        )

    assert reach(needed) <= 0.03 < reach(needed - 1)


def test_holm_corrects_the_smallest_chance_most() -> None:
    """Holm 1979: 4 x 0.005, then 3 x 0.01, then 2 x 0.03, and never less than the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
