# SPDX-License-Identifier: BSD-2-Clause
"""Two builds of a wheel from the source distribution, in different directories, give the same bytes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
EPOCH: Final = "1700000000"  # any time: a release takes that of its commit


def wheel(sdist: Path, directory: Path) -> Path:
    """Build a wheel from the source distribution within the directory."""
    subprocess.run(["tar", "-xf", sdist, "-C", directory], check=True)
    (source,) = directory.iterdir()
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "-w", str(directory), str(source)],
        check=True,
        env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH, "PIP_NO_INDEX": "1"},
    )
    (made,) = directory.glob("*.whl")
    return made


def digests(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_wheel_is_the_same_wherever_it_is_built(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=clone, check=True)
    (sdist,) = (clone / "dist").iterdir()
    places = [tmp_path / "first", tmp_path / "second-with-a-longer-name"]
    for place in places:
        place.mkdir()
    with ThreadPoolExecutor(len(places)) as pool:
        first, second = pool.map(lambda place: wheel(sdist, place), places)
    assert sum(name.endswith(".so") for name in digests(first)) >= 3
    assert digests(first) == digests(second)
    assert first.read_bytes() == second.read_bytes()
