# SPDX-License-Identifier: BSD-2-Clause
"""docs/counters.md names every counter of the verbs fabric, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


def test_every_counter_is_explained() -> None:
    source = (ROOT / "ext/verbs/verbs.h").read_text("utf-8")
    page = (ROOT / "docs/counters.md").read_text("utf-8")
    table = page.split("## RDMA devices\n")[1].split("\n## ")[0]
    counted = re.findall(r"^ +X\((\w+)\)", source, re.MULTILINE)
    assert len(counted) > 10
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == counted
