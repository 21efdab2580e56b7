# SPDX-License-Identifier: BSD-2-Clause
"""What an entry of each table of the core costs, as C measures it, beside the register's figure."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from ipoibu.base.limits import ROUTE_HOPS_MAX
from ipoibu.daemon.tables.register import TABLES
from ipoibu.daemon.tables.table import CoreTable
from tests.doubles.c_build import build

ROOT: Final = Path(__file__).parents[3]
FEW_HOPS: Final = 4  # of the routes that C makes
HOP_BYTES: Final = 24
ELSEWHERE: Final = {"control messages of peers of an iWARP mesh": "ext/verbs/tests/test_mesh.c"}


@pytest.mark.builds
@pytest.mark.timeout(3600)  # compiles
def test_an_entry_costs_no_more_than_the_register_says() -> None:
    program = build("tests", "SANITIZE=1", names=["test_table_bytes"]) / "test_table_bytes"
    said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    measured = {name: int(text) for name, text in re.findall(r"^bytes (.+) (\d+)$", said, re.M)}
    few = measured.pop(f"routes of the pump, with {FEW_HOPS} next hops")
    measured["routes of the pump"] = few + HOP_BYTES * (ROUTE_HOPS_MAX - FEW_HOPS)
    core = {it.name: it.entry_bytes for it in TABLES if isinstance(it, CoreTable)}
    for name, path in ELSEWHERE.items():  # checks the size itself, against the register's figure
        (figure,) = re.findall(r"REGISTER_BYTES = (\d+)", (ROOT / path).read_text("utf-8"))
        measured[name] = int(figure)
        assert core[name] == int(figure)
    assert measured.keys() == core.keys()
    assert {
        name: (bytes_, core[name]) for name, bytes_ in measured.items() if bytes_ > core[name]
    } == {}
