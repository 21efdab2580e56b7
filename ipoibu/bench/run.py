# SPDX-License-Identifier: BSD-2-Clause
"""One whole benchmark: all contenders in turn, round by round, then the scale."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ipoibu.base.errors import IpoibuError, UsageError
from ipoibu.bench import process, scale
from ipoibu.bench.contender import (
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
    Ipoibu("busy", ("--busy-poll", "100000")),
    Ipoibu("queues", ("--queues", "2"), cpus=2),
    Ipoibu("plain", ("--offload", "off")),
    Vxlan(),
    Veth(),
    Relay(),
    Tunnel(),
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


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run: `only` these of NAMES (empty: all), the number of rounds, the seconds for a
    measurement (whole ones, for iperf3), the number of parallel TCP streams, and the network below.
    """

    rounds: int = 3
    seconds: int = 2
    streams: int = 1
    only: tuple[str, ...] = ()
    underlay: str = LINK
    neighbours: tuple[int, ...] = scale.NEIGHBOURS
    hosts: tuple[int, ...] = scale.HOSTS

    def __post_init__(self) -> None:
        underlay(self.underlay)
        for name in self.only:
            if name not in NAMES:
                raise UsageError(f"{name!r} is not measured: expected one of {', '.join(NAMES)}")

    def wants(self, name: str) -> bool:
        return not self.only or name in self.only


def run(plan: Plan, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure, and return the report as in the JSON; `log` gets a line for each step.

    It needs what a `NamespaceLab` needs.
    """
    report: dict[str, Any] = {"environment": environment(), "rounds": plan.rounds}
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
    return report | summary(report)


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
    )


def take_turns(
    contenders: Sequence[Contender],
    take: Callable[[Contender, NamespaceLab], Sample],
    rounds: int,
    underlay_name: str,
    log: Callable[[str], None],
) -> tuple[dict[str, list[Sample]], dict[str, str], dict[str, str]]:
    """Return the samples of each contender, one for each round, and the reasons of the absent and
    the failed ones.

    A contender that fails once leaves the contest: its rounds would no longer match the others'.
    """
    try:
        need("iperf3", "ping", "ip", "ss")
    except Absent as error:
        raise IpoibuError(str(error)) from error
    runs: dict[str, list[Sample]] = {}
    absent: dict[str, str] = {}
    failed: dict[str, str] = {}
    below = underlay(underlay_name)
    if below is not None:  # the other contenders use IPv4
        below = replace(below, versions=(4, 6))
    with NamespaceLab(2, start=False, underlay=below) as lab:
        if below is None:
            number_wire(lab)
        for number in range(1, rounds + 1):
            for contender in contenders:
                name = contender.name
                if name in absent or name in failed:
                    continue
                try:
                    runs.setdefault(name, []).append(take(contender, lab))
                except Absent as error:
                    absent[name] = str(error)
                except UsageError:
                    raise
                except (IpoibuError, OSError) as error:
                    failed[name] = str(error)
                wrong = absent.get(name) or failed.get(name)
                log(f"round {number} of {rounds}: {name}" + (f": {wrong}" if wrong else ""))
    return {name: samples for name, samples in runs.items() if samples}, absent, failed


def turn(contender: Contender, lab: NamespaceLab, plan: Plan) -> Sample:
    """Start a contender, measure everything, stop it."""
    began = time.monotonic()
    with contender.running(lab) as running:
        ends = running.ends(lab)
        wait_answer(ends)
        sample: Sample = {"setup_s": time.monotonic() - began}
        for measure in measures(plan.streams):
            sample |= measure(ends, plan.seconds)
        if running.pids:
            sample["rss_mib"] = process.rss_bytes(running.pids) / len(running.pids) / 2**20
        return sample
