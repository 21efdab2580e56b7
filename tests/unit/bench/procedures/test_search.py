# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.bench.procedures.search import RESOLUTION, highest


def _tried(capacity: float, top: float, **options: float) -> tuple[float, list[float]]:
    tried: list[float] = []

    def passes(value: float) -> bool:
        tried.append(value)
        return value <= capacity

    return highest(passes, top, **options), tried


def test_the_steps_are_those_of_a_binary_search() -> None:
    found, tried = _tried(30, 100, resolution=0.1)
    assert tried == [100, 50, 25, 37.5, 31.25, 28.125]
    assert found == 28.125


def test_a_top_that_passes_ends_the_search() -> None:
    assert _tried(200, 100) == (100, [100])


def test_nothing_that_passes_is_zero_and_ends_at_the_bottom() -> None:
    found, tried = _tried(0, 100, bottom=10)
    assert found == 0
    assert tried == [100, 50, 25, 12.5, 10]


def test_the_bottom_itself_may_be_the_result() -> None:
    found, _ = _tried(10.1, 1000, bottom=10)
    assert found == pytest.approx(10, rel=RESOLUTION)


@given(st.floats(min_value=20, max_value=1e6), st.floats(min_value=20, max_value=1e6))
def test_the_result_is_within_the_resolution_of_the_truth(capacity: float, top: float) -> None:
    found, tried = _tried(capacity, top, bottom=10)
    truth = min(capacity, top)
    assert found <= truth
    assert found >= truth * (1 - RESOLUTION) - 1e-9
    assert len(tried) < 40
