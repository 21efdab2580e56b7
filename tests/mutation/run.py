# SPDX-License-Identifier: BSD-2-Clause
"""Breaks each clause of docs/conformance.md in a copy of the tree, and demands that a test notices.

    python -m tests.mutation.run [CLAUSE...]

The runner runs the tests of tests/unit whose docstrings begin with the clause.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.mutation.clauses import MUTATIONS, Mutation
from tests.mutation.page import ROOT, load

COPIED: Final = ("ipoibu", "tests", "docs", "pyproject.toml", "README.md")
TESTS_FAILED: Final = 1  # pytest's exit status


def evidence() -> dict[str, list[str]]:
    """Return the tests that show each clause and need no privilege."""
    return {
        clause.id: [test for test in clause.tests if test.startswith("tests/unit/")]
        for clause in load().clauses()
    }


def survives(tree: Path, mutation: Mutation, tests: list[str]) -> bool:
    """Return whether the tests pass although `tree` has the mutation."""
    path = tree / mutation.file
    text = path.read_text()
    assert text.count(mutation.old) == 1, f"{mutation.clause}: not once in {mutation.file}"
    path.write_text(text.replace(mutation.old, mutation.new))
    try:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
        environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False)
    finally:
        path.write_text(text)
    assert done.returncode in (0, TESTS_FAILED), done.stdout.decode() + done.stderr.decode()
    return done.returncode == 0


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
        for mutation in MUTATIONS:
            if wanted and mutation.clause not in wanted:
                continue
            survived = survives(tree, mutation, shown[mutation.clause])
            print(f"{mutation.clause}: {'SURVIVED' if survived else 'noticed'}", flush=True)
            if survived:
                survivors.append(mutation.clause)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
