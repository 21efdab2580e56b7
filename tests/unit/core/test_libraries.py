# SPDX-License-Identifier: BSD-2-Clause
"""The libraries that the core loads at run time: it works without them, and says what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ipoibu import _core
from ipoibu.bench import _ceiling
from ipoibu.doctor import machine
from tests.interpreter import ROOT

FLAGS = frozenset(Path("/proc/cpuinfo").read_text(encoding="ascii").split())
#: Whether the CPU has what our own CRC-32 by vectors needs; with AVX-512, ISA-L is faster.
VECTORS = {"avx2", "pclmulqdq", "vpclmulqdq"} <= FLAGS
WIDER = VECTORS and "avx512_vbmi2" in FLAGS
ISAL, DEFLATE, URING = "libisal.so.2", "libdeflate.so.0", "liburing.so.2"
PROBE = """
import json
from ipoibu import _core
from ipoibu.doctor import machine as checkup
import ipoibu.cli.main
findings = [checkup.extension(), checkup.io_uring()]
print(json.dumps([_core.FEATURES, [[it.status, it.detail, it.remedy] for it in findings]]))
"""


def without(hidden: tuple[str, ...], tmp_path: Path, *words: str) -> str:
    """Run Python where the loader finds an empty file in the place of each hidden library."""
    for name in hidden:
        (tmp_path / name).touch()
    environment = {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_no_extension_module_of_the_core_needs_an_optional_library() -> None:
    for module in (_core.fabric, _core.device, _core.pump, _ceiling):
        assert module.__file__ is not None
        needed = subprocess.run(
            ["objdump", "-p", module.__file__], capture_output=True, text=True, check=True
        ).stdout
        assert not [name for name in (ISAL, DEFLATE, URING) if name in needed]


@pytest.mark.parametrize(
    ("hidden", "has"),
    [
        ((), "isal" if WIDER or not VECTORS else "vpclmulqdq"),
        ((ISAL,), "vpclmulqdq" if VECTORS else "libdeflate"),
        ((ISAL, DEFLATE), "vpclmulqdq" if VECTORS else None),
    ],
)
def test_the_first_of_the_fast_checksums_that_is_there_is_used(
    hidden: tuple[str, ...], has: str | None, tmp_path: Path
) -> None:
    features, ((status, *_), _) = json.loads(without(hidden, tmp_path, "-c", PROBE))
    fast = [name for name in ("isal", "libdeflate", "vpclmulqdq") if features[name]]
    assert fast == ([has] if has else [])
    assert status == ("ok" if has else "warn")


def test_without_any_of_them_the_doctor_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {**_core.FEATURES, "isal": False, "libdeflate": False, "vpclmulqdq": False}
    monkeypatch.setattr(_core, "FEATURES", slow)
    finding = machine.extension()
    assert (finding.status, finding.remedy) == ("warn", "apt-get install libisal2")
    assert "slow checksums" in finding.detail


def test_without_liburing_the_doctor_says_so_and_names_the_package(tmp_path: Path) -> None:
    features, (_, (status, detail, remedy)) = json.loads(without((URING,), tmp_path, "-c", PROBE))
    assert not features["uring"]
    assert (status, remedy) == ("info", "apt-get install liburing2")
    assert f"{URING}: file too short" in detail


def test_packets_arrive_without_any_of_them(tmp_path: Path) -> None:
    example = str(ROOT / "docs/examples/echo_blocking.py")
    assert "came back from" in without((ISAL, DEFLATE, URING), tmp_path, example)
