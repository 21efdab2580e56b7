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
RAILS_CHANGE = (
    "tests/unit/endpoint/test_joined_rails.py::"
    "test_threads_in_c_send_and_receive_while_rails_change"
)
# Their bounds are for an unsanitized build: the sanitizer keeps freed memory in quarantine.
NOT_SANITIZED = "not leave_no_descriptor"


def runtime(name: str) -> str:
    done = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


RACE = """
#include <pthread.h>
static int n;
static void *count(void *none) { for (int i = 0; i < 1000; i++) n++; return none; }
void race(void)
{
    pthread_t a, b;
    pthread_create(&a, 0, count, 0);
    pthread_create(&b, 0, count, 0);
    pthread_join(a, 0);
    pthread_join(b, 0);
}
"""
RACED = 66


def sanitized_source(directory: Path, kind: str) -> Path:
    """Build the package with a sanitizer in a copy of the tree."""
    source, package = directory / "source", directory / "source" / "ipoibu"
    shutil.copytree(ROOT / "ext", source / "ext", ignore=shutil.ignore_patterns("_*.c", "build"))
    shutil.copytree(ROOT / "ipoibu", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copytree(ROOT / "bench" / "ceiling", source / "bench" / "ceiling")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=source,
        env=os.environ | {"IPOIBU_SANITIZE": kind, "IPOIBU_DEBUG": "1"},
        check=True,
        capture_output=True,
    )
    return source


@pytest.mark.builds
@pytest.mark.timeout(3600)
def test_the_data_path_is_clean_under_the_sanitizers(tmp_path: Path) -> None:
    source = sanitized_source(tmp_path, "1")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + ["-k", NOT_SANITIZED, "-m", "not serial"]  # serial tests depend on the speed of the code
        + [str(ROOT / name) for name in (*UNDER_TEST, RAILS_CHANGE)],
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


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_threads_in_c_and_python_do_not_race(tmp_path: Path) -> None:
    """A heavy flush, a change of rails, a close and an open in the middle of the traffic of threads in C.

    ThreadSanitizer sees the accesses of our C and Cython and of the examples, and the locks of Python, whose
    own accesses nobody instrumented. A race that is there shows that it would report one.
    """
    source = sanitized_source(tmp_path, "thread")
    (tmp_path / "race.c").write_text(RACE)
    thread = ["gcc", "-g", "-fsanitize=thread"]
    library = tmp_path / "race.so"
    subprocess.run(
        [*thread, "-shared", "-fPIC", str(tmp_path / "race.c"), "-o", str(library)], check=True
    )
    environment = os.environ | {
        "CC": " ".join(thread),
        "PYTHONPATH": str(source),
        "LD_PRELOAD": runtime("libtsan.so"),
        "TSAN_OPTIONS": f"exitcode={RACED}",
    }
    racing = f"import ctypes; ctypes.CDLL({str(library)!r}).race()"
    raced = subprocess.run([sys.executable, "-c", racing], env=environment, check=False)
    assert raced.returncode == RACED
    tests = [str(ROOT / it) for it in ("tests/unit/endpoint/test_c_device.py", RAILS_CHANGE)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    assert "ThreadSanitizer" not in done.stdout + done.stderr
    assert " passed" in done.stdout
