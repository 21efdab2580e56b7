# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import pytest

from ipoibu.proto.machine.ratelimit import Pace, TokenBucket, should_log


def test_a_burst_passes_and_then_only_the_rate() -> None:
    bucket = TokenBucket(per_s=8, burst=3)
    assert [bucket.take(100.0) for _ in range(5)] == [True, True, True, False, False]
    assert [bucket.take(100.0 + i / 16) for i in range(1, 5)] == [False, True, False, True]


def test_tokens_do_not_pile_up_beyond_the_burst() -> None:
    bucket = TokenBucket(per_s=1, burst=2)
    assert [bucket.take(1e6) for _ in range(3)] == [True, True, False]
    assert [bucket.take(2e6) for _ in range(3)] == [True, True, False]


def test_time_that_stands_still_or_runs_back_gives_nothing() -> None:
    bucket = TokenBucket(per_s=1000, burst=1)
    assert bucket.take(50.0)
    assert not bucket.take(50.0)
    assert not bucket.take(40.0)


def test_a_pace_gives_turns_later_after_its_burst_and_the_burst_again_after_a_pause() -> None:
    pace = Pace(per_s=4, burst=3)

    def turns(now: float) -> list[float]:
        given = []
        for _ in range(5):
            given.append(pace.next(now))
            pace.take(now)
        return given

    assert turns(10.0) == [10.0, 10.0, 10.0, 10.25, 10.5]
    assert pace.next(10.6) == 10.75
    assert turns(20.0) == [20.0, 20.0, 20.0, 20.25, 20.5]


@pytest.mark.parametrize("occurrence", [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000])
def test_repetitions_are_logged_at_1_2_and_5_of_every_power_of_ten(occurrence: int) -> None:
    assert should_log(occurrence)


def test_a_thousand_repetitions_make_ten_lines() -> None:
    assert sum(should_log(n) for n in range(1, 1001)) == 10
