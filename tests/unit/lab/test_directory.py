# SPDX-License-Identifier: BSD-2-Clause
"""Temporary directories of labs that end, and of one that is killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ipoibu.lab.directory import work_directory

HOLDER = """
import time
from ipoibu.lab.directory import work_directory
with work_directory("lab") as path:
    print(path, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary ones alone."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def test_a_directory_goes_at_the_end(place: Path) -> None:
    with work_directory("lab") as path:
        assert (path.parent, path.stat().st_mode & 0o777) == (place, 0o700)
        (path / "inner").mkdir()
    assert list(place.iterdir()) == []


def test_the_next_one_removes_what_a_killed_one_left(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    ) as holder:
        assert holder.stdout is not None
        left = Path(holder.stdout.readline().strip())
        assert left.parent == place
        with work_directory("lab") as other:
            assert left.is_dir()
        assert not other.exists()
        holder.kill()
    with work_directory("bench"):
        assert left.is_dir()  # it is of another kind
    with work_directory("lab") as other:
        assert list(place.iterdir()) == [other]


def test_what_is_no_directory_of_ours_stays(place: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (place / "ipoibu-lab-link").symlink_to(precious)
    (place / "ipoibu-lab-file").touch()
    foreign = place / "ipoibu-lab-foreign"
    foreign.mkdir()
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(foreign, 65534, 65534)
    with work_directory("lab"):
        assert precious.is_dir()
        assert (place / "ipoibu-lab-link").is_symlink()
        assert (place / "ipoibu-lab-file").exists()
        assert foreign.exists() == is_root
