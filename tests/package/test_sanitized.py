# SPDX-License-Identifier: BSD-2-Clause
"""The Cython face and the pump under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNDER_TEST = (
    "tests/unit/core/test_pump.py",
    "tests/unit/endpoint/test_c_device.py",
    "tests/unit/endpoint/test_endpoint.py",
    "tests/unit/endpoint/test_heavy_flush.py",  # another pump takes the device over
    "tests/unit/endpoint/test_tx_queues.py",
)
# Their bounds are for an unsanitized build: the sanitizer keeps freed memory in quarantine.
NOT_SANITIZED = "not leave_no_descriptor"


def runtime(name: str) -> str:
    done = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.builds
@pytest.mark.timeout(3600)
def test_the_data_path_is_clean_under_the_sanitizers(tmp_path: Path) -> None:
    source, package = tmp_path / "source", tmp_path / "source" / "ipoibu"
    shutil.copytree(ROOT / "ext", source / "ext", ignore=shutil.ignore_patterns("_*.c", "build"))
    shutil.copytree(ROOT / "ipoibu", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(ROOT / "bench" / "ceiling", source / "bench" / "ceiling")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=source,
        env=os.environ | {"IPOIBU_SANITIZE": "1", "IPOIBU_DEBUG": "1"},
        check=True,
        capture_output=True,
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + ["-k", NOT_SANITIZED, "-m", "not serial"]  # serial tests depend on the speed of the code
        + [str(ROOT / name) for name in UNDER_TEST],
        cwd=source,
        env=os.environ
        | {
            "PYTHONPATH": str(source),
            "LD_PRELOAD": f"{runtime('libasan.so')} {runtime('libubsan.so')}",
            # Python itself leaks by design at exit; the C code's own tests find its leaks.
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    assert " passed" in done.stdout
