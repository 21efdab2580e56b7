# SPDX-License-Identifier: BSD-2-Clause
"""Builds the C side by its own Makefiles. Every test takes a variant (compiler and sanitizer) from the
directory that the Makefile names, so each variant is built once, however many tests run it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Final

EXT: Final = Path(__file__).resolve().parents[2] / "ext"

# The programs must not inherit the sanitizer or the make that started this interpreter.
_FOREIGN: Final = {"LD_PRELOAD", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name not in _FOREIGN} | {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "second_deadlock_stack=1",
}


def make(room: str, *words: str) -> str:
    """Return the output of a parallel make in `ext/room`; a warning of the compiler fails it. The workers
    of pytest-xdist share the directories, so one make at a time runs in a room."""
    directory = EXT / room
    with (directory / "Makefile").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-s", f"-j{os.cpu_count()}", "-C", str(directory), *words],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(room: str, *variant: str, names: list[str] | None = None) -> Path:
    """Build a variant's programs, all or those of these names; return their directory."""
    directory = Path(make(room, *variant, "builddir").strip())
    relative = directory.relative_to(EXT / room)
    make(room, *variant, *(["all"] if names is None else [str(relative / it) for it in names]))
    return directory


def run(program: Path) -> None:
    """Run a program of C tests; every line of its output has to start with "ok"."""
    done = subprocess.run([program], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines
    assert all(line.startswith("ok ") for line in lines)
