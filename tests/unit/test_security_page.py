# SPDX-License-Identifier: BSD-2-Clause
"""SECURITY.md names tests that exist, and one at least for each promise."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.interpreter import run

ROOT: Final = Path(__file__).parents[2]
ATTACKERS: Final = [
    "Off-path",
    "On the link",
    "Member of the partition",
    "Configured peer",
    "Local user",
]


def section(attacker: str) -> str:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    match = re.search(rf"^### {attacker}\n(.*?)(?=^### |\Z)", page, re.MULTILINE | re.DOTALL)
    assert match is not None, attacker
    return match[1]


def promises(attacker: str) -> list[str]:
    promised, _, _ = section(attacker).partition("Not promised:")
    return re.split(r"^- ", promised, flags=re.MULTILINE)[1:]


@cache
def existing() -> frozenset[str]:
    """Return the names of all tests, in Python and in C."""
    python = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    c = (path.read_text(encoding="utf-8") for path in (ROOT / "ext").glob("**/tests/test_*.c"))
    names = {name for text in python for name in re.findall(r"^ *def (test_\w+)", text, re.M)}
    return frozenset(
        names | {name for text in c for name in re.findall(r"\b(?:TEST|RUN)\((\w+)\)", text)}
    )


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_each_promise_names_tests_that_exist(attacker: str) -> None:
    assert promises(attacker)
    for promise in promises(attacker):
        _, _, tests = promise.partition("Tests:")
        named = set(re.findall(r"`(\w+)`", tests))
        assert named, promise
        assert named <= existing(), sorted(named - existing())


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_each_attacker_has_limits(attacker: str) -> None:
    assert "Not promised:" in section(attacker)


def test_the_table_of_tables_is_what_the_register_says() -> None:
    run(["docs/make/list_tables.py", "--check"])
