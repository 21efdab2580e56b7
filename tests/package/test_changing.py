# SPDX-License-Identifier: BSD-2-Clause
"""The changes of docs/understand/changing.md work: a copy of the tree with all of them passes their tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.doubles.c_build import ENVIRONMENT
from tests.doubles.page_blocks import ROOT

PATCHES: Final = sorted((Path(__file__).parent / "changing").glob("*.patch"))
# A page or a stub that is made of the files that a change touches
MAKERS: Final = ("docs/make/list_counters.py", "docs/make/list_options.py", "ext/python/stubs.py")
# Tests that fail for a change that forgets a place
GUARDS: Final = {
    "counter": ("tests/unit/proto/test_docs.py", "tests/unit/daemon/test_counters.py"),
    "icmpv6": ("tests/unit/core/test_pump_abi.py", "tests/unit/proto/test_ndisc.py"),
    "option": ("tests/unit/daemon/test_options.py",),
    "port": ("tests/unit/fabric/test_device.py",),
    "pump": (
        "tests/unit/core/test_pump_abi.py",
        "tests/unit/proto/test_docs.py",
        "tests/unit/daemon/test_counters.py",
    ),
}
CHANGED_MODULE: Final = "ipoibu/_core/pump."  # the one of which the patches change a source

pytestmark = [pytest.mark.builds, pytest.mark.timeout(3600)]


def run(copy: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=copy,
        env=ENVIRONMENT
        | {
            "PYTHONPATH": str(copy),
            "PATH": f"/usr/lib/ccache:{os.environ['PATH']}",
            "CCACHE_NOHASHDIR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout


def built(root: Path) -> list[Path]:
    """What `make build` makes of unchanged sources need not be made again."""
    return [*root.glob("ipoibu/**/*.so"), *root.glob("build/cython/ext/python/*.c")]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with all changes, built."""
    copy = tmp_path_factory.mktemp("changing")
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    tracked = [ROOT / name for name in listed.stdout.splitlines()]
    for path in (*filter(Path.is_file, tracked), *built(ROOT)):
        there = copy / path.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there)
    for patch in PATCHES:
        subprocess.run(
            ["git", "apply", str(patch)],
            cwd=copy,
            env=os.environ | {"GIT_CEILING_DIRECTORIES": str(copy.parent)},
            check=True,
        )
    for path in copy.glob("ipoibu/**/*.so"):
        if not path.relative_to(copy).as_posix().startswith(CHANGED_MODULE):
            path.touch()  # newer than the headers that the patches change
    for maker in MAKERS:
        run(copy, maker)
    run(copy, "setup.py", "-q", "build_ext", "--inplace")
    return copy


@pytest.mark.parametrize("patch", PATCHES, ids=lambda it: it.stem)
def test_a_change_passes_its_test_and_those_that_find_a_forgotten_place(
    changed: Path, patch: Path
) -> None:
    own = re.findall(r"^\+\+\+ b/(tests/.*test_\w+\.py)$", patch.read_text("utf-8"), re.MULTILINE)
    assert own
    run(changed, "-m", "pytest", "-q", "-p", "no:cacheprovider", *own, *GUARDS[patch.stem])
