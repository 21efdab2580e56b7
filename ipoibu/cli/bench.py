# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu bench`: measure the data path on this machine, beside other contenders."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ipoibu.base.errors import UsageError
from ipoibu.cli import bench_compare, bench_procedures

if TYPE_CHECKING:
    from ipoibu.bench.html_report import Section
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure the data path beside VXLAN and others",
        usage="ipoibu bench [options] [compare ...]",
        description="Measure throughput, latency, CPU time, memory and scale beside kernel VXLAN and"
        " others, in turn, in network namespaces of this machine. It says first how long it takes: about"
        " ten minutes with all contenders, and 90 s with --quick.",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="measure only what the verdicts about ipoibu need, in three rounds",
    )
    parser.add_argument(
        "--rounds", metavar="N", help="number of rounds, whose median is the result; 4 by default"
    )
    parser.add_argument(
        "--seconds", metavar="S", help="length of each measurement; 1 by default, 2 with --lab"
    )
    parser.add_argument(
        "--streams", metavar="N", help="number of parallel TCP streams; 1 by default"
    )
    parser.add_argument(
        "--only",
        metavar="NAME[,NAME]",
        help="measure only these contenders and parts; an unknown name lists all names",
    )
    parser.add_argument(
        "--underlay",
        metavar="UNDERLAY",
        help="the network below all contenders: link, the default, or routed4 or routed6, where a"
        " router joins the networks of the hosts, and ipoibu uses IPv4 or IPv6",
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write all results as JSON to FILE"
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        help="write FILE, one page with environment, tables, pictures, and all results as JSON",
    )
    parser.add_argument("--plot", metavar="DIR", type=Path, help="draw PNG pictures into DIR")
    parser.add_argument(
        "--lab",
        action="store_true",
        help="measure beside the kernel's own ib_ipoib in virtual machines instead"
        " (docs/understand/kernel.md)",
    )
    bench_procedures.add_options(parser)
    parser.set_defaults(run=run)
    bench_compare.add(parser.add_subparsers(metavar="ACTION", dest="action", prog="ipoibu bench"))


def _number(option: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:6]) <= 1000:
        raise UsageError(f"{option} {text!r}: expected a whole number from 1 to 1000")
    return int(text)


def _in_machines(options: argparse.Namespace) -> int:
    from ipoibu.bench import machines
    from ipoibu.cli.interrupts import Interrupts

    for name in ("plot", "streams", "underlay"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} is not for --lab")
    with Interrupts():
        report = machines.measure(
            _number("--rounds", options.rounds, 1 if options.quick else 3),
            _number("--seconds", options.seconds, 1 if options.quick else 2),
            _names(options.only),
            _log,
        )
    print(machines.table(report))
    _save(report, options, "ipoibu bench --lab", machines.sections(report))
    return 0


def _procedure(options: argparse.Namespace, chosen: Literal["rfc2544", "rfc6349"]) -> int:
    from ipoibu.bench.procedures import report
    from ipoibu.bench.procedures.run import run as measure
    from ipoibu.cli.interrupts import Interrupts
    from ipoibu.lab.user_namespace import enter_user_namespace

    plan = bench_procedures.plan(
        options,
        chosen,
        rounds=_number("--rounds", options.rounds, 1),
        seconds=_number("--seconds", options.seconds, 0) or None,
        streams=_number("--streams", options.streams, 1),
        only=_names(options.only),
    )
    enter_user_namespace()
    with Interrupts():
        result = measure(plan, _log)
    print(report.table(result))
    _save(result, options, f"ipoibu bench --{chosen}", report.sections(result))
    return 1 if result["failed"] else 0


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (text or "").split(",")))


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _save(
    report: dict[str, Any], options: argparse.Namespace, title: str, sections: list[Section]
) -> None:
    from ipoibu.bench import html_report

    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.html is not None:
        page = html_report.Page(title, report["environment"], sections, report)
        html_report.write(options.html, page)


def run(options: argparse.Namespace) -> int:
    from ipoibu.bench import plot, report, scale
    from ipoibu.bench.run import QUICK, Plan
    from ipoibu.bench.run import run as measure
    from ipoibu.cli.interrupts import Interrupts
    from ipoibu.lab.underlay import LINK
    from ipoibu.lab.user_namespace import enter_user_namespace

    quick = options.quick
    chosen = bench_procedures.procedure(options)
    for file in (options.json, options.html):
        if file is not None:
            file.open("a").close()  # a missing directory fails before minutes of work
    if chosen is not None:
        return _procedure(options, chosen)
    if options.lab:
        return _in_machines(options)
    plan = Plan(
        rounds=_number("--rounds", options.rounds, 3 if quick else 4),
        seconds=_number("--seconds", options.seconds, 1),
        streams=_number("--streams", options.streams, 1),
        only=_names(options.only) or (QUICK if quick else ()),
        underlay=options.underlay or LINK,
        neighbours=scale.NEIGHBOURS,
        hosts=scale.HOSTS[:1] if quick else scale.HOSTS,
        few=quick,
    )
    if options.plot is not None:
        plot.load()  # before minutes of work
        options.plot.mkdir(parents=True, exist_ok=True)
    enter_user_namespace()
    with Interrupts():
        result = measure(plan, _log)
    print(report.table(result))
    _save(result, options, "ipoibu bench", report.sections(result))
    if options.plot is not None:
        for path in plot.draw(result, options.plot):
            print(path)
    return 1 if result["failed"] else 0
