# SPDX-License-Identifier: BSD-2-Clause
"""ipoibu-lab.pyz: one file that a plain Python runs, without anything that is compiled for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.builds

BUILD: Final = Path(__file__).parents[2] / "packaging/zipapp/build"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("zipapp") / "ipoibu-lab.pyz"
    subprocess.run([sys.executable, str(BUILD), str(file)], check=True)
    return file


def run(program: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it as in an empty home, where no directory of this checkout is on Python's path."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(program), *words],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **variables},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_same_files_give_the_same_bytes(program: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(BUILD), str(tmp_path / "again")], check=True)
    assert (tmp_path / "again").read_bytes() == program.read_bytes()


def test_a_plain_python_runs_the_lab(program: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    for words, code, said in (
        (["--version"], 0, "ipoibu 0."),
        (["lab", "--help"], 0, "--guests"),
        (["lab", "userland", "list"], 0, ""),
        (["lab", "--guests", "--device", "eth0"], 2, "expected one of rxe0"),
        (["lab"], 1, "_libc is not built"),
    ):
        done = run(program, *words, IPOIBU_CACHE=cache)
        assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done
    (unpacked,) = (tmp_path / "cache/lab-program").iterdir()
    for name in ("init", "agent"):
        assert (unpacked / "ipoibu/lab/machines/inside" / name).stat().st_mode & 0o111
    assert not list(unpacked.rglob("*.so"))


def test_a_cache_that_cannot_be_written_is_named(program: Path) -> None:
    done = run(program, "--version", IPOIBU_CACHE="/proc/nowhere")
    assert done.returncode == 1
    assert "set IPOIBU_CACHE" in done.stderr
