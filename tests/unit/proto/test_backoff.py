# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

from ipoibu.proto.machine.backoff import Backoff, Repeats


def waits(backoff: Backoff, count: int) -> list[float]:
    return [backoff.next_s() for _ in range(count)]


def test_the_wait_doubles_up_to_its_maximum() -> None:
    assert waits(Backoff(1.0, 16.0), 7) == [1.0, 2.0, 4.0, 8.0, 16.0, 16.0, 16.0]


def test_a_maximum_that_is_no_power_of_two_is_reached_and_not_passed() -> None:
    assert waits(Backoff(0.5, 3.0), 5) == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_reset_begins_with_the_shortest_wait_and_counts_from_zero() -> None:
    backoff = Backoff(1.0, 16.0)
    waits(backoff, 4)
    backoff.refusals.add()
    backoff.reset()
    assert waits(backoff, 2) == [1.0, 2.0]
    assert backoff.refusals.count == 0


def test_a_shortened_wait_keeps_the_count() -> None:
    backoff = Backoff(1.0, 16.0)
    waits(backoff, 4)
    backoff.refusals.add()
    backoff.shorten()
    assert waits(backoff, 2) == [1.0, 2.0]
    assert backoff.refusals.count == 1


def test_refusals_do_not_change_the_wait() -> None:
    backoff = Backoff(1.0, 16.0)
    for _ in range(5):
        backoff.refusals.add()
    assert backoff.next_s() == 1.0


def test_repeats_are_logged_at_1_2_and_5_of_every_power_of_ten() -> None:
    repeats = Repeats()
    logged = [n for n in range(1, 101) if repeats.add()]
    assert logged == [1, 2, 5, 10, 20, 50, 100]


def test_the_log_line_says_how_often_unless_it_is_the_first_time() -> None:
    repeats = Repeats()
    lines = [f"refused{repeats.times}" for _ in range(5) if repeats.add()]
    assert lines == ["refused", "refused (2 times)", "refused (5 times)"]
    repeats.clear()
    assert repeats.add()
    assert repeats.times == ""
