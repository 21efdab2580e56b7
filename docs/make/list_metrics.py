#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Write the tables of docs/reference/metrics.md from the metrics, `ipoibu/daemon/metrics/metrics.py`.

docs/make/list_metrics.py            write the file
docs/make/list_metrics.py --check    exit 1 if the file is not what would be written
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from generated_page import write_or_check

from ipoibu.daemon.metrics.metrics import NAMES, STATES, TALLIES, metric_name

PAGE: Final = Path(__file__).parents[1] / "reference/metrics.md"


def render() -> str:
    """Return the page with its two tables made anew."""
    gauges = [*STATES, *((name, text, labels) for _, name, text, labels in TALLIES)]
    tables: dict[tuple[str, ...], list[tuple[str, ...]]] = {
        ("counter", "metric"): [(name, f"{metric_name(name)}_total") for name in NAMES],
        ("gauge", "meaning", "further labels"): [
            (f"ipoibu_{name}", text, ", ".join(f"`{label}`" for label in labels))
            for name, text, labels in gauges
        ],
    }
    page = PAGE.read_text(encoding="utf-8")
    for header, rows in tables.items():
        first = f"| {' | '.join(header)} |\n|{'---|' * len(header)}\n"
        table = re.search(rf"{re.escape(first)}((?:\|.*\n)+)", page)
        if table is None:
            raise SystemExit(f"{PAGE}: no table of {', '.join(header)}")
        page = page[: table.start(1)] + _lines(rows) + page[table.end(1) :]
    return page


def _lines(rows: Iterable[tuple[str, ...]]) -> str:
    text = ""
    for name, *others in rows:
        cells = [f"`{cell}`" if cell.startswith("ipoibu_") else cell for cell in others]
        text += f"| `{name}` | {' | '.join(cells)} |\n".replace("|  |", "| |")
    return text


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, render, __doc__, sys.argv[1:]))
