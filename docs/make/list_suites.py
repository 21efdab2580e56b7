# SPDX-License-Identifier: BSD-2-Clause
"""Writes docs/findings/suites.md and suite-*.md: what the suites of other projects say in the lab.

It reads docs/findings/suites/*.json, which `python -m tests.lab.suites` makes, and suites.toml, where
somebody has written why a test fails. Without arguments it writes the pages, with `--check` it compares.
"""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs/make")]

from generated_page import write_or_check  # noqa: E402

from tests.lab.suites import Suite, known, load, suites  # noqa: E402

FINDINGS: Final = ROOT / "docs/findings"
COLUMNS: Final = 100
VERDICTS: Final = ("pass", "fail", "skip")
HEAD: Final = """# What other projects' suites say

`python -m tests.lab.suites` runs the suites of
[examples/suites](https://github.com/ipoibu/ipoibu/tree/main/examples/suites) in machines of the lab
(`make nightly-suites`), and `docs/make/list_suites.py` writes these pages. A line is one run: a
kernel and its flavour, the fabric (`ib` and `roce`: Soft-RoCE, `iwarp`: Soft-iWARP), and what ib0
is: the kernel's `ib_ipoib`, ipoibu, or nothing. A suite's page has the reason of each failure.

blktests (nvme, srp) and LTP (net) are not here: Debian 12 and 13 package neither, and PyPI has of
LTP only its executor, kirk. [Examples](programs.md) try NVMe-oF and iSER, and
`tests/lab/test_full_storage.py` tries SRP.

| suite | kernel, fabric, ib0 | pass | fail | skip |
|---|---|---|---|---|
"""


def published() -> list[Suite]:
    return [it for it in suites() if it.stored.exists()]


def counts(run: dict[str, Any]) -> str:
    seen = Counter(verdict.partition(":")[0] for verdict in run["tests"].values())
    return " | ".join(str(seen[it]) for it in VERDICTS)


def wrapped(text: str, first: str = "", other: str = "") -> str:
    return textwrap.fill(
        text,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=other,
        break_on_hyphens=False,
        break_long_words=False,
    )


def index() -> str:
    rows = [
        f"| [{suite.name}](suite-{suite.name}.md) | {run['title']} | {counts(run)} |\n"
        for suite in published()
        for run in load(suite)["runs"]
    ]
    return HEAD + "".join(rows)


def page(suite: Suite) -> str:
    stored = load(suite)
    versions = ", ".join(f"{name} {version}" for name, version in stored["versions"].items())
    first = next(iter(suite.runs)).arguments
    rows = "".join(
        f"| {run['title']} | {run['linux']} | {counts(run)} |\n" for run in stored["runs"]
    )
    about = (
        f"{suite.about[0].upper()}{suite.about[1:]} With {versions} of Debian 12. The first run"
        + "".join(f", after `{command}`" for command in suite.before)
        + ":"
    )
    return (
        f"# The suite {suite.name}\n\n{wrapped(about)}\n"
        f"{wrapped(f'`ipoibu {shlex.join(first)}`')}\n\n"
        f"| kernel, fabric, ib0 | Linux | pass | fail | skip |\n|---|---|---|---|---|\n{rows}"
        + "".join(failures(suite, stored["runs"]))
        + "".join(skips(stored["runs"]))
    )


def failures(suite: Suite, runs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a section for each reason: what is known, then the tests, each with its runs."""
    groups: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        for test, verdict in run["tests"].items():
            if verdict.startswith("fail"):
                entry = known(suite.name, test, run["title"], verdict)
                why = "nobody has looked" if entry is None else entry["reason"]
                said = f"`{test}`: {plain(verdict.removeprefix('fail: '))}"
                groups.setdefault(why, {}).setdefault(said, []).append(run["title"])
    if groups:
        yield "\n## Failures\n"
    for why, tests in groups.items():
        yield f"\n{wrapped(why)}\n\n"
        for said, titles in tests.items():
            where = "all runs" if len(titles) == len(runs) else "; ".join(titles)
            yield wrapped(f"{said} ({where})", "- ", "  ") + "\n"


def skips(runs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield how many tests of each run were skipped, by what they say."""
    found: dict[str, dict[str, int]] = {}
    for run in runs:
        for verdict in run["tests"].values():
            if verdict.startswith("skip"):
                said = plain(verdict.removeprefix("skip").removeprefix(": ")) or "no reason"
                of_run = found.setdefault(said, {})
                of_run[run["title"]] = of_run.get(run["title"], 0) + 1
    if found:
        yield "\n## Skipped\n\n"
    for said, of_runs in found.items():
        numbers = set(of_runs.values())
        if len(of_runs) == len(runs) and len(numbers) == 1:
            where = f"{numbers.pop()} in each run"
        else:
            where = "; ".join(f"{number} in {title}" for title, number in of_runs.items())
        yield wrapped(f"{said}: {where}", "- ", "  ") + "\n"


def plain(said: str) -> str:
    """Return what a program said as text that Markdown leaves alone."""
    return re.sub(r"([\\`*_<>\[\]|])", r"\\\1", said)


def main(arguments: list[str]) -> int:
    usage = "usage: list_suites.py [--check]"
    status = write_or_check(FINDINGS / "suites.md", index, usage, arguments)
    for suite in published():
        file = FINDINGS / f"suite-{suite.name}.md"
        status = max(status, write_or_check(file, partial(page, suite), usage, arguments))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
