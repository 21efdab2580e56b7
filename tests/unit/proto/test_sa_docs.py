# SPDX-License-Identifier: BSD-2-Clause
"""docs/reference/counters.md documents the counters of the SA client."""

from __future__ import annotations

import re
from pathlib import Path

from ipoibu.wire import mad, mcmember, notice, pathrecord, rmpp, sa

ROOT = Path(__file__).parents[3]


def test_every_counter_of_the_sa_client_is_documented_and_no_other() -> None:
    page = (ROOT / "docs/reference/counters.md").read_text("utf-8")
    section = page.split("## Subnet administrator\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    sources = (
        "proto/sa/requests.py",
        "proto/sa/records.py",
        "fabric/sa/client.py",
        "fabric/sa/memberships.py",
        "fabric/sa/transport.py",
    )
    code = "".join((ROOT / "ipoibu" / name).read_text("utf-8") for name in sources)
    counted = set(re.findall(r'"(sa_\w+)"', code))
    reasons = set().union(
        *(module.REASONS for module in (mad, rmpp, sa, mcmember, pathrecord, notice))
    )
    assert documented == counted | reasons
