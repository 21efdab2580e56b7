# SPDX-License-Identifier: BSD-2-Clause
"""An ordinary user on an InfiniBand port without umad, beside the kernel's own interface."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.lab.machines.judge import SCRIPTS
from ipoibu.lab.machines.runner import INFINIBAND, shell, source
from tests.lab.bare import run

HERE = Path(__file__).parent / "scenarios"
PRELUDE = source(*SCRIPTS, HERE / "unprivileged_host.sh")

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240, func_only=True)]


@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_a_user_meets_others_and_the_kernel_by_rdma_cm(
    lab_kernel: Path, tmp_path: Path, mode: str
) -> None:
    results = run(
        lab_kernel,
        [shell(PRELUDE + f"unprivileged {mode}")] * 2,
        directory=tmp_path,
        kernel_arguments=[INFINIBAND] * 2,
        timeout_s=180,
    )
    for result in results:
        result.check()
        log = (tmp_path / f"log-{result.name}").read_text()
        assert "rdma_cm asks the subnet administrator for us" in log
        assert "sandbox: capabilities none" in log
        assert "no more memory may be locked" in log
    assert "ff12:401b:ffff::ffff:ffff" in log


def test_without_locked_memory_the_error_says_how_much_is_needed(
    lab_kernel: Path, tmp_path: Path
) -> None:
    results = run(
        lab_kernel,
        [shell(PRELUDE + "memory 64")] * 2,
        directory=tmp_path,
        kernel_arguments=[INFINIBAND] * 2,
    )
    for result in results:
        last = result.check().output.strip().splitlines()[-1]
        assert last.startswith("ipoibu: rxe0: cannot ")
        assert "ulimit -l" in last
