# SPDX-License-Identifier: BSD-2-Clause
"""docs/understand/changing.md names what its patches change; tests/package/test_changing.py runs them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.page_blocks import ROOT

PAGE: Final = (ROOT / "docs/understand/changing.md").read_text(encoding="utf-8")
PATCHES: Final = {path.stem: path for path in (ROOT / "tests/package/changing").glob("*.patch")}


def files(patch: Path) -> list[str]:
    return re.findall(r"^\+\+\+ b/(.+)$", patch.read_text(encoding="utf-8"), re.MULTILINE)


def section(name: str) -> str:
    """The part of the page that names the patch."""
    (found,) = [it for it in PAGE.split("\n## ") if f"changing/{name}.patch)" in it]
    return found


def test_the_page_names_every_patch() -> None:
    linked = set(re.findall(r"\]\(../../tests/package/changing/(\w+)\.patch\)", PAGE))
    assert linked == set(PATCHES)
    assert len(PATCHES) == 5


@pytest.mark.parametrize("name", sorted(PATCHES))
def test_the_table_of_a_change_has_the_files_of_its_patch(name: str) -> None:
    text, changed = section(name), files(PATCHES[name])
    assert sorted(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)) == sorted(changed)
    assert f"{name}.patch) changes {len(changed)} files:" in text
    anchor = text.splitlines()[0].lower().replace(" ", "-")
    (row,) = re.findall(rf"^\| \[[^]]+\]\(#{anchor}\) \| (.+?) \|", PAGE, re.MULTILINE)
    assert str(len(changed)) in re.findall(r"\d+", row)


@pytest.mark.parametrize("name", sorted(PATCHES))
def test_a_patch_applies_alone_and_brings_its_test(name: str) -> None:
    applied = subprocess.run(
        ["git", "-c", "safe.directory=*", "apply", "--check", str(PATCHES[name])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert applied.returncode == 0, applied.stderr
    assert [it for it in files(PATCHES[name]) if it.startswith("tests/")]
