# SPDX-License-Identifier: BSD-2-Clause
"""The tables of the core, which C fills to twice their caps: each row of the register is among them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from ipoibu.daemon.tables import TABLES, CoreTable
from tests.doubles.c_build import ENVIRONMENT, build

ROOT: Final = Path(__file__).parents[3]
PROGRAMS: Final = ["test_pump_tables", "test_link_tables"]
CORE: Final = [it for it in TABLES if isinstance(it, CoreTable)]


@pytest.mark.builds
@pytest.mark.timeout(3600)  # compiles
def test_each_full_table_is_quick_counts_and_takes_an_honest_entry() -> None:
    """The work for an entry grows with the table in C where it may by the register, and nowhere else."""
    programs = build("tests", "SANITIZE=1", names=PROGRAMS)
    said = "".join(
        subprocess.run(
            [programs / name], env=ENVIRONMENT, capture_output=True, text=True, check=True
        ).stdout
        for name in PROGRAMS
    )
    grows = {name: kind == "grows" for name, kind in re.findall(r"^ok (.+) \((\w+)\)$", said, re.M)}
    assert grows == {it.name: it.steps > 1 for it in CORE if not it.filled_by}


@pytest.mark.parametrize("table", [it for it in CORE if it.filled_by], ids=lambda it: it.name)
def test_a_table_that_needs_a_device_is_filled_by_a_test_of_its_own(table: CoreTable) -> None:
    in_c = "".join(path.read_text("utf-8") for path in ROOT.glob("ext/**/tests/test_*.c"))
    assert f"RUN({table.filled_by})" in in_c or f"TEST({table.filled_by})" in in_c
