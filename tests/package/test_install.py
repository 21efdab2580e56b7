# SPDX-License-Identifier: BSD-2-Clause
"""`pip install` in a plain virtual environment: of a clone with the optional libraries, and of a source
distribution without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("without", ["", "verbs isal libdeflate uring"], ids=["with", "without"])
def test_a_plain_environment_installs_and_runs(tmp_path: Path, without: str) -> None:
    source, venv = tmp_path / "source", tmp_path / "venv"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    if without:
        subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=source, check=True)
        (source,) = (source / "dist").iterdir()
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "-q", str(source)],
        env=os.environ | {"IPOIBU_WITHOUT": without},
        check=True,
    )
    version = subprocess.run(
        [str(venv / "bin" / "ipoibu"), "--version"], capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith("ipoibu 0.")
    features = "from ipoibu import _core; print(any(_core.FEATURES.values()))"
    probe = subprocess.run(
        [python, "-c", features], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    headers = ("isa-l/crc.h", "libdeflate.h", "liburing.h")
    is_there = any(Path("/usr/include", header).exists() for header in headers)
    assert probe.stdout.strip() == str(is_there and not without)
    example = subprocess.run(
        [python, str(ROOT / "docs/examples/echo_blocking.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "three came back from 10.0.0.2" in example.stdout
