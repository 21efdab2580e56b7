# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.bench.statistic import Spread, percentile, ratio, spread


def test_a_spread_leaves_out_what_is_missing() -> None:
    assert spread([3.0, None, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)


def test_nothing_measured_has_no_spread() -> None:
    assert spread([None, None]) is None
    assert spread([]) is None


def test_ratios_are_of_the_same_round() -> None:
    # The machine was half as fast in the second round: each ratio is 2, the medians' ratio is not.
    assert ratio([10.0, 4.0], [5.0, 2.0]) == Spread(2.0, 2.0, 2.0, 2)


def test_a_round_without_either_figure_gives_no_ratio() -> None:
    assert ratio([10.0, None, 6.0], [None, 2.0, 2.0]) == Spread(3.0, 3.0, 3.0, 1)
    assert ratio([10.0], [0.0]) is None
    assert ratio([10.0, 8.0], [4.0]) == Spread(2.5, 2.5, 2.5, 1)


def test_percentiles_are_by_nearest_rank() -> None:
    figures = [15.0, 20.0, 35.0, 40.0, 50.0]
    assert [percentile(figures, p) for p in (0, 5, 30, 40, 50, 100)] == [15, 15, 20, 20, 35, 50]


def test_a_rank_that_is_whole_is_not_rounded_up() -> None:
    """99.9 / 100 * 2000 is a little more than 1998 in floating point."""
    assert percentile([float(number) for number in range(1, 2001)], 99.9) == 1998


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="of nothing"):
        percentile([], 50)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.floats(min_value=0, max_value=100),
)
def test_a_percentile_is_a_figure_with_enough_below_it(
    figures: list[float], percent: float
) -> None:
    value = percentile(figures, percent)
    assert value in figures
    assert sum(figure <= value for figure in figures) * 100 >= percent * len(figures) * (1 - 1e-12)
