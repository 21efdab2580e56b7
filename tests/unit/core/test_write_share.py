# SPDX-License-Identifier: BSD-2-Clause
"""The limits of write shares; ext/tests/test_write_share.c tests what they do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ipoibu.base import limits

HEADER: Final = Path(__file__).parents[3] / "ext/pump/write_share.h"


def test_the_limits_are_those_of_the_core() -> None:
    numbers = dict(re.findall(r"IPU_WRITE_SHARE_(\w+) = (\d+)", HEADER.read_text("utf-8")))
    for name in ("BACKLOG", "IDLE", "WINDOW", "LEAST", "SENDERS"):
        assert int(numbers[name]) == getattr(limits, f"WRITE_SHARE_{name}")
    assert int(numbers["UNIT"]) == limits.WRITE_SHARE_UNIT_BYTES
