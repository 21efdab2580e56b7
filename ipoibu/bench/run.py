# SPDX-License-Identifier: BSD-2-Clause
"""One whole benchmark: all contenders in turn, round by round, then the scale."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ipoibu.base.errors import IpoibuError, UsageError
from ipoibu.bench import process, scale
from ipoibu.bench.contender import (
    CEILING_PACKET_BYTES,
    CONNECTED_MTU,
    MTU,
    Absent,
    Contender,
    IbIpoib,
    Ipoibu,
    Relay,
    Tunnel,
    Veth,
    Vxlan,
    need,
    number_wire,
    wait_answer,
)
from ipoibu.bench.environment import environment
from ipoibu.bench.report import summary
from ipoibu.bench.sandboxes import Pasta, Run, Slirp4netns
from ipoibu.bench.traffic import Sample, measures
from ipoibu.bench.tunnels import Fastd, WireguardGo
from ipoibu.lab import NamespaceLab
from ipoibu.lab.underlay import LINK, underlay

CONTENDERS: Final[tuple[Contender, ...]] = (
    Ipoibu("datagram"),
    Ipoibu("connected", ("--mode", "connected", "--mtu", str(CONNECTED_MTU))),
    Tunnel(),
    Tunnel("tunnel-again"),
    Tunnel("ceiling-datagram", "ceiling"),
    Tunnel("ceiling-connected", "ceiling", CEILING_PACKET_BYTES),
    Ipoibu("busy", ("--busy-poll", "100000")),
    Ipoibu("queues", ("--queues", "2"), cpus=2),
    Ipoibu("plain", ("--offload", "off")),
    Vxlan(),
    Veth(),
    Relay(),
    WireguardGo(),
    Fastd(),
    Run("run"),
    Run("run-connected", ("--mode", "connected", "--mtu", str(CONNECTED_MTU))),
    Pasta(),
    Slirp4netns(),
    IbIpoib("ib_ipoib-datagram", "datagram", MTU),
    IbIpoib("ib_ipoib-connected", "connected", CONNECTED_MTU),
)
PARTS: Final = ("neighbours", "hosts")
NAMES: Final = (*(contender.name for contender in CONTENDERS), *PARTS)
QUICK: Final = tuple(contender.name for contender in CONTENDERS[:6])
LABS: Final = 2  # labs differ by more than rounds of one do
# For the estimate of how long a run takes: a turn's start and end, a measurement's, and the parts
TURN_S: Final = 0.6
MEASURE_S: Final = 0.1
NEIGHBOURS_S: Final = 2.0
HOST_S: Final = 0.7


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run: `only` these of NAMES (empty: all), the number of rounds, the seconds for a
    measurement (whole ones, for iperf3), the number of parallel TCP streams, and the network below.

    `few` leaves out the measurements that the verdicts do not need.
    """

    rounds: int = 4
    seconds: int = 1
    streams: int = 1
    only: tuple[str, ...] = ()
    underlay: str = LINK
    neighbours: tuple[int, ...] = scale.NEIGHBOURS
    hosts: tuple[int, ...] = scale.HOSTS
    few: bool = False

    def __post_init__(self) -> None:
        underlay(self.underlay)
        for name in self.only:
            if name not in NAMES:
                raise UsageError(f"{name!r} is not measured: expected one of {', '.join(NAMES)}")

    def wants(self, name: str) -> bool:
        return not self.only or name in self.only

    def turns_s(self, turns: int) -> float:
        """Estimate how long so many turns take."""
        count = len(measures(few=self.few))
        return turns * (TURN_S + count * (self.seconds + MEASURE_S))

    def takes_s(self) -> float:
        """Estimate how long the run takes if no contender is absent."""
        contenders = sum(self.wants(contender.name) for contender in CONTENDERS)
        parts = (NEIGHBOURS_S, HOST_S * sum(self.hosts))
        wanted = sum(it for name, it in zip(PARTS, parts, strict=True) if self.wants(name))
        return self.turns_s(self.rounds * contenders) + wanted


def run(plan: Plan, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure, and return the report as in the JSON; `log` gets a line for each step.

    It needs what a `NamespaceLab` needs.
    """
    began = time.monotonic()
    log(f"this takes {about(plan.takes_s())}, if no contender is absent")
    report: dict[str, Any] = {"environment": environment(), "rounds": plan.rounds}
    report["labs"] = min(LABS, plan.rounds)
    report |= {"seconds": plan.seconds, "streams": plan.streams, "underlay": plan.underlay}
    chosen = [contender for contender in CONTENDERS if plan.wants(contender.name)]
    runs, absent, failed = contest(chosen, plan, log) if chosen else ({}, {}, {})
    report |= {"runs": runs, "absent": absent, "failed": failed, "neighbours": [], "hosts": []}
    if plan.wants("neighbours"):
        log("neighbours")
        report["neighbours"] = scale.neighbours(plan.neighbours)
    if plan.wants("hosts"):
        log("hosts")
        report["hosts"] = scale.hosts(plan.hosts)
    report["environment"]["load_average_after"] = [round(load, 2) for load in os.getloadavg()]
    report["took_s"] = round(time.monotonic() - began, 1)
    return report | summary(report)


def about(seconds: float) -> str:
    """Return a time as people say it."""
    if seconds < 120:
        return f"about {max(1, math.ceil(seconds / 10)) * 10} s"
    return f"about {seconds / 60:.0f} minutes"


def contest(
    contenders: Sequence[Contender], plan: Plan, log: Callable[[str], None]
) -> tuple[dict[str, list[Sample]], dict[str, str], dict[str, str]]:
    """Measure everything of each contender in its turns."""
    return take_turns(
        contenders,
        lambda contender, lab: turn(contender, lab, plan),
        plan.rounds,
        plan.underlay,
        log,
        labs=LABS,
    )


class Contest:
    """The turns of contenders: what they measured, who is out and why, and how long the rest takes."""

    def __init__(
        self,
        take: Callable[[Contender, NamespaceLab], Sample],
        turns: int,
        log: Callable[[str], None],
    ) -> None:
        self.runs: dict[str, list[Sample]] = {}
        self.absent: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self._take, self._log = take, log
        self._turns, self._over = turns, 0
        self._began = time.monotonic()

    def turn(self, contender: Contender, lab: NamespaceLab, where: str) -> None:
        """Let a contender measure that is not out, and log a line."""
        name = contender.name
        self._over += 1
        if name in self.absent or name in self.failed:
            return
        try:
            self.runs.setdefault(name, []).append(self._take(contender, lab))
        except Absent as error:
            self.absent[name] = str(error)
        except UsageError:
            raise
        except (IpoibuError, OSError) as error:
            self.failed[name] = str(error)
        wrong = self.absent.get(name) or self.failed.get(name)
        self._log(f"{self._progress()}{where}: {name}" + (f": {wrong}" if wrong else ""))

    def _progress(self) -> str:
        """How much is over, and how long the rest takes if its turns are like those before."""
        rest = self._turns - self._over
        left_s = rest * (time.monotonic() - self._began) / self._over
        return f"{100 * self._over // self._turns:3} %, {about(left_s)} left: "


def take_turns(
    contenders: Sequence[Contender],
    take: Callable[[Contender, NamespaceLab], Sample],
    rounds: int,
    underlay_name: str,
    log: Callable[[str], None],
    *,
    labs: int = 1,
) -> tuple[dict[str, list[Sample]], dict[str, str], dict[str, str]]:
    """Return the samples of each contender, one for each round, and the reasons of the absent and
    the failed ones. The rounds are in so many labs, one after the other; each second round is in
    reverse order.

    A contender that fails once leaves the contest: its rounds would no longer match the others'.
    """
    try:
        need("iperf3", "ping", "ip", "ss")
    except Absent as error:
        raise IpoibuError(str(error)) from error
    below = underlay(underlay_name)
    if below is not None:  # the other contenders use IPv4
        below = replace(below, versions=(4, 6))
    turns = Contest(take, rounds * len(contenders), log)
    shares = [range(rounds)[part::labs] for part in range(min(labs, rounds))]
    number = 0
    for place, share in enumerate(shares, 1):
        with NamespaceLab(2, start=False, underlay=below) as lab:
            if below is None:
                number_wire(lab)
            for _ in share:
                number += 1
                where = f"round {number} of {rounds}, lab {place} of {len(shares)}"
                for contender in contenders[:: 1 if number % 2 else -1]:
                    turns.turn(contender, lab, where)
    return {name: it for name, it in turns.runs.items() if it}, turns.absent, turns.failed


def turn(contender: Contender, lab: NamespaceLab, plan: Plan) -> Sample:
    """Start a contender, measure everything, stop it."""
    began = time.monotonic()
    with contender.running(lab) as running:
        ends = running.ends(lab)
        wait_answer(ends)
        sample: Sample = {"setup_s": time.monotonic() - began}
        for measure in measures(plan.streams, few=plan.few):
            sample |= measure(ends, plan.seconds)
        if running.pids:
            sample["rss_mib"] = process.rss_bytes(running.pids) / len(running.pids) / 2**20
        return sample
