#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Write the list under "Tables" in SECURITY.md from the register of tables, `ipoibu/daemon/tables`.

docs/make/list_tables.py            write the file
docs/make/list_tables.py --check    exit 1 if the file is not what would be written
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Final

from generated_page import write_or_check

from ipoibu.daemon.tables.register import TABLES
from ipoibu.daemon.tables.table import Table

PAGE: Final = Path(__file__).parents[2] / "SECURITY.md"
MARK: Final = "<!-- docs/make/list_tables.py writes the rest -->\n"
COLUMNS: Final = 100


def page() -> str:
    """The whole file, with its present text before the mark."""
    before, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return f"{before}{mark}\n" + "".join(f"{_item(it)}\n" for it in TABLES)


def _item(table: Table) -> str:
    fillers = ", ".join(it.value for it in table.fillers)
    unit = "" if table.unit == "entries" else f" {table.unit}"
    counted = f"; `{table.counter}`" if table.counter else ""
    logged = ", logged" if table.is_logged else ""
    text = (
        f"- **{table.name}** ({fillers}): {_grouped(table.cap)}{unit}, {_size(table.max_bytes)};"
        f" {table.full}{counted}{logged}"
    )
    return textwrap.fill(text, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _size(in_bytes: int) -> str:
    """Return a size in the largest unit of which it has one, rounded up."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if in_bytes >= factor:
            return f"{-(-in_bytes // factor)} {unit}"
    return f"{-(-in_bytes // 1024)} KiB"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, __doc__ or "", sys.argv[1:]))
