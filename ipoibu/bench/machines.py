# SPDX-License-Identifier: BSD-2-Clause
"""ipoibu beside the kernel's own ib_ipoib, on the same software HCA in the same lab machines.

`ipoibu bench --lab` runs it. Contenders take turns, round by round, each turn in two lab machines that were
just booted, whose rxe0 looks like an InfiniBand port. A machine has one CPU and slow system calls, so
compare ratios within one round, and the CPU time per byte of both machines together.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ipoibu.base.errors import UsageError
from ipoibu.bench.environment import environment
from ipoibu.bench.html_report import Section, Table
from ipoibu.bench.picture import bars
from ipoibu.bench.report import grid, number
from ipoibu.bench.statistic import ratio
from ipoibu.bench.traffic import parse_iperf3, parse_ping_us
from ipoibu.lab.directory import work_directory
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.judge import PORT, SCRIPTS
from ipoibu.lab.machines.kernels import find_kernel
from ipoibu.lab.machines.lab import Lab
from ipoibu.lab.machines.plan import NO_FABRIC
from ipoibu.lab.machines.roles import play
from ipoibu.lab.machines.runner import SCENARIOS, source

TICK_NS: Final = 1e9 / 100  # of /proc/stat: USER_HZ
IDLE: Final = (3, 4)  # its columns idle and iowait
PERFTEST_TRIES: Final = 3
# Without it, peers can ask ipoibu for connections.
NO_IB_CM: Final = "initcall_blacklist=ib_cm_init"

Sample = dict[str, float]


@dataclass(frozen=True)
class Turn:
    """A contender; `mode` is datagram or connected."""

    name: str
    contender: str
    mode: str
    arguments: tuple[str, ...] = PORT


TURNS: Final = (
    Turn("ethernet", "ethernet", "datagram"),
    Turn("ib_ipoib datagram", "kernel", "datagram"),
    Turn("ib_ipoib connected", "kernel", "connected"),
    Turn("ipoibu datagram", "ipoibu", "datagram"),
    Turn("ipoibu connected", "ipoibu", "connected", (*PORT, NO_IB_CM)),
    Turn("embedded datagram", "embedded", "datagram"),
    Turn("embedded connected", "embedded", "connected", (*PORT, NO_IB_CM)),
    Turn("perftest UD", "perftest", "datagram"),
    Turn("perftest RC", "perftest", "connected"),
)
COLUMNS: Final = {
    "gbit_s": ("Gb/s", 2),
    "cpu_ns_per_byte": ("CPU ns/byte", 2),
    "ping_p50_us": ("ping p50 us", 0),
    "calls_per_mb": ("calls/MB, traced", 0),
    "packets_per_doorbell": ("packets/doorbell", 1),
}
# A contender, the one to compare it with, and the ratio that it should reach.
TARGETS: Final = (
    ("ipoibu datagram", "ib_ipoib datagram", 0.7),
    ("ipoibu connected", "ib_ipoib connected", 0.8),
    ("ipoibu datagram", "perftest UD", 0.6),
    ("ipoibu connected", "perftest RC", 0.7),
    ("embedded datagram", "perftest UD", 0.6),
    ("embedded connected", "perftest RC", 0.7),
)


def take(kernel: Path, turn: Turn, seconds: int) -> Sample:
    """Measure one turn; repeat perftest UD, which ends only when every datagram has arrived."""
    tries = PERFTEST_TRIES if (turn.contender, turn.mode) == ("perftest", "datagram") else 1
    for _ in range(tries - 1):
        try:
            return _take(kernel, turn, seconds)
        except LabError:
            print(
                f"{turn.name}: the measurement failed, perhaps by a lost datagram; trying again",
                file=sys.stderr,
                flush=True,
            )
    return _take(kernel, turn, seconds)


def _take(kernel: Path, turn: Turn, seconds: int) -> Sample:
    """Boot two machines and measure."""
    script = source(*SCRIPTS, SCENARIOS / "bench_host.sh") + "call verbs_machine:on_the_wire\n"
    script += f"bench {turn.contender} {turn.mode} {seconds}"
    with work_directory("bench") as directory:
        lab = Lab(
            kernel=kernel,
            fabric=NO_FABRIC,
            output=directory,
            kernel_arguments=[turn.arguments] * 2,
        )
        for result in play(lab, [script] * 2, 120 + 4 * seconds):
            result.check()
        return read(directory, seconds)


def read(directory: Path, seconds: int) -> Sample:
    """Read the files that the machines of a turn have written."""
    if (report := directory / "perftest").exists():
        return {"gbit_s": parse_perftest(report.read_text())}
    if (report := directory / "embedded").exists():
        received_bytes, took_us = map(int, report.read_text().split())
        return {"gbit_s": received_bytes * 8 / took_us / 1e3}
    gbit_s, _, _ = parse_iperf3((directory / "tcp.json").read_text())
    pings_us = parse_ping_us((directory / "ping").read_text())
    sample = {
        "gbit_s": gbit_s,
        "cpu_ns_per_byte": _busy_ns(directory, "tcp") / (gbit_s * 1e9 / 8 * seconds),
        "ping_p50_us": statistics.median(pings_us),
    }
    if (directory / "calls-1").exists():
        traced_gbit_s, _, _ = parse_iperf3((directory / "traced.json").read_text())
        calls = sum(parse_strace((directory / f"calls-{n}").read_text()) for n in (1, 2))
        sample["calls_per_mb"] = calls / (traced_gbit_s * 1e9 / 8 / 1e6)
        stats = json.loads((directory / "stats-2.json").read_text())[0]["stats"]
        posted, rung = (
            sum(stats.get(f"fabric.{kind}_{what}", 0) for kind in ("tx", "connected"))
            for what in ("posted", "doorbells")
        )
        sample["packets_per_doorbell"] = posted / rung
    return sample


def _busy_ns(directory: Path, name: str) -> float:
    """Return the CPU time of both machines during a measurement."""
    ticks = 0
    for machine in (1, 2):
        after, before = (
            parse_stat((directory / f"stat-{name}-{when}-{machine}").read_text())
            for when in ("after", "before")
        )
        ticks += after - before
    return ticks * TICK_NS


def parse_stat(line: str) -> int:
    """Return the ticks in which the CPU was not idle, from the first line of /proc/stat."""
    columns = [int(word) for word in line.split()[1:]]
    return sum(columns[:8]) - sum(columns[at] for at in IDLE)


def parse_perftest(text: str) -> float:
    """Return Gb/s from the bytes and microseconds of two runs; their difference has no set-up."""
    (few, short_us), (many, long_us) = (map(int, line.split()) for line in text.splitlines())
    if long_us <= short_us:
        raise LabError(f"perftest: {many} bytes took no longer than {few}")
    return (many - few) * 8 / (long_us - short_us) / 1e3


def parse_strace(text: str) -> int:
    """Return the number of system calls in a summary of `strace -c`."""
    columns = r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?total\s*$"  # errors may be missing
    total = re.search(columns, text, re.MULTILINE)
    if total is None:
        raise LabError(f"strace: not understood: {text[-200:].strip()!r}")
    return int(total[1])


def summary(runs: dict[str, list[Sample]]) -> dict[str, Any]:
    """Return the medians of all figures, and the median ratio of each target."""
    medians = {
        name: {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
        for name, samples in runs.items()
    }
    targets = []
    for name, base, limit in TARGETS:
        speeds, others = ([sample["gbit_s"] for sample in runs.get(it, [])] for it in (name, base))
        ratios = ratio(speeds, others)
        if ratios is not None:
            text, value = f"{name}, to {base} >= {limit:g}", ratios.median
            targets.append({"target": text, "value": value, "met": value >= limit})
    return {"median": medians, "targets": targets}


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    parts = (_head(report), grid(*_medians(report)), grid(*_targets(report)))
    return "\n\n".join(parts)


def sections(report: dict[str, Any]) -> list[Section]:
    """Return the report as the sections of a page."""
    drawn = []
    for figure, (heading, _) in COLUMNS.items():
        values = {name: m[figure] for name, m in report["median"].items() if figure in m}
        if values:
            drawn.append(bars(heading, "median", values))
    return [
        Section("Result", [_head(report), Table(*_medians(report), "Medians of the rounds")]),
        Section("Targets", [Table(*_targets(report))]),
        Section("Pictures", drawn),
    ]


def _head(report: dict[str, Any]) -> str:
    return (
        "two machines, one stream, of TCP but for embedded and perftest;"
        f" medians of {report['rounds']} rounds of {report['seconds']} s"
    )


def _medians(report: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [name, *(number(medians.get(key), decimals) for key, (_, decimals) in COLUMNS.items())]
        for name, medians in report["median"].items()
    ]
    return ["", *(heading for heading, _ in COLUMNS.values())], rows


def _targets(report: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    rows = [
        [entry["target"], number(entry["value"], 2), "met" if entry["met"] else "not met"]
        for entry in report["targets"]
    ]
    return ["target", "measured", ""], rows


def measure(
    rounds: int, seconds: int, only: Sequence[str], log: Callable[[str], None]
) -> dict[str, Any]:
    """Measure all contenders, or those in `only`, and return the report; `LabError` if one fails."""
    names = [turn.name for turn in TURNS]
    if set(only) - set(names):
        raise UsageError(f"--only: expected some of {', '.join(names)}")
    turns = [turn for turn in TURNS if not only or turn.name in only]
    runs: dict[str, list[Sample]] = {turn.name: [] for turn in turns}
    kernel = find_kernel()
    for count in range(1, rounds + 1):
        for turn in turns:
            log(f"round {count} of {rounds}: {turn.name}")
            runs[turn.name].append(take(kernel, turn, seconds))
    report: dict[str, Any] = {"environment": environment(), "runs": runs}
    return report | {"rounds": rounds, "seconds": seconds} | summary(runs)
