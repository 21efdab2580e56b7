# SPDX-License-Identifier: BSD-2-Clause
"""The built-in HCA by itself: its C unit tests under sanitizers, and that it stands alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from tests.doubles.c_build import EXT, make

SOFT = EXT / "soft"
SENTENCES = re.compile(r"^ok: (\w+)$", re.MULTILINE)


@pytest.mark.builds
@pytest.mark.timeout(3600)  # compiles
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(("CC=gcc", "SANITIZE=1"), id="gcc"),
        pytest.param(
            ("CC=clang", "SANITIZE=thread"),
            id="clang, threads",
            marks=[
                pytest.mark.nightly,
                pytest.mark.skipif(shutil.which("clang") is None, reason="no clang here"),
            ],
        ),
    ],
)
def test_the_c_tests_pass(variant: tuple[str, ...]) -> None:
    said = SENTENCES.findall(make("soft", *variant, "test"))
    expected = {
        name
        for source in (SOFT / "tests").glob("test_*.c")
        for name in re.findall(r"^static void (\w+)\(void\)$", source.read_text(), re.MULTILINE)
    }
    assert set(said) == expected  # a test that is written and not run fails here


def test_it_includes_nothing_from_outside_its_folder() -> None:
    for source in [*SOFT.glob("*.[ch]"), *SOFT.glob("tests/*.[ch]")]:
        for name in re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE):
            places = [source.parent / name, SOFT / name]
            assert any(place.is_file() for place in places), f"{source.name} includes {name}"
            assert ".." not in name


def test_the_public_header_compiles_by_itself() -> None:
    for standard in ("c11", "gnu17"):
        words = ["gcc", f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror"]
        words += ["-fsyntax-only", "-x", "c", str(SOFT / "hca.h")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_the_golden_packets_are_what_scapy_makes() -> None:
    words = [sys.executable, str(SOFT / "tests" / "golden.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (SOFT / "tests" / "golden.h").read_text()
