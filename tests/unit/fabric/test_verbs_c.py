# SPDX-License-Identifier: BSD-2-Clause
"""Builds and runs the plain C tests of `ext/verbs/tests` under the sanitizers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

C_TESTS = Path(__file__).resolve().parents[3] / "ext" / "verbs" / "tests"
PROGRAMS = sorted(source.stem for source in C_TESTS.glob("test_*.c"))

# The C tests must not inherit the sanitizer or the make that started this interpreter.
FOREIGN = {"LD_PRELOAD", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in FOREIGN}

pytestmark = pytest.mark.skipif(
    not Path("/usr/include/infiniband/verbs.h").exists(),
    reason="needs libibverbs-dev, without which the verbs fabric is not built either",
)


def make(directory: Path, *arguments: str) -> None:
    jobs = f"-j{os.cpu_count()}"
    words = ["make", "-s", jobs, "-C", str(C_TESTS), f"BUILD={directory}", *arguments]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def run(program: Path) -> None:
    done = subprocess.run([program], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines
    assert all(line.startswith("ok ") for line in lines)


@pytest.fixture(scope="module", params=["1", pytest.param("thread", marks=pytest.mark.nightly)])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("verbs-c")
    make(directory, f"SANITIZE={request.param}", "all")
    return directory


def test_there_are_programs_to_run() -> None:
    assert set(PROGRAMS) == {
        "test_connected",
        "test_handles",
        "test_mesh",
        "test_receive",
        "test_send",
    }


@pytest.mark.builds
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_passes_under_a_sanitizer(built: Path, name: str) -> None:
    run(built / name)
