# SPDX-License-Identifier: BSD-2-Clause
"""The tables of the core, which C fills to twice their caps: each row of the register is among them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from ipoibu.daemon.tables.register import TABLES
from ipoibu.daemon.tables.table import CoreTable
from tests.doubles.c_build import ENVIRONMENT, EXT, build

PROGRAMS: Final = {
    "test_pump_tables": "tests",
    "test_link_tables": "tests",
    "test_mailbox_table": "tests",
    "test_mesh_table": "verbs/tests",
}
CORE: Final = [it for it in TABLES if isinstance(it, CoreTable)]
NO_VERBS: Final = pytest.mark.skipif(
    not Path("/usr/include/infiniband/verbs.h").exists(),
    reason="needs libibverbs-dev, without which the mesh is not built either",
)


def filled() -> dict[str, list[str]]:
    """The rows of each program, as it names them."""
    row = re.compile(r'^(?:    |static const struct row row = )\{"([^"]+)",', re.MULTILINE)
    return {
        name: row.findall((EXT / room / f"{name}.c").read_text("utf-8"))
        for name, room in PROGRAMS.items()
    }


def test_a_program_fills_each_table_of_the_core() -> None:
    assert sorted(it for rows in filled().values() for it in rows) == sorted(it.name for it in CORE)


@pytest.mark.builds
@pytest.mark.timeout(3600)  # compiles
@pytest.mark.parametrize("room", ["tests", pytest.param("verbs/tests", marks=NO_VERBS)])
def test_each_full_table_is_quick_counts_and_takes_an_honest_entry(room: str) -> None:
    """The work for an entry grows with the table in C where it may by the register, and nowhere else."""
    names = [name for name, its_room in PROGRAMS.items() if its_room == room]
    programs = build(room, "SANITIZE=1", names=names)
    said = "".join(
        subprocess.run(
            [programs / name], env=ENVIRONMENT, capture_output=True, text=True, check=True
        ).stdout
        for name in names
    )
    grows = {name: kind == "grows" for name, kind in re.findall(r"^ok (.+) \((\w+)\)$", said, re.M)}
    here = {row for name in names for row in filled()[name]}
    assert grows == {it.name: it.steps > 1 for it in CORE if it.name in here}
