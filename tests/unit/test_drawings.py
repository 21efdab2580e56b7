# SPDX-License-Identifier: BSD-2-Clause
"""The drawings of the documentation are well-formed, and show what the code has."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

ROOT: Final = Path(__file__).parents[2]
DRAWINGS: Final = sorted((ROOT / "docs/drawings").glob("*.svg"))
SVG: Final = "{http://www.w3.org/2000/svg}"


def texts(name: str) -> list[str]:
    """The words of a drawing, from the top down and from left to right."""
    tree = ElementTree.parse(ROOT / "docs/drawings" / name)
    return [element.text or "" for element in tree.iter(f"{SVG}text")]


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.name)
def test_a_drawing_says_what_it_shows_and_has_no_colours_but_the_pages(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    colours = {element.get(kind) for element in root.iter() for kind in ("fill", "stroke")}
    assert colours <= {None, "none", "currentColor"}
    assert "prefers-color-scheme: dark" in str(root.findtext(f"{SVG}style"))
    files = (ROOT / "README.md", *(ROOT / "docs").glob("*/*.md"))
    pages = (page.read_text(encoding="utf-8") for page in files)
    assert any(f"drawings/{path.name})" in page for page in pages)


def test_the_rooms_stand_in_the_order_that_make_lint_checks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract, *_) = settings["tool"]["importlinter"]["contracts"]
    assert [text for text in texts("rooms.svg") if text in contract["layers"]] == contract["layers"]


def test_the_rooms_of_the_walk_exist() -> None:
    lanes = re.findall(r"ext/pump|proto|endpoint|fabric/sa", " ".join(texts("miss.svg")))
    assert lanes == ["ext/pump", "proto", "endpoint", "fabric/sa"]
    assert (ROOT / lanes[0]).is_dir()
    assert all((ROOT / "ipoibu" / lane).is_dir() for lane in lanes[1:])
