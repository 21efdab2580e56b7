# SPDX-License-Identifier: BSD-2-Clause
"""The examples of the documentation run as they stand."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def run(name: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_blocking_echo_says_what_came_back() -> None:
    assert run("echo_blocking.py") == [
        "one came back from 10.0.0.2",
        "two came back from 10.0.0.2",
        "three came back from 10.0.0.2",
        "10.0.0.2 has 20 octets of address",
    ]


def test_the_async_multicast_is_heard_by_both_listeners() -> None:
    assert sorted(run("multicast_async.py")) == [
        "left heard hello, group",
        "right heard hello, group",
    ]


def test_frames_are_read_where_they_arrived() -> None:
    assert run("frames.py") == ["in place: one", "in place: two", "in place: three"]


@pytest.mark.parametrize("name", ["embedding.md", "aio.md"])
def test_the_program_of_a_page_prints_what_it_says(name: str) -> None:
    page = (EXAMPLES.parent / "use" / name).read_text(encoding="utf-8")
    program, *_ = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"^It prints:\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr


def test_every_example_is_run_by_a_test() -> None:
    tests = Path(__file__).read_text(encoding="utf-8")
    assert all(f'run("{path.name}")' in tests for path in EXAMPLES.glob("*.py"))


def test_the_program_of_the_readme_imports_what_it_uses() -> None:
    readme = (EXAMPLES.parents[1] / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    bound, used = {"packet", *vars(builtins)}, set[str]()
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.name)
    assert used <= bound


def test_the_program_of_the_contributing_page_prints_what_it_says() -> None:
    page = (EXAMPLES.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"this prints.*?^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=EXAMPLES.parents[1],
    )
    assert done.stdout.endswith(printed)
