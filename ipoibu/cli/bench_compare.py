# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu bench compare`: compare two results of `ipoibu bench --json`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ipoibu.base.errors import UsageError

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(actions: argparse._SubParsersAction[Parser]) -> None:
    parser = actions.add_parser(
        "compare",
        help="compare two results: ratios with confidence intervals, and a verdict for each",
        description="Compare the results in FILE and OTHER, which `--json` wrote: for each figure the ratio"
        " of OTHER to FILE with its 95% confidence interval, whether that is faster, slower or no"
        " difference, and how many rounds a small difference would need.",
    )
    parser.add_argument("first", metavar="FILE", type=Path, help="the earlier result")
    parser.add_argument("second", metavar="OTHER", type=Path, help="the later result")
    parser.add_argument(
        "--paired",
        action="store_true",
        help="pair the rounds by their number, for results whose rounds took turns on one machine",
    )
    parser.add_argument(
        "--base",
        metavar="NAME",
        help="divide each figure by that of this contender in the same round, such as vxlan",
    )
    parser.add_argument(
        "--only",
        metavar="NAME[,NAME]",
        help="compare only these contenders and figures: the fewer, the less chance deceives",
    )
    parser.add_argument(
        "--difference",
        metavar="PERCENT",
        help="the difference to find, for which to name the rounds; 3 by default",
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write the comparison as JSON to FILE"
    )
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write FILE, one page with table and pictures"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.bench import comparison, html_report

    percent = comparison.DIFFERENCE_PERCENT
    if options.difference is not None:
        percent = _percent(options.difference)
    first, second = (comparison.load(path) for path in (options.first, options.second))
    if options.base is not None and any(options.base not in it["runs"] for it in (first, second)):
        raise UsageError(f"--base {options.base!r}: both results need this contender")
    only = tuple(filter(None, (options.only or "").split(",")))
    method = comparison.Method(options.paired, options.base, percent, only)
    outcome = comparison.compare(first, second, method)
    print(comparison.table(outcome))
    if options.json is not None:
        options.json.write_text(json.dumps(outcome.as_dict(), indent=1) + "\n")
    if options.html is not None:
        title = f"{options.second.name} compared with {options.first.name}"
        machine = second.get("environment", {})
        page = html_report.Page(title, machine, comparison.sections(outcome), outcome.as_dict())
        html_report.write(options.html, page)
    return 0


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1000:
        raise UsageError(f"--difference {text!r}: expected a percentage above 0")
    return value
