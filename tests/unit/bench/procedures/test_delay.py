# SPDX-License-Identifier: BSD-2-Clause
"""Delays whose figures follow by hand from RFC 8219 §7 and RFC 5481."""

from __future__ import annotations

from ipoibu.bench.procedures.delay import delay


def _of(*delays_us: float) -> list[tuple[int, int]]:
    return [(number, round(each * 1000)) for number, each in enumerate(delays_us)]


def test_ipdv_is_each_delay_less_the_one_before() -> None:
    """Delays 10, 14, 11, 11 change by 4, -3 and 0."""
    found = delay(_of(10, 14, 11, 11))
    assert found is not None
    assert (found.ipdv_least_us, found.ipdv_most_us, found.ipdv_median_us) == (-3, 4, 3)
    assert (found.count, found.least_us, found.median_us) == (4, 10, 11)


def test_pdv_is_the_high_percentile_less_the_least() -> None:
    """Of 2000 delays from 101 us up, the 1998th in order is the 99.9 % percentile, by nearest rank."""
    found = delay(_of(*(100 + number for number in range(2000, 0, -1))))
    assert found is not None
    assert found.worst_us == 100 + 1998
    assert found.least_us == 101
    assert found.pdv_us == 1997
    assert found.median_us == 1100.5
    assert (found.ipdv_least_us, found.ipdv_most_us, found.ipdv_median_us) == (-1, -1, 1)


def test_the_order_is_that_of_sending() -> None:
    swapped = delay([(1, 14_000), (0, 10_000), (2, 11_000)])
    assert swapped == delay([(0, 10_000), (1, 14_000), (2, 11_000)])


def test_constant_delay_has_no_variation() -> None:
    found = delay(_of(*[50.0] * 600))
    assert found is not None
    assert (found.pdv_us, found.ipdv_median_us, found.ipdv_most_us) == (0, 0, 0)


def test_one_frame_has_no_variation_to_speak_of() -> None:
    assert delay([]) is None
    assert delay(_of(10)) is None
