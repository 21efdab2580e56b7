# SPDX-License-Identifier: BSD-2-Clause
"""No test lies outside the tiers of the Makefile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def variable(name: str) -> list[str]:
    (value,) = re.findall(
        rf"^{name}\s*:= (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE
    )
    return str(value).split()


def test_only_tests_in_namespaces_run_beside_others() -> None:
    """The other tiers have no process for them."""
    marked = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^\s*(@|pytestmark.*)?pytest\.mark\.beside", path.read_text(), re.MULTILINE)
    ]
    assert {path.parent.name for path in marked} == {"netns"}


def test_make_check_runs_every_test_that_has_to_be_alone() -> None:
    """`make check` collects only these files for its last step, which saves seconds."""
    marked = {
        str(path.relative_to(ROOT))
        for room in variable("QUICK")
        for path in (ROOT / room).rglob("test_*.py")
        if re.search(r"^\s*(@|pytestmark.*)pytest\.mark\.serial", path.read_text(), re.MULTILINE)
    }
    assert marked == set(variable("ALONE"))
