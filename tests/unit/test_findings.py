# SPDX-License-Identifier: BSD-2-Clause
"""docs/findings: each script of examples/lab/broken has a page that says all, and a row in the index."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.page_blocks import ROOT
from tests.lab.heads import head
from tests.lab.test_examples import EXAMPLES, KEYS

FINDINGS: Final = ROOT / "docs/findings"
PARTS: Final = (
    "- **Versions**: ",
    "- **What happens**: ",
    "- **What should happen**: ",
    "- **Where**: ",
    "Proposed report, to ",
)
LINES_MAX: Final = 30  # a page is no more than a screen
ROW: Final = re.compile(r"^\| \[[^]]+\]\((?P<page>\S+\.md)\) \|.*\| `(?P<script>[^`]+)` \|$", re.M)


def rows() -> dict[str, str]:
    """Return the script of each page that the index names, with its argument if it has one."""
    text = (FINDINGS / "README.md").read_text("utf-8")
    return {row["page"]: row["script"] for row in ROW.finditer(text)}


def commands() -> list[tuple[Path, str]]:
    files = sorted((EXAMPLES / "broken").glob("*.sh"))
    return [(file, command) for file in files for command in head(file, KEYS)["Run"]]


def on_page(page: str) -> str:
    return " ".join((FINDINGS / page).read_text("utf-8").split())


@pytest.mark.parametrize(("file", "command"), commands(), ids=lambda it: str(it)[-30:])
def test_a_reproducer_has_a_page_and_a_row(file: Path, command: str) -> None:
    (page,) = [page for page in rows() if f"`{command}`" in on_page(page)]
    assert rows()[page].split()[0] == file.name
    assert f"./broken/{rows()[page]}" in command


@pytest.mark.parametrize("page", rows())
def test_a_page_says_what_a_maintainer_asks(page: str) -> None:
    lines = (FINDINGS / page).read_text("utf-8").splitlines()
    assert len(lines) <= LINES_MAX
    at = [next(n for n, line in enumerate(lines) if line.startswith(part)) for part in PARTS]
    assert at == sorted(at)
    assert any(f"`{command}`" in on_page(page) for _, command in commands())


def test_every_page_of_the_findings_is_in_an_index() -> None:
    names = ("README.md", "conformance.md", "suites.md")
    indexes = "".join((FINDINGS / it).read_text("utf-8") for it in names)
    for page in FINDINGS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in indexes, page
