# SPDX-License-Identifier: BSD-2-Clause
"""Builds and runs the plain C tests of `ext/tests` under the sanitizers, one program a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.c_build import EXT, build, run

C_TESTS = EXT / "tests"
FIGURES = {"test_table_bytes"}  # prints figures that tests/unit/tables/test_core_bytes.py compares
PROGRAMS = sorted({source.stem for source in C_TESTS.glob("test_*.c")} - FIGURES)
THREADED = [name for name in PROGRAMS if "pthread_create" in (C_TESTS / f"{name}.c").read_text()]


def test_there_are_programs_to_run() -> None:
    assert {"test_neigh", "test_ring", "test_memory", "test_faults"} <= set(PROGRAMS)
    assert "test_ring" in THREADED


@pytest.fixture(scope="module")
def address_sanitized() -> Path:
    return build("tests", "SANITIZE=1")


@pytest.fixture(scope="module")
def thread_sanitized() -> Path:
    return build("tests", "SANITIZE=thread", names=THREADED)


@pytest.mark.builds
@pytest.mark.timeout(3600)  # compiles
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_passes_under_the_address_and_undefined_behaviour_sanitizers(
    address_sanitized: Path, name: str
) -> None:
    run(address_sanitized / name)


@pytest.mark.builds
@pytest.mark.timeout(3600)  # compiles
@pytest.mark.nightly
@pytest.mark.parametrize("name", THREADED)
def test_it_passes_under_the_thread_sanitizer(thread_sanitized: Path, name: str) -> None:
    run(thread_sanitized / name)
