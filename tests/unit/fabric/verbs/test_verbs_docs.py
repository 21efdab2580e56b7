# SPDX-License-Identifier: BSD-2-Clause
"""docs/verbs.md names every counter of the verbs fabric, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]


def test_every_counter_is_explained() -> None:
    source = (ROOT / "ext/verbs/verbs.h").read_text("utf-8")
    table = (ROOT / "docs/verbs.md").read_text("utf-8").partition("## Counters")[2]
    counted = re.findall(r"^ +X\((\w+)\)", source, re.MULTILINE)
    assert len(counted) > 10
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == counted
