# SPDX-License-Identifier: BSD-2-Clause
"""Docstrings and comments name their subject: none leans on a sentence that stands elsewhere.

"That of the active rail." and "As `recv`, without a copy." make the reader look for the noun. A text that
begins with one of these words has none, or names it late.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
LEANING: Final = r"(?:As|That|Those|Where|Likewise|Such as|Also|Which|Who|Whose|Whom)\b.*"
# The first line of a docstring, and of a comment on lines of its own
PYTHON: Final = re.compile(rf'^(?: *"""|(?! *#).*\n *# )({LEANING})', re.MULTILINE)
C: Final = re.compile(rf"^ */\*(?: |\n \* )({LEANING})", re.MULTILINE)
SOURCES: Final = [
    *(
        (path, PYTHON)
        for room in ("ipoibu", "docs", "bench", "tests")
        for path in ROOT.glob(f"{room}/**/*.py")
    ),
    *((path, C) for room in ("ext", "tests") for path in ROOT.glob(f"{room}/**/*.[ch]")),
]


@pytest.mark.parametrize("kind", [PYTHON, C], ids=["python", "c"])
def test_a_text_names_its_subject(kind: re.Pattern[str]) -> None:
    paths = [path for path, its in SOURCES if its is kind and "build" not in path.parts]
    found = {path: kind.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert len(paths) > 100
    assert {str(path): lines for path, lines in found.items() if lines} == {}


def test_the_search_finds_what_it_looks_for() -> None:
    assert PYTHON.findall('def f():\n    """As `recv`."""\n') == ['As `recv`."""']
    assert PYTHON.findall("a = 1\n# Likewise of b\n# As goes on\nb = 2\n") == ["Likewise of b"]
    assert C.findall("/* That. */\n/*\n * Where.\n * As goes on\n */\n") == ["That. */", "Where."]
