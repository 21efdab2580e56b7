# SPDX-License-Identifier: BSD-2-Clause
"""The fuzzers of `ext/tests/fuzz`: a fixed number of inputs from the corpus, which a script makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.c_build import EXT, make

FUZZ = EXT / "tests" / "fuzz"


@pytest.mark.builds
@pytest.mark.timeout(3600)  # compiles
def test_no_input_from_the_corpora_on_breaks_what_must_hold() -> None:
    """20 000 inputs a fuzzer under AddressSanitizer and UndefinedBehaviorSanitizer."""
    said = make("tests/fuzz", "CC=clang", "run", "RUNS=20000").splitlines()
    targets = ("soft", "segment", "pump", "tap", "unicast", "rails", "mesh")
    assert said == [f"ok {name} 20000 inputs" for name in targets]


def test_the_corpora_are_what_the_script_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(FUZZ / "seeds.py"), str(tmp_path)], check=True)
    made = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.glob("*/*")}
    kept = FUZZ / "corpus"
    assert made == {path.relative_to(kept): path.read_bytes() for path in kept.glob("*/*")}
