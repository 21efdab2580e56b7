# SPDX-License-Identifier: BSD-2-Clause
"""Shell scripts that others run or copy are clean for shellcheck."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.page_blocks import blocks

pytestmark = pytest.mark.builds

PROJECT: Final = Path(__file__).parents[2]
SCRIPTS: Final = (
    "packaging/action/lab",
    "packaging/action/release",
    "ipoibu/lab/userland/init",
    "tests/package/lab_on_bare_root",
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_clean(name: str) -> None:
    subprocess.run(["shellcheck", PROJECT / name], check=True)


def test_the_script_of_the_page_is_clean() -> None:
    texts = [it.text for it in blocks("docs/use/lab.md", "sh") if it.text.startswith("#!")]
    assert texts
    for text in texts:
        subprocess.run(["shellcheck", "-"], input=text, text=True, check=True)
