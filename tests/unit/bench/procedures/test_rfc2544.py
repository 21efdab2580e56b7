# SPDX-License-Identifier: BSD-2-Clause
"""The procedures over paths whose capacity and buffer the test has chosen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ipoibu.bench.procedures.rfc2544 import (
    buffer_s,
    longest_burst,
    loss_curve,
    sizes_for,
    throughput,
)
from ipoibu.bench.procedures.search import RESOLUTION
from ipoibu.bench.procedures.tester import Trial

SECONDS = 2.0


def _trial(offered: float, *, sent: float, received: float, overflowed: float = 0) -> Trial:
    return Trial(
        size=64,
        frames=round(offered * SECONDS),
        offered=offered,
        sent=round(sent * SECONDS),
        took_s=SECONDS,
        received=round(received * SECONDS),
        overflowed=round(overflowed * SECONDS),
    )


def _path(
    capacity: float, *, sender: float = 1e9, receiver: float = 1e9
) -> Callable[[float], Trial]:
    """A path that passes `capacity` frames a second, between programs that have limits of their own."""

    def trial(rate: float) -> Trial:
        sent = min(rate, sender)
        passed = min(sent, capacity)
        taken = min(passed, receiver)
        return _trial(rate, sent=sent, received=taken, overflowed=passed - taken)

    return trial


def test_throughput_is_the_path_s_capacity() -> None:
    found = throughput(_path(70_000), 200_000)
    assert 70_000 * (1 - RESOLUTION) <= found.frames_s <= 70_001
    assert found.limit == "path"


def test_a_path_that_takes_all_is_limited_by_the_sender() -> None:
    found = throughput(_path(1e9), 200_000)
    assert (found.frames_s, found.limit) == (200_000, "sender")
    slow = throughput(_path(1e9, sender=100_000), 200_000)
    assert (slow.frames_s, slow.limit) == (100_000, "sender")  # the rate that it reached


def test_a_receiver_that_has_no_time_is_not_the_path() -> None:
    found = throughput(_path(1e9, receiver=50_000), 200_000)
    assert found.limit == "receiver"
    assert found.frames_s == pytest.approx(50_000, rel=RESOLUTION)


def test_an_accepted_loss_admits_a_higher_rate() -> None:
    found = throughput(_path(70_000), 200_000, accepted_percent=10)
    assert found.frames_s == pytest.approx(70_000 / 0.9, rel=RESOLUTION)


def test_a_rate_fails_only_if_all_its_tries_lose() -> None:
    """On a machine that others use, one trial in two loses a frame for no reason of the path's."""
    spoiled = iter([True, False])

    def trial(rate: float) -> Trial:
        return _trial(rate, sent=rate, received=rate - 1 if next(spoiled) else rate)

    assert throughput(trial, 1000, tries=2).frames_s == 1000
    assert next(spoiled, None) is None


def test_a_path_that_loses_always_has_no_throughput() -> None:
    found = throughput(lambda rate: _trial(rate, sent=rate, received=rate / 2), 1000)
    assert (found.frames_s, found.limit) == (0, "path")


def test_loss_falls_in_steps_of_ten_percent_until_two_lose_nothing() -> None:
    """§26.3; at 100 % of 1000 a path of 850 loses 15 %."""
    curve = loss_curve(_path(850), 1000)
    assert [it["percent"] for it in curve] == [100, 90, 80, 70]
    assert [it["lost_percent"] for it in curve] == pytest.approx([15, 100 * 50 / 900, 0, 0])
    assert len(loss_curve(_path(0), 1000)) == 10


def _burst(buffer: int) -> Callable[[int], Trial]:
    return lambda frames: Trial(64, frames, 0.0, frames, 0.001, min(frames, buffer), 0)


def test_the_longest_burst_fills_the_buffer() -> None:
    assert longest_burst(_burst(100), 10_000) in (98, 99, 100)
    assert longest_burst(_burst(3), 10_000) == 3
    assert longest_burst(_burst(1), 10_000) == 1
    assert longest_burst(_burst(0), 10_000) == 0
    assert longest_burst(_burst(20_000), 10_000) == 10_000


def test_the_buffer_is_corrected_by_what_leaves_it() -> None:
    """RFC 9004 §6.4: 26 000 frames of 14.88 million a second, of which the path forwards 11.5 million."""
    implied = 26_000 / 14_880_952
    assert buffer_s(26_000, 14_880_952, 11_500_000) == pytest.approx(
        implied - implied * 11_500_000 / 14_880_952
    )
    assert buffer_s(1000, 1000.0, 0.0) == 1.0
    assert buffer_s(1000, 1000.0, 1000.0) is None


def test_sizes_end_with_the_mtu() -> None:
    assert sizes_for((), 2044, quick=False) == [64, 128, 256, 512, 1024, 1280, 1518, 2044]
    assert sizes_for((), 1280, quick=False)[-2:] == [1024, 1280]
    assert sizes_for((), 65520, quick=True) == [64, 512, 65520]
    assert sizes_for((3000, 100), 2044, quick=True) == [100]


def test_a_trial_knows_its_rates_and_who_is_to_blame() -> None:
    good = _trial(1000, sent=1000, received=1000)
    assert (good.rate, good.lost, good.lost_percent, good.fault(0)) == (1000, 0, 0, None)
    lossy = _trial(1000, sent=1000, received=900, overflowed=50)
    assert (lossy.lost, lossy.lost_percent, lossy.fault(0), lossy.fault(10)) == (
        200,
        10,
        "path",
        None,
    )
    assert _trial(1000, sent=1000, received=900, overflowed=100).fault(0) == "receiver"
    slow = _trial(1000, sent=900, received=900)
    assert (slow.rate, slow.fault(0)) == (900, None)
    assert _trial(0, sent=0, received=0).rate == 0
