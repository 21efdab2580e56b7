# SPDX-License-Identifier: BSD-2-Clause
"""Programs of the project in an interpreter of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(arguments: list[str]) -> str:
    """Return the output of a new interpreter; fail on any error output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
