# SPDX-License-Identifier: BSD-2-Clause
"""The pages that are drawn from, or speak for, the engine's source."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import ipoibu.proto
import ipoibu.wire

ROOT = Path(__file__).parents[3]
COUNTERS = (ROOT / "docs/counters.md").read_text(encoding="utf-8")


def documented(section: str) -> set[str]:
    """The names in the table of one section."""
    body = COUNTERS.split(f"## {section}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", body, re.MULTILINE))


def counted(source: str) -> set[str]:
    """The literals in `count("...")` and `Count("...")`."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            callee = node.func
            name = callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", "")
            if name in ("count", "Count"):
                names.add(str(node.args[0].value))
    return names


def test_the_state_machines_page_is_what_the_tables_say() -> None:
    script = ROOT / "docs/draw_state_machines.py"
    run = subprocess.run(
        [sys.executable, str(script), "--check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_every_counter_of_the_engine_is_documented_and_no_other() -> None:
    sources = Path(ipoibu.proto.__path__[0]).glob("*.py")
    names = set().union(*(counted(path.read_text(encoding="utf-8")) for path in sources))
    assert documented("Engine") == names


def test_every_reason_for_a_bad_frame_is_documented_and_no_other() -> None:
    reasons: set[str] = set()
    for module in pkgutil.iter_modules(ipoibu.wire.__path__):
        loaded = importlib.import_module(f"ipoibu.wire.{module.name}")
        reasons |= getattr(loaded, "REASONS", frozenset())
    assert documented("Malformed input") == reasons


def test_every_counter_of_the_data_path_is_documented_and_no_other() -> None:
    header = (ROOT / "ext/counters.h").read_text(encoding="utf-8")
    assert documented("Data path") == set(re.findall(r"^ +X\((\w+)\)", header, re.MULTILINE))
