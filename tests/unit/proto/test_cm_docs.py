# SPDX-License-Identifier: BSD-2-Clause
"""docs/reference/counters.md documents the counters of connected mode."""

from __future__ import annotations

import re
from pathlib import Path

from ipoibu.wire import cm, cm_private, cm_rdmacm, mad

ROOT = Path(__file__).parents[3]


def test_every_counter_of_connected_mode_is_documented_and_no_other() -> None:
    page = (ROOT / "docs/reference/counters.md").read_text("utf-8")
    section = page.split("## Connections\n")[1].split("\n## ")[0]
    documented = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
    code = "".join(
        (ROOT / "ipoibu" / it).read_text("utf-8")
        for it in (
            "proto/cm/cm.py",
            "endpoint/datapath/rc_shell.py",
            "proto/rc/policy.py",
            "fabric/cm/gsi_cm.py",
            "fabric/cm/rdma_cm.py",
        )
    )
    counted = set(re.findall(r'"((?:cm|connection)_\w+)"', code))
    assert (
        documented == counted | (cm.REASONS | cm_private.REASONS | cm_rdmacm.REASONS) - mad.REASONS
    )
