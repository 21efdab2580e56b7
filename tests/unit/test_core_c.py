# SPDX-License-Identifier: BSD-2-Clause
"""Builds and runs the plain C tests of `ext/tests` under the sanitizers, one program a test."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

C_TESTS = Path(__file__).resolve().parents[2] / "ext" / "tests"
PROGRAMS = sorted(source.stem for source in C_TESTS.glob("test_*.c"))
THREADED = [name for name in PROGRAMS if "pthread_create" in (C_TESTS / f"{name}.c").read_text()]

# The C tests must not inherit the sanitizer or the make that started this interpreter.
FOREIGN = {"LD_PRELOAD", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in FOREIGN} | {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "second_deadlock_stack=1",
}


def make(*arguments: str) -> str:
    """The output of make in `ext/tests`; compiler warnings are errors there. One worker at a time
    builds, because all of them use one directory."""
    with (C_TESTS / "Makefile").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-s", f"-j{os.cpu_count()}", "-C", str(C_TESTS), *arguments],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run(program: Path) -> None:
    done = subprocess.run([program], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines
    assert all(line.startswith("ok ") for line in lines)


def test_there_are_programs_to_run() -> None:
    assert {"test_neigh", "test_ring", "test_memory", "test_faults"} <= set(PROGRAMS)
    assert "test_ring" in THREADED


@pytest.fixture(scope="module")
def address_sanitized() -> Path:
    make("SANITIZE=1", "all")
    return Path(make("SANITIZE=1", "builddir").strip())


@pytest.fixture(scope="module")
def thread_sanitized() -> Path:
    directory = Path(make("SANITIZE=thread", "builddir").strip())
    relative = directory.relative_to(C_TESTS)
    make("SANITIZE=thread", *(str(relative / name) for name in THREADED))
    return directory


@pytest.mark.builds
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_passes_under_the_address_and_undefined_behaviour_sanitizers(
    address_sanitized: Path, name: str
) -> None:
    run(address_sanitized / name)


@pytest.mark.builds
@pytest.mark.nightly
@pytest.mark.parametrize("name", THREADED)
def test_it_passes_under_the_thread_sanitizer(thread_sanitized: Path, name: str) -> None:
    run(thread_sanitized / name)
