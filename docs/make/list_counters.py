#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Write docs/reference/counters.md from the counters' explanations, `ipoibu/daemon/metrics/counters.toml`.

docs/make/list_counters.py            write the file
docs/make/list_counters.py --check    exit 1 if the file is not what would be written
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from generated_page import write_or_check

from ipoibu.daemon.metrics.counters import Section, introduction, sections

PAGE: Final = Path(__file__).parents[1] / "reference/counters.md"


def page() -> str:
    """The whole file."""
    return "\n".join([f"# Counters\n\n{introduction()}", *(_section(it) for it in sections())])


def _section(section: Section) -> str:
    rows = "".join(_row(section, name) for name in section.counters)
    notes = f"\n{section.notes}" if section.notes else ""
    head = f"## {section.title}\n\n{section.introduction}\n"
    return f"{head}| counter | meaning |\n| --- | --- |\n{rows}{notes}"


def _row(section: Section, name: str) -> str:
    star = " *" if name in section.ends else ""
    return f"| `{name}`{star} | {section.counters[name]} |\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, __doc__ or "", sys.argv[1:]))
