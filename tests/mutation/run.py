# SPDX-License-Identifier: BSD-2-Clause
"""Breaks each clause of docs/understand/conformance.md in a copy of the tree; a test has to notice.

    python -m tests.mutation.run [CLAUSE...]

The runner runs the tests that name the clause and need no privilege: those of tests/unit, and for a change
of C code those of ext, too. Such a change has the copy built again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.doubles.c_build import ENVIRONMENT, build
from tests.mutation.clauses import MUTATIONS, Mutation
from tests.mutation.page import ROOT, load

COPIED: Final = ("ipoibu", "ext", "tests", "docs", "setup.py", "pyproject.toml", "README.md")
TESTS_FAILED: Final = 1  # pytest's exit status


def evidence() -> dict[str, list[str]]:
    """Return the tests that show each clause and need no privilege."""
    return {
        clause.id: [test for test in clause.tests if test.startswith(("tests/unit/", "ext/"))]
        for clause in load().clauses()
    }


def survives(tree: Path, mutation: Mutation, tests: list[str]) -> bool:
    """Return whether the tests pass although `tree` has the mutation."""
    path = tree / mutation.file
    text = path.read_text()
    assert text.count(mutation.old) == 1, f"{mutation.clause}: not once in {mutation.file}"
    path.write_text(text.replace(mutation.old, mutation.new))
    in_python = [test for test in tests if test.startswith("tests/")]
    in_c = [test for test in tests if mutation.is_c and test.startswith("ext/")]
    try:
        if mutation.is_c and in_python:
            _build_modules(tree)
        return _pass_in_c(tree, in_c) and _pass_in_python(tree, in_python)
    finally:
        path.write_text(text)


def _build_modules(tree: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _pass_in_python(tree: Path, tests: list[str]) -> bool:
    if not tests:
        return True
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False)
    assert done.returncode in (0, TESTS_FAILED), done.stdout.decode() + done.stderr.decode()
    return done.returncode == 0


def _pass_in_c(tree: Path, tests: list[str]) -> bool:
    """Run each test alone, so that no other test of its program fails in its place."""
    for test in tests:
        source, _, name = test.partition("::")
        room = next(it for it in (tree / source).parents if (it / "Makefile").exists())
        program = Path(source).stem
        directory = build(str(room), names=[program])
        command, environment = [directory / program], ENVIRONMENT | {"ONLY": name}
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        if done.returncode != 0:
            return False
        assert name in done.stdout.decode(), f"{program} has no test {name}"
    return True


def main() -> int:
    wanted = set(sys.argv[1:])
    shown = evidence()
    survivors = []
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        for entry in COPIED:
            source = ROOT / entry
            if source.is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, tree / entry, ignore=ignore)
            else:
                shutil.copy(source, tree)
        # Changes of C code come last, because the modules that they leave behind are broken.
        for mutation in sorted(MUTATIONS, key=lambda mutation: mutation.is_c):
            if wanted and mutation.clause not in wanted:
                continue
            survived = survives(tree, mutation, shown[mutation.clause])
            print(f"{mutation.clause}: {'SURVIVED' if survived else 'noticed'}", flush=True)
            if survived:
                survivors.append(mutation.clause)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
