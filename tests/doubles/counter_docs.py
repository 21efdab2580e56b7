# SPDX-License-Identifier: BSD-2-Clause
"""The counters that a C header lists, and those that a section of docs/reference/counters.md explains."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def counted_in(header: str) -> list[str]:
    """Return the names of the header's X macro, in their order."""
    source = (ROOT / "ext" / header).read_text("utf-8")
    return re.findall(r"^ +X\((\w+)\)", source, re.MULTILINE)


def explained_under(title: str) -> list[str]:
    page = (ROOT / "docs/reference/counters.md").read_text("utf-8")
    section = page.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
