# SPDX-License-Identifier: BSD-2-Clause
"""Throughput, latency, back-to-back frames and frame loss: RFC 2544 §26, with the delays of RFC 8219 and the
average of RFC 9004. A size is that of the IP packet: IPoIB adds four bytes to it, Ethernet eighteen.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ipoibu.bench.procedures.delay import delay
from ipoibu.bench.procedures.search import RESOLUTION, highest
from ipoibu.bench.procedures.tester import Limit, Tester, Trial
from ipoibu.bench.procedures.times import Times

SIZES: Final = (64, 128, 256, 512, 1024, 1280, 1518)  # RFC 2544 §9.1
QUICK_SIZES: Final = (64, 512)
SIZE_LEAST: Final = 64
RATE_LEAST: Final = 10.0  # frames a second, where a search ends
LOSS_STEPS: Final = range(100, 0, -10)  # percent: RFC 2544 §26.3
CLEAN_STEPS: Final = 2  # in a row end the loss trials

Sample = dict[str, float]
Details = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Throughput:
    """The highest rate that passed, as it left the sender, and what kept the next one from passing."""

    frames_s: float
    limit: Limit


def sizes_for(chosen: Sequence[int], mtu: int, *, quick: bool) -> list[int]:
    """Return the sizes up to the MTU: those of the RFC and the MTU itself, or the chosen ones."""
    some = chosen or (*(QUICK_SIZES if quick else SIZES), mtu)
    return sorted({size for size in some if SIZE_LEAST <= size <= mtu})


def throughput(
    trial: Callable[[float], Trial], top: float, accepted_percent: float = 0.0, tries: int = 1
) -> Throughput:
    """Search the highest rate that loses no more than `accepted_percent` of the frames: §26.1.

    A rate fails if so many `tries` in a row lose more. The sender is the limit if `top` passes.
    """
    faults: dict[float, Limit] = {}
    reached: dict[float, float] = {0.0: 0.0}

    def passes(rate: float) -> bool:
        for _ in range(tries):
            seen = trial(rate)
            fault = seen.fault(accepted_percent)
            if fault is None:
                reached[rate] = seen.rate
                return True
            faults[rate] = fault
        return False

    found = highest(passes, top, bottom=RATE_LEAST)
    above = [rate for rate in faults if rate > found]
    return Throughput(reached[found], faults[min(above)] if above else "sender")


def loss_curve(trial: Callable[[float], Trial], top: float) -> list[dict[str, float]]:
    """Return the percentage lost at each percentage of `top`, until two in a row lose nothing: §26.3."""
    curve: list[dict[str, float]] = []
    for percent in LOSS_STEPS:
        seen = trial(top * percent / 100)
        lost = {"lost_percent": seen.lost_percent, "overflowed": float(seen.overflowed)}
        curve.append({"percent": float(percent), "sent_frames_s": seen.rate, **lost})
        if len(curve) >= CLEAN_STEPS and not any(it["lost_percent"] for it in curve[-CLEAN_STEPS:]):
            break
    return curve


def longest_burst(burst: Callable[[int], Trial], most: int) -> int:
    """Return how many frames in a row arrive without loss, at most `most`: §26.4."""
    return int(
        highest(lambda frames: burst(int(frames)).lost == 0, most, bottom=1, resolution=RESOLUTION)
    )


def buffer_s(frames: float, top: float, throughput_frames_s: float) -> float | None:
    """Return the buffer in seconds, corrected by what leaves it meanwhile (RFC 9004 §6.4); None if the
    sender is no faster than the path."""
    if top <= throughput_frames_s or top <= 0:
        return None
    return frames / top * (1 - throughput_frames_s / top)


def measure(
    tester: Tester, size: int, times: Times, accepted_percent: float
) -> tuple[Sample, Details]:
    """Run all four procedures with frames of one size; return the figures and what is behind them."""

    def at(rate: float) -> Trial:
        return tester.stream(size, rate, times.trial_s)

    tester.trials.clear()
    top = tester.full_speed(size)
    found = throughput(at, top, accepted_percent, times.tries)
    sample: Sample = {
        f"full_speed_{size}_frames_s": top,
        f"throughput_{size}_frames_s": found.frames_s,
    }
    details: Details = {"limit": found.limit, "full_speed_frames_s": top}
    details |= {"throughput_frames_s": found.frames_s, "trials": _record(tester)}
    delays = _delays(tester, size, found.frames_s, times)
    if delays:
        details["delays"] = delays
        for name, key in (("latency", "median_us"), ("latency_worst", "worst_us")):
            sample[f"{name}_{size}_us"] = statistics.median(it[key] for it in delays)
        for key in ("pdv_us", "ipdv_median_us"):
            name = key.split("_", maxsplit=1)[0]
            sample[f"{name}_{size}_us"] = statistics.median(it[key] for it in delays)
    most = max(1, int(top * times.burst_s))
    bursts = [
        longest_burst(lambda frames: tester.burst(size, frames), most)
        for _ in range(times.burst_repeats)
    ]
    average = statistics.fmean(bursts)
    sample[f"back_to_back_{size}_frames"] = average
    details["back_to_back"] = {
        "average_frames": average,
        "each": bursts,
        "deviation": statistics.stdev(bursts) if len(bursts) > 1 else 0.0,
        "most": most,
        "is_least": max(bursts) >= most,  # longer bursts, which nobody tried, may pass
        "buffer_s": None if max(bursts) >= most else buffer_s(average, top, found.frames_s),
    }
    details["loss"] = loss_curve(at, top)
    sample[f"loss_{size}_lost_percent"] = details["loss"][0]["lost_percent"]
    return sample, details


def _delays(tester: Tester, size: int, rate: float, times: Times) -> list[dict[str, float]]:
    """Return the delays of each stream at the throughput; none if that is zero."""
    if rate <= 0:
        return []
    streams = (
        tester.stream(size, rate, times.latency_s, tagged=True)
        for _ in range(times.latency_repeats)
    )
    found = [(trial, delay(trial.tagged)) for trial in streams]
    return [it.as_dict() | {"lost": trial.lost} for trial, it in found if it is not None]


def _record(tester: Tester) -> list[dict[str, Any]]:
    return [trial.as_dict() for trial in tester.trials]
