# SPDX-License-Identifier: BSD-2-Clause
"""Two results of `ipoibu bench` compared, figure by figure: the ratio, its interval, a verdict.

Figures of a machine vary by factors, so that logarithms are compared: the ratio is that of the geometric
means. Rounds of two files do not belong together, unless the caller says that the two took turns
(`in_pairs`). `base` names a contender whose figure of the same round divides each one, which takes away
what a busy machine does to both.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from ipoibu.base.errors import UsageError
from ipoibu.bench import interval
from ipoibu.bench.html_report import Part, Section, Table
from ipoibu.bench.picture import Interval, intervals
from ipoibu.bench.report import grid

DIFFERENCE_PERCENT: Final = 3.0
# The ends of the figures' names: more is better, less is better
_MORE: Final = ("gbit_s", "packets_s", "frames_s", "frames", "efficiency_percent", "per_doorbell")
_LESS: Final = (
    "_us",
    "ns_per_byte",
    "ns_per_packet",
    "rss_mib",
    "setup_s",
    "lost_percent",
    "calls_per_mb",
    "time_ratio",
    "delay_percent",
)
_TIMED: Final = ("_us", "_s", "ns_per_byte", "ns_per_packet", "frames", "time_ratio")
# What of the files should be the same
_CONDITIONS: Final = (
    "seconds",
    "labs",
    "streams",
    "underlay",
    "procedure",
    "times",
    "accepted_loss_percent",
)
_MACHINE: Final = ("cpu", "cpus", "kernel", "tcp_congestion_control", "features")


@dataclass(frozen=True, slots=True)
class Method:
    """How to compare: `only` these contenders and figures (empty: all), and the difference to look for."""

    in_pairs: bool = False
    base: str | None = None
    difference_percent: float = DIFFERENCE_PERCENT
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one contender; `ratio` is that of the second file to the first."""

    contender: str
    figure: str
    rounds: tuple[int, int]
    verdict: str
    note: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None  # that such a ratio comes up where there is no difference
    rounds_needed: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of `compare`; `differing` are the conditions that the two files do not share."""

    method: Method
    rows: Sequence[Row]
    differing: Mapping[str, tuple[Any, Any]]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def load(path: Path) -> dict[str, Any]:
    """Read a result; `UsageError` for another file."""
    try:
        result = json.loads(path.read_text("utf-8"))
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: no JSON: {error}") from error
    runs = result.get("runs") if isinstance(result, dict) else None
    if not isinstance(runs, dict) or not all(
        isinstance(samples, list) and all(isinstance(sample, dict) for sample in samples)
        for samples in runs.values()
    ):
        raise UsageError(f"{path}: no result of `ipoibu bench --json`")
    assert isinstance(result, dict)
    return result


def compare(
    first: Mapping[str, Any], second: Mapping[str, Any], method: Method = Method()
) -> Comparison:
    """Compare every figure that both results have."""
    rows = []
    known: set[str] = set()
    for name, samples in first["runs"].items():
        others = second["runs"].get(name, [])
        if name == method.base or not samples or not others:
            continue
        for figure in samples[0]:
            pair = [_figures(it, name, figure, method.base) for it in (first, second)]
            if all(pair):
                known |= {name, figure}
                if not method.only or {name, figure} & set(method.only):
                    rows.append(_row(name, figure, pair, method))
    if unknown := set(method.only) - known:
        raise UsageError(f"--only: {', '.join(sorted(unknown))}: not in both results")
    if not rows:
        raise UsageError("the two results have no figure in common")
    return Comparison(method, _corrected(rows), _differing(first, second))


def _figures(
    result: Mapping[str, Any], name: str, figure: str, base: str | None
) -> Sequence[float]:
    """Return the figure of each round, divided by that of `base` in the same round."""
    mine = [sample.get(figure) for sample in result["runs"][name]]
    if base is None:
        return [float(it) for it in mine if it is not None]
    theirs = [sample.get(figure) for sample in result["runs"].get(base, [])]
    return [a / b for a, b in zip(mine, theirs, strict=False) if a is not None and b]


def _row(name: str, figure: str, pair: Sequence[Sequence[float]], method: Method) -> Row:
    rounds = len(pair[0]), len(pair[1])
    if min(min(figures) for figures in pair) <= 0:
        return Row(name, figure, rounds, "not compared", "zero has no ratio")
    first, second = ([math.log(it) for it in figures] for figures in pair)
    ratio = math.exp(statistics.fmean(second) - statistics.fmean(first))
    if min(rounds) < 2:
        return Row(name, figure, rounds, "not judged", "one round has no interval", ratio)
    if method.in_pairs and rounds[0] != rounds[1]:
        return Row(name, figure, rounds, "not judged", "unequal numbers make no pairs", ratio)
    difference = (interval.paired if method.in_pairs else interval.welch)(first, second)
    low, high = difference.bounds()
    wanted = math.log1p(method.difference_percent / 100)
    needed = interval.rounds_needed(wanted, first, second, in_pairs=method.in_pairs)
    verdict, note = "no difference seen", ""
    if not low <= 0 <= high:
        verdict = _word(figure, ratio)
    elif -wanted < low and high < wanted:
        note = f"under {method.difference_percent:g} %"
    else:
        note = f"{method.difference_percent:g} % needs {needed or 'very many'} rounds"
    bounds = math.exp(low), math.exp(high)
    chance = difference.chance()
    return Row(name, figure, rounds, verdict, note, ratio, *bounds, chance, needed)


def _word(figure: str, ratio: float) -> str:
    if figure.endswith(_LESS):
        good = ratio < 1
    elif figure.endswith(_MORE):
        good = ratio > 1
    else:
        return "larger" if ratio > 1 else "smaller"
    if figure.endswith(_TIMED):
        return "faster" if good else "slower"
    return "better" if good else "worse"


def _corrected(rows: Sequence[Row]) -> list[Row]:
    """Say of which verdicts chance may be the reason, as there are many: Holm's correction."""
    judged = [row for row in rows if row.chance is not None]
    corrected = interval.holm([row.chance for row in judged if row.chance is not None])
    doubtful = {
        (row.contender, row.figure)
        for row, chance in zip(judged, corrected, strict=True)
        if chance > 1 - interval.CONFIDENCE and row.verdict != "no difference seen"
    }
    note = f"perhaps by chance: one of {len(judged)} comparisons"
    return [
        replace(row, note=note) if (row.contender, row.figure) in doubtful else row for row in rows
    ]


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    def conditions(result: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        machine = result.get("environment", {})
        yield from ((key, result.get(key)) for key in _CONDITIONS)
        yield from ((key, machine.get(key)) for key in _MACHINE)

    pairs = zip(conditions(first), conditions(second), strict=True)
    return {key: (a, b) for (key, a), (_, b) in pairs if a != b}


def table(comparison: Comparison) -> str:
    """Return the comparison as text."""
    return "\n\n".join((*_texts(comparison), grid(*_grid(comparison))))


def sections(comparison: Comparison) -> list[Section]:
    """Return the comparison as the sections of a page."""
    drawn: list[Part] = []
    for name in dict.fromkeys(row.contender for row in comparison.rows):
        ratios = {
            row.figure: Interval(row.ratio, row.low, row.high)
            for row in comparison.rows
            if row.contender == name and row.ratio and row.low and row.high
        }
        if ratios:
            drawn.append(intervals(f"{name}: ratio of the second result to the first", ratios))
    return [
        Section("Ratios", [*_texts(comparison), Table(*_grid(comparison))]),
        Section("Pictures", drawn),
    ]


def _texts(comparison: Comparison) -> list[str]:
    method = comparison.method
    how = "Student's t of pairs of rounds" if method.in_pairs else "Welch's t, rounds unpaired"
    to = f", each figure divided by that of {method.base} in its round" if method.base else ""
    judged = sum(row.chance is not None for row in comparison.rows)
    texts = [
        f"ratio of the second result to the first, with its {interval.CONFIDENCE:.0%} interval:"
        f" {how}, on logarithms{to}",
        f"{judged} comparisons: about {judged * (1 - interval.CONFIDENCE):.1f} of them would show a"
        " difference by chance; the note names those that Holm's correction doubts",
    ]
    if comparison.differing:
        named = (f"{key}: {a} and {b}" for key, (a, b) in comparison.differing.items())
        texts.append("the two results differ in " + "; ".join(named))
    return texts


def _grid(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    rows = []
    for row in comparison.rows:
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        bounds = "-" if row.low is None or row.high is None else f"{row.low:.3f} to {row.high:.3f}"
        rounds = f"{row.rounds[0]}, {row.rounds[1]}"
        rows.append([f"{row.contender} {row.figure}", ratio, bounds, rounds, row.verdict, row.note])
    return ["", "ratio", "interval", "rounds", "verdict", "note"], rows
