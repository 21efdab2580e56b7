# SPDX-License-Identifier: BSD-2-Clause
"""The lines of the pages are short enough to read and compare, and their links have targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.page_blocks import ROOT, tracked_pages

COLUMNS = 100
UNRELEASED_LINES = 80
MERMAID = "```mermaid"  # Mermaid wants each arrow of a picture on one line


def lines(page: str) -> Iterator[tuple[int, str]]:
    """The lines of a page that are no picture, with their numbers."""
    picture = False
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            picture = line == MERMAID
        elif not picture:
            yield number, line


def anchors(page: Path) -> set[str]:
    """The names that headings get: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", tracked_pages())
def test_no_line_is_wider_than_a_hundred_columns(page: str) -> None:
    assert [(number, len(line)) for number, line in lines(page) if len(line) > COLUMNS] == []


def test_what_is_unreleased_is_what_a_user_must_know_and_no_history() -> None:
    sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    unreleased = [each for each in sections if each.partition("\n")[0].endswith("(unreleased)")]
    assert [each for each in unreleased if each.count("\n") > UNRELEASED_LINES] == []


def test_every_page_of_docs_stands_in_the_room_of_its_readers() -> None:
    rooms = {str(Path(page).parent) for page in tracked_pages() if page.startswith("docs/")}
    assert rooms == {"docs/use", "docs/understand", "docs/reference", "docs/findings"}


@pytest.mark.parametrize("page", tracked_pages())
def test_every_link_within_the_project_leads_to_a_page(page: str) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
