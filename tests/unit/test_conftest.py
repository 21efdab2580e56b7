# SPDX-License-Identifier: BSD-2-Clause
"""A skip is a failure in CI, which has everything that a test may need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.builds  # each test starts pytest, some with workers of its own

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SKIPS = {
    "test_mark.py": """
import pytest

@pytest.mark.skipif(True, reason="no fish here")
def test_a_mark():
    pass

@pytest.mark.parametrize("nothing", [])
def test_no_parameters(nothing):
    pass

def test_a_call():
    pytest.skip("no fish here")

@pytest.mark.xfail(reason="known", strict=True)
def test_an_expected_failure():
    assert False

def test_another():
    pass
""",
    "test_module.py": """
import pytest

pytest.importorskip("ipoibu.fish")

def test_nothing():
    pass
""",
}


def _outcome(directory: Path, ci: str, *options: str) -> tuple[int, str]:
    shutil.copy(CONFTEST, directory)
    for name, text in SKIPS.items():
        (directory / name).write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."]
    words += ["--continue-on-collection-errors", *options, "."]
    done = subprocess.run(
        words,
        cwd=directory,
        env=os.environ | {"CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()[-1]


@pytest.mark.parametrize("ci", ["", "0", "false"])
def test_elsewhere_a_test_may_be_skipped(tmp_path: Path, ci: str) -> None:
    status, summary = _outcome(tmp_path, ci)
    assert (status, summary.partition(" in ")[0]) == (0, "1 passed, 4 skipped, 1 xfailed")


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "workers"])
def test_in_ci_a_skipped_test_has_failed(tmp_path: Path, options: tuple[str, ...]) -> None:
    status, summary = _outcome(tmp_path, "true", *options)
    assert (status, summary.partition(" in ")[0]) == (
        1,
        "1 failed, 1 passed, 1 xfailed, 3 errors",
    )
