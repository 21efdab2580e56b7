# SPDX-License-Identifier: BSD-2-Clause
"""Rounds in which all contenders take turns, and the ratios of their figures.

What the machine does meanwhile meets all contenders of a round alike, so each round has a ratio of its own.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Figures = Mapping[str, float]  # of one contender in one round, by their names
_Name = TypeVar("_Name", bound=str)


def take_turns(
    names: Iterable[_Name],
    rounds: int,
    measure: Callable[[_Name], Figures],
    *,
    deadline_s: float = math.inf,
) -> dict[_Name, list[Figures]]:
    """Measure every contender once a round, in random order; begin no round that would end after the
    deadline, if it takes as long as the one before."""
    found: dict[_Name, list[Figures]] = {name: [] for name in names}
    end_s = time.monotonic() + deadline_s
    for _ in range(rounds):
        began_s = time.monotonic()
        for name in random.sample(list(found), len(found)):
            found[name].append(measure(name))
        now_s = time.monotonic()
        if now_s + now_s - began_s > end_s:
            break
    return found


@dataclass(frozen=True, slots=True)
class Ratio:
    """One figure of one contender, to the first one's: the geometric mean of the rounds' ratios, its
    relative standard error (NaN after one round), and the medians of both."""

    figure: str
    name: str
    base: str
    ratio: float
    error: float
    medians: tuple[float, float]  # the base's, the contender's
    rounds: int

    def __str__(self) -> str:
        return (
            f"{self.figure:22} {self.name}/{self.base}: {self.ratio:.3f} +-{self.error:.3f}"
            f"  medians {self.medians[0]:.4g}, {self.medians[1]:.4g}  {self.rounds} rounds"
        )


def ratios(found: Mapping[str, Sequence[Figures]]) -> Iterator[Ratio]:
    """Return those of each figure of every contender but the first."""
    base, *others = found
    for name in others:
        for figure in found[base][0]:
            theirs, ours = ([each[figure] for each in found[it]] for it in (base, name))
            logs = [math.log(our / their) for our, their in zip(ours, theirs, strict=True)]
            yield Ratio(
                figure=figure,
                name=name,
                base=base,
                ratio=math.exp(statistics.mean(logs)),
                error=statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan,
                medians=(statistics.median(theirs), statistics.median(ours)),
                rounds=len(logs),
            )
