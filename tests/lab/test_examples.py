# SPDX-License-Identifier: BSD-2-Clause
"""The examples of examples/lab: each does on ib0 what its head says, by the command that its head names.

A head has lines "Debian:" (its packages), "Run:" (commands; two more blanks go on with one), "Expect:"
(a machine, and what it prints), "Since:" (a package, its first version that can do it, and a command), and in
examples/lab/broken "Until:", the package and version that mends it.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.lab.heads import head

pytestmark = [pytest.mark.lab, pytest.mark.nightly]

TREE: Final = Path(__file__).parents[2]
EXAMPLES: Final = TREE / "examples" / "lab"
LINES_MAX: Final = 60
KEYS: Final = ("Debian", "Run", "Since", "Expect", "Until")


@dataclass(frozen=True)
class Example:
    file: Path
    command: tuple[str, ...]
    expected: tuple[tuple[str, str], ...]  # machine, words
    until: tuple[str, str] | None  # package, version


def examples() -> list[Example]:
    found = []
    for file in sorted(EXAMPLES.rglob("*.sh")):
        said = head(file, KEYS)
        expected = tuple((it[0], it[3:]) for it in said["Expect"])
        until = said.get("Until")
        mended = None if until is None else (until[0].split()[0], until[0].split()[1])
        runs = [*said["Run"]]
        for words in said.get("Since", []):
            package, version, command = words.split(maxsplit=2)
            runs += [command] if is_at_least(package, version) else []
        found += [Example(file, tuple(shlex.split(it)), expected, mended) for it in runs]
    return found


def is_at_least(package: str, version: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat", "${Version}", package]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    if done.returncode:
        return False
    compare = ["dpkg", "--compare-versions", done.stdout, "ge", version]
    return not subprocess.run(compare, check=False).returncode


def is_mended(example: Example) -> bool:
    return example.until is not None and is_at_least(*example.until)


@pytest.mark.parametrize("example", examples(), ids=lambda it: f"{it.file.stem} {it.command[-1]}")
def test_an_example_prints_what_its_head_says(example: Example) -> None:
    program, *arguments = example.command
    assert program == "ipoibu"
    assert len(example.file.read_text().splitlines()) <= LINES_MAX
    command = [sys.executable, "-m", "ipoibu.cli", *arguments]
    done = subprocess.run(
        command, cwd=TREE, capture_output=True, text=True, timeout=250, check=False
    )
    said = done.stdout + done.stderr
    seen = [
        any(line.startswith(f"{machine} |") and words in line for line in said.splitlines())
        for machine, words in example.expected
    ]
    assert all(seen) != is_mended(example), said
    assert done.returncode == 0 or is_mended(example), said
