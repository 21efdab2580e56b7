# SPDX-License-Identifier: BSD-2-Clause
"""The rounds of bench/: every contender has its turn in each, and ratios belong to one round."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parents[3] / "bench" / "rounds.py"


@pytest.fixture
def rounds() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("rounds", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["rounds"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules["rounds"]


def test_every_contender_has_a_turn_in_each_round(rounds: Any) -> None:
    order: list[str] = []

    def measure(name: str) -> dict[str, float]:
        order.append(name)
        return {"at": float(len(order))}

    found = rounds.take_turns("abc", 4, measure)
    assert [sorted(order[at : at + 3]) for at in (0, 3, 6, 9)] == [["a", "b", "c"]] * 4
    assert {name: len(figures) for name, figures in found.items()} == {"a": 4, "b": 4, "c": 4}


def test_no_round_begins_that_would_end_too_late(rounds: Any) -> None:
    assert len(rounds.take_turns("a", 9, lambda _: {"at": 1.0}, deadline_s=0.0)["a"]) == 1


def test_a_ratio_is_the_geometric_mean_of_those_within_a_round(rounds: Any) -> None:
    found = {"base": [{"s": 1.0}, {"s": 10.0}], "ours": [{"s": 2.0}, {"s": 80.0}]}
    (ratio,) = rounds.ratios(found)
    assert (ratio.figure, ratio.name, ratio.base, ratio.rounds) == ("s", "ours", "base", 2)
    assert ratio.ratio == pytest.approx(4.0)
    assert ratio.error == pytest.approx(math.log(2.0))
    assert ratio.medians == (5.5, 41.0)
    assert str(ratio).startswith("s                      ours/base: 4.000 +-0.693  medians 5.5, 41")


def test_one_round_has_no_error(rounds: Any) -> None:
    (ratio,) = rounds.ratios({"base": [{"s": 2.0}], "ours": [{"s": 1.0}]})
    assert ratio.ratio == pytest.approx(0.5)
    assert math.isnan(ratio.error)
