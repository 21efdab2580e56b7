#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Write docs/reference/counters.md from the counters' explanations, `ipoibu/daemon/metrics/counters.toml`.

docs/make/list_counters.py            write the file
docs/make/list_counters.py --check    exit 1 if the file is not what would be written
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from generated_page import write_or_check

from ipoibu.daemon.metrics.counters import Section, introduction, sections
from ipoibu.daemon.metrics.metrics import metric_name

COLUMNS: Final = 100
PAGE: Final = Path(__file__).parents[1] / "reference/counters.md"


def page() -> str:
    """The whole file."""
    return "\n".join([f"# Counters\n\n{introduction()}", *(_section(it) for it in sections())])


def _section(section: Section) -> str:
    rows = "".join(_row(section, name) for name in section.counters)
    notes = "".join(f"\n{it}" for it in (*_renamed(section), section.notes) if it)
    head = f"## {section.title}\n\n{section.introduction}\n"
    return f"{head}| counter | meaning |\n| --- | --- |\n{rows}{notes}"


def _renamed(section: Section) -> Iterator[str]:
    for old, name in section.renamed.items():
        new, former = (metric_name(section.prefix + it) for it in (name, old))
        yield (
            textwrap.fill(
                f"`{name}` was called `{old}`. For one release `ipoibu metrics` has both: `{new}_total`,"
                f" and the deprecated `{former}_total`.\n",
                COLUMNS,
                break_on_hyphens=False,
            )
            + "\n"
        )


def _row(section: Section, name: str) -> str:
    star = " *" if name in section.ends else ""
    return f"| `{name}`{star} | {section.counters[name]} |\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, __doc__ or "", sys.argv[1:]))
