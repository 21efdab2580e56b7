# SPDX-License-Identifier: BSD-2-Clause
"""Runs hosts under seeded faults for a long time; checks invariants meanwhile and at the end.

    python -m tests.soak.soak [--hours H] [--hosts N] [--seed S] [--resume S]
                            [--opensm | --no-opensm]

An eighth of the time goes to hosts under an OpenSM, which dies and starts anew. Every flow moves again
within `--resume` seconds after each fault. At the end descriptors and memory of each daemon are what
they were, its counters add up, and no daemon has reported a defect. The exit status is 1 when an
invariant did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ipoibu.base.errors import IpoibuError
from ipoibu.lab import LabSubnet, NamespaceLab
from ipoibu.lab.host import Host
from tests.soak import invariants
from tests.soak.faults import Faults
from tests.soak.flows import Flow, Flows
from tests.soak.invariants import Resources

RESUME_S: Final = 3.0
SETTLE_S: Final = 60.0  # until all hosts know each other
BETWEEN_S: Final = 1.0
QUIET_S: Final = 1.0  # until nothing is under way
REST_S: Final = 10.0  # until a daemon that got little CPU has read its socket
SM_HOSTS: Final = 6
SM_SHARE: Final = 1 / 8  # of the time, for the hosts under an OpenSM
LOG_LINES: Final = 10  # of the target of a flow that is late
LOSSY_KEEPS: Final = 0.3  # share of datagrams that arrives whatever the faults do


@dataclass
class Report:
    """The outcome of a soak."""

    failures: list[str] = field(default_factory=list)
    faults: dict[str, list[float]] = field(default_factory=dict)  # seconds until all flows moved
    elapsed_s: float = 0.0
    sent: int = 0
    received: int = 0

    def __str__(self) -> str:
        lines = [f"{self.received} of {self.sent} datagrams arrived"]
        for name, seconds in sorted(self.faults.items()):
            median, worst = statistics.median(seconds), max(seconds)
            lines.append(
                f"{name}: {len(seconds)}, resumed in {median:.2f} s, {worst:.2f} s at worst"
            )
        return "\n".join([*lines, *(f"FAILED {it}" for it in self.failures)])


def soak(
    lab: NamespaceLab,
    seconds: float,
    seed: int,
    *,
    resume_s: float = RESUME_S,
    subnet: LabSubnet | None = None,
    faults_min: int = 0,
) -> Report:
    """Let the lab's hosts run under faults for the given time, and until there were `faults_min`."""
    report = Report()
    with Flows(lab) as flows:
        _, late = flows.resumed(time.monotonic(), SETTLE_S)
        if late:
            report.failures.append(f"never began: {', '.join(flow.name for flow in late)}")
            return report
        before = {host.number: Resources.of(host) for host in lab.hosts}
        faults = Faults(lab, seed, subnet)
        end = time.monotonic() + seconds
        drawn = 0
        while time.monotonic() < end or drawn < faults_min:
            drawn += 1
            report.elapsed_s = time.monotonic() - end + seconds
            _one_fault(report, faults, flows, resume_s)
            for host in lab.hosts:  # a daemon that was started anew begins anew
                if host.pid != before[host.number].pid:
                    before[host.number] = Resources.of(host)
        report.sent = sum(flow.sent for flow in flows.flows)
        report.received = sum(flow.received for flow in flows.flows)
    time.sleep(QUIET_S)
    for host in lab.hosts:
        report.failures += invariants.growth(host, before[host.number])
        report.failures += _miscounted_at_rest(host)
        report.failures += invariants.defects(host)
    if report.received < LOSSY_KEEPS * report.sent:
        report.failures.append(f"{report.received} of {report.sent} datagrams arrived")
    return report


def _miscounted_at_rest(host: Host) -> list[str]:
    """Sums that stay wrong: packets may arrive between the reading of two counters, but not for long."""
    deadline = time.monotonic() + REST_S
    while (found := invariants.miscounted(host)) and time.monotonic() < deadline:
        time.sleep(QUIET_S)
    return found


def _one_fault(report: Report, faults: Faults, flows: Flows, resume_s: float) -> None:
    description, fault = faults.draw()
    try:
        with fault:
            pass
    except (IpoibuError, AssertionError, OSError) as error:
        report.failures.append(f"at {report.elapsed_s:.0f} s, {description}: {error}")
        faults.mend()
        return
    took, late = flows.resumed(time.monotonic(), resume_s)
    report.faults.setdefault(description.partition(" of ")[0], []).append(took)
    if late:
        seen = "".join(f"\n  {_beginning(flow)}" for flow in late)
        more, _ = flows.resumed(time.monotonic(), SETTLE_S)
        report.failures.append(
            f"at {report.elapsed_s:.0f} s, after {description}, not within {resume_s:g} s but"
            f" {took + more:.1f} s, load {os.getloadavg()[0]:.1f}:{seen}"
        )
    time.sleep(BETWEEN_S)


def _beginning(flow: Flow) -> str:
    """The flow, what its source knows about the target while the flow stands still, and the target's
    own view of its address."""
    ends = [host for host in (flow.source, flow.target) if host.ended() is not None]
    if ends:
        return f"{flow.name}: " + "; ".join(f"{host.name} ended: {host.log()}" for host in ends)
    address = str(flow.target_ip)
    rows = [row for row in flow.source.ask("neigh") if address in str(row)]
    peers = {row["hwaddr"] for row in rows}
    connections = [row for row in flow.source.ask("conn") if row["peer"] in peers]
    target = flow.target.ask("show")
    held = next((it for it in target["addresses"] if it["address"] == address), "missing")
    lines = "".join(f"\n    {line}" for line in flow.target.log().splitlines()[-LOG_LINES:])
    return (
        f"{flow.name}: target {target['hwaddr']}, its address {held},"
        f" neighbours {rows}, connections {connections}, its log:{lines}"
    )


@contextlib.contextmanager
def _mixed(hosts: int, subnet: LabSubnet | None) -> Iterator[NamespaceLab]:
    """A lab where every other host is in connected mode."""
    with NamespaceLab(hosts, start=False, subnet=subnet) as lab:
        for host in lab.hosts:
            if host.number % 2 == 0 and subnet is None:
                host.options = ["--mode", "connected"]
        lab.start()
        yield lab


def run(
    hosts: int,
    seconds: float,
    seed: int,
    resume_s: float = RESUME_S,
    *,
    opensm: bool = False,
    faults_min: int = 0,
) -> Report:
    """Build the lab, soak it, and end it."""
    subnet = LabSubnet(hosts, standby=True) if opensm else None
    with _mixed(hosts, subnet) as lab:
        return soak(lab, seconds, seed, resume_s=resume_s, subnet=subnet, faults_min=faults_min)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run hosts of a lab under faults.")
    parser.add_argument("--hours", type=float, default=1.0, help="how many hours")
    parser.add_argument("--hosts", type=int, default=8, help="how many hosts, 3 or more")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the faults")
    parser.add_argument("--resume", type=float, default=RESUME_S, help="seconds a flow may stand")
    parser.add_argument(
        "--opensm",
        action=argparse.BooleanOptionalAction,
        help=f"only under an OpenSM, with {SM_HOSTS} hosts, or only without one; default: both",
    )
    args = parser.parse_args()
    share = SM_SHARE if args.opensm is None else float(args.opensm)
    failures = 0
    for opensm, part, hosts in ((False, 1 - share, args.hosts), (True, share, SM_HOSTS)):
        if part:
            seconds = args.hours * 3600 * part
            report = run(hosts, seconds, args.seed, args.resume, opensm=opensm)
            print("under an OpenSM:" if opensm else "on Ethernet:", report, sep="\n", flush=True)
            failures += len(report.failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
