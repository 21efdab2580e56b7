# SPDX-License-Identifier: BSD-2-Clause
"""Machines where /dev/shm cannot hold their memory: mounted noexec, as Docker does, or too small."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ipoibu.lab.machines.kernels import check_kernel
from ipoibu.lab.machines.mounts import ROOT

pytestmark = pytest.mark.lab

PROGRAM = """
import sys
from pathlib import Path
from ipoibu.lab import Lab, play
[result] = play(Lab(1, kernel=Path(sys.argv[1]), fabric="none", output=sys.argv[2]), ["echo booted"])
print(result.check().output + result.kernel_log.partition(chr(10))[0])
"""


@pytest.mark.parametrize(
    ("options", "lack"),
    [("noexec", "is mounted noexec"), ("size=64m", "has only 64 MiB free")],
    ids=["noexec", "small"],
)
def test_memory_is_elsewhere_where_shared_memory_is_unfit(
    lab_kernel: Path, tmp_path: Path, options: str, lack: str
) -> None:
    python = shlex.join([sys.executable, "-c", PROGRAM, str(lab_kernel), str(tmp_path / "run")])
    script = f"mount -t tmpfs -o {options} none /dev/shm && TMPDIR={tmp_path} exec {python}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert done.stdout.splitlines() == ["booted", f"memory in {tmp_path}: /dev/shm {lack}"]


def test_the_check_of_the_kernel_names_the_one_that_is_built(lab_kernel: Path) -> None:
    assert check_kernel() in [(0, f"{how} {lab_kernel}") for how in ("built", "fetched")]
