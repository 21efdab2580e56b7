# SPDX-License-Identifier: BSD-2-Clause
"""ipoibu beside the kernel's own ib_ipoib, on the same software HCA in the same guests.

`python -m tests.lab.bench` is what `ipoibu bench --lab` runs: contenders take turns, round by round, each
turn in two guests that were just booted, whose rxe0 looks like an InfiniBand port. A guest has one CPU and
dear system calls, so what counts are ratios of one round, and CPU time per byte, that of both guests.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ipoibu.bench.environment import environment
from ipoibu.bench.report import grid, number
from ipoibu.bench.statistic import ratio
from ipoibu.bench.traffic import parse_iperf3, parse_ping_us

from .judge import PORT, PRELUDE, SCENARIOS
from .runner import LabError, find_kernel, run, shell

TICK_NS: Final = 1e9 / 100  # of /proc/stat: USER_HZ
IDLE: Final = (3, 4)  # its columns idle and iowait
PERFTEST_TRIES: Final = 3
NO_IB_CM: Final = "initcall_blacklist=ib_cm_init"  # else nobody can ask ipoibu for connections

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
# What is compared, with what, and which ratio it should reach.
TARGETS: Final = (
    ("ipoibu datagram", "ib_ipoib datagram", 0.7),
    ("ipoibu connected", "ib_ipoib connected", 0.8),
    ("ipoibu datagram", "perftest UD", 0.6),
    ("ipoibu connected", "perftest RC", 0.7),
    ("embedded datagram", "perftest UD", 0.6),
    ("embedded connected", "perftest RC", 0.7),
)


def take(kernel: Path, turn: Turn, seconds: int) -> Sample:
    """One turn; anew for perftest's datagrams, all of which have to arrive for it to end."""
    tries = PERFTEST_TRIES if (turn.contender, turn.mode) == ("perftest", "datagram") else 1
    for _ in range(tries - 1):
        try:
            return _take(kernel, turn, seconds)
        except (LabError, AssertionError):
            print(
                f"{turn.name}: it failed, as if by a lost datagram; again",
                file=sys.stderr,
                flush=True,
            )
    return _take(kernel, turn, seconds)


def _take(kernel: Path, turn: Turn, seconds: int) -> Sample:
    """Boot, measure, end."""
    script = PRELUDE + f'. {SCENARIOS}/bench_host.sh"\ncall verbs_guest:on_the_wire\n'
    script += f"bench {turn.contender} {turn.mode} {seconds}"
    with tempfile.TemporaryDirectory(prefix="ipoibu-bench-") as name:
        directory = Path(name)
        results = run(
            kernel,
            [shell(script)] * 2,
            directory=directory,
            timeout_s=120 + 4 * seconds,
            kernel_arguments=[turn.arguments] * 2,
        )
        for result in results:
            result.check()
        return read(directory, seconds)


def read(directory: Path, seconds: int) -> Sample:
    """What the guests of a turn have left."""
    if (report := directory / "perftest").exists():
        return {"gbit_s": parse_perftest(report.read_text())}
    if (report := directory / "embedded").exists():
        came_bytes, took_us = map(int, report.read_text().split())
        return {"gbit_s": came_bytes * 8 / took_us / 1e3}
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
    """CPU time of both guests while something was measured."""
    ticks = 0
    for guest in (1, 2):
        after, before = (
            parse_stat((directory / f"stat-{name}-{when}-{guest}").read_text())
            for when in ("after", "before")
        )
        ticks += after - before
    return ticks * TICK_NS


def parse_stat(line: str) -> int:
    """Ticks in which the CPU was not idle, of the first line of /proc/stat."""
    columns = [int(word) for word in line.split()[1:]]
    return sum(columns[:8]) - sum(columns[at] for at in IDLE)


def parse_perftest(text: str) -> float:
    """Gb/s, of the bytes and microseconds of a short and a long run: what both share is set-up."""
    (few, short_us), (many, long_us) = (map(int, line.split()) for line in text.splitlines())
    if long_us <= short_us:
        raise LabError(f"perftest: {many} bytes took no longer than {few}")
    return (many - few) * 8 / (long_us - short_us) / 1e3


def parse_strace(text: str) -> int:
    """The number of system calls of a summary of `strace -c`."""
    columns = r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?total\s*$"  # errors may be missing
    found = re.search(columns, text, re.MULTILINE)
    if found is None:
        raise LabError(f"strace: not understood: {text[-200:].strip()!r}")
    return int(found[1])


def summary(runs: dict[str, list[Sample]]) -> dict[str, Any]:
    """Medians, and the targets' ratios: of the same round, their median."""
    medians = {
        name: {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
        for name, samples in runs.items()
    }
    targets = []
    for name, base, limit in TARGETS:
        speeds, others = ([sample["gbit_s"] for sample in runs.get(it, [])] for it in (name, base))
        found = ratio(speeds, others)
        if found is not None:
            text, value = f"{name}, to {base} >= {limit:g}", found.median
            targets.append({"target": text, "value": value, "met": value >= limit})
    return {"median": medians, "targets": targets}


def table(report: dict[str, Any]) -> str:
    """For a person to read."""
    rows = [
        [name, *(number(found.get(key), decimals) for key, (_, decimals) in COLUMNS.items())]
        for name, found in report["median"].items()
    ]
    targets = [
        [entry["target"], number(entry["value"], 2), "met" if entry["met"] else "not met"]
        for entry in report["targets"]
    ]
    head = (
        "two guests, one stream, of TCP but for embedded and perftest;"
        f" medians of {report['rounds']} rounds of {report['seconds']} s"
    )
    return "\n\n".join(
        (
            head,
            grid(["", *(heading for heading, _ in COLUMNS.values())], rows),
            grid(["target", "measured", ""], targets),
        )
    )


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print the table, write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--only", default="", help="names, separated by commas")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    known = {turn.name for turn in TURNS}
    wanted = set(filter(None, options.only.split(",")))
    if wanted - known:
        parser.error(f"expected some of {', '.join(turn.name for turn in TURNS)}")
    runs: dict[str, list[Sample]] = {}
    try:
        kernel = find_kernel()
        for count in range(1, options.rounds + 1):
            for turn in TURNS:
                if wanted and turn.name not in wanted:
                    continue
                print(
                    f"round {count} of {options.rounds}: {turn.name}", file=sys.stderr, flush=True
                )
                runs.setdefault(turn.name, []).append(take(kernel, turn, options.seconds))
    except (LabError, AssertionError) as error:
        print(error, file=sys.stderr)
        return 1
    report: dict[str, Any] = {"environment": environment(), "runs": runs}
    report |= {"rounds": options.rounds, "seconds": options.seconds} | summary(runs)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
