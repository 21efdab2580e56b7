# SPDX-License-Identifier: BSD-2-Clause
"""One whole procedure: the contenders in turn and the control, round by round."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from ipoibu.base.errors import UsageError
from ipoibu.bench.contender import Contender, wait_answer
from ipoibu.bench.environment import environment
from ipoibu.bench.procedures import control, rfc2544, rfc6349
from ipoibu.bench.procedures.tester import Tester
from ipoibu.bench.procedures.times import SHORT, Times, shorter
from ipoibu.bench.run import CONTENDERS, take_turns
from ipoibu.bench.traffic import Ends, Sample
from ipoibu.lab import NamespaceLab
from ipoibu.lab.underlay import LINK, underlay

Procedure = Literal["rfc2544", "rfc6349"]
Details = dict[str, Any]

DEFAULT: Final = ("datagram", "connected")
NAMES: Final = tuple(contender.name for contender in CONTENDERS)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a procedure. `only` these contenders beside the control; `sizes` and `accepted_percent` of
    lost frames are RFC 2544's, `streams` RFC 6349's. `quick` means fewer sizes.
    """

    procedure: Procedure
    times: Times = SHORT
    rounds: int = 1
    only: tuple[str, ...] = ()
    underlay: str = LINK
    sizes: tuple[int, ...] = ()
    accepted_percent: float = 0.0
    streams: int = 1
    quick: bool = False

    def __post_init__(self) -> None:
        underlay(self.underlay)
        for name in self.only:
            if name not in NAMES:
                raise UsageError(f"{name!r} is not measured: expected one of {', '.join(NAMES)}")


class Turns:
    """Measures one contender after the other, and keeps what is behind the figures."""

    def __init__(self, plan: Plan, log: Callable[[str], None]) -> None:
        self._plan, self._log = plan, log
        self._sizes: set[int] = set()
        self.details: dict[str, list[Details]] = {}

    def take(self, contender: Contender, lab: NamespaceLab) -> Sample:
        with contender.running(lab) as running:
            ends = running.ends(lab)
            wait_answer(ends)
            if self._plan.procedure == "rfc6349":
                sample, details = rfc6349.measure(ends, self._plan.times, self._plan.streams)
            else:
                sample, details = self._frames(contender.name, ends)
        self.details.setdefault(contender.name, []).append(details)
        return sample

    def _frames(self, name: str, ends: Ends) -> tuple[Sample, Details]:
        plan = self._plan
        sample: Sample = {}
        by_size: Details = {}
        with Tester(ends, plan.times) as tester:
            sizes = rfc2544.sizes_for(plan.sizes, tester.mtu, quick=plan.quick)
            if name == control.NAME:  # it comes last in a round
                sizes = sorted(self._sizes) or sizes
            if not sizes:
                raise UsageError(f"--sizes: none is from {rfc2544.SIZE_LEAST} to {tester.mtu}")
            self._sizes |= set(sizes)
            for size in sizes:
                self._log(f"{name}: {size} bytes")
                figures, by_size[str(size)] = rfc2544.measure(
                    tester, size, plan.times, plan.accepted_percent
                )
                sample |= figures
        return sample, {"mtu": tester.mtu, "sizes": by_size}


def run(plan: Plan, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure, and return the report as in the JSON; it needs what a `NamespaceLab` needs."""
    wanted = plan.only or DEFAULT
    chosen: list[Contender] = [it for it in CONTENDERS if it.name in wanted]
    turns = Turns(plan, log)
    report: dict[str, Any] = {"environment": environment(), "procedure": plan.procedure}
    report |= {"rounds": plan.rounds, "underlay": plan.underlay, "times": plan.times.as_dict()}
    if plan.procedure == "rfc2544":
        report["accepted_loss_percent"] = plan.accepted_percent
    else:
        report["streams"] = plan.streams
    runs, absent, failed = take_turns(
        [*chosen, control.Control()], turns.take, plan.rounds, plan.underlay, log
    )
    report["environment"]["load_average_after"] = [round(load, 2) for load in os.getloadavg()]
    report |= {"runs": runs, "details": turns.details, "absent": absent, "failed": failed}
    return report | {"shorter_than_the_rfc": shorter(plan.procedure, plan.times)}
