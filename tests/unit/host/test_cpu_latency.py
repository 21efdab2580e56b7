# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import os
from pathlib import Path

import pytest

from ipoibu.errors import IpoibuError, NotPermitted, UsageError
from ipoibu.host.cpu_latency import CpuLatency


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_bound_is_written_as_the_kernel_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "cpu_dma_latency"
    path.touch()
    before = fds()
    with CpuLatency(258, path) as held:
        assert path.read_bytes() == (258).to_bytes(4, "little")
        assert fds() == before + 1
    assert fds() == before
    held.close()


@pytest.mark.parametrize("us", [-1, 1_000_001])
def test_a_bound_out_of_bounds_is_refused(tmp_path: Path, us: int) -> None:
    with pytest.raises(UsageError, match="expected 0 to"):
        CpuLatency(us, tmp_path / "none")


def test_a_kernel_without_says_so(tmp_path: Path) -> None:
    with pytest.raises(IpoibuError, match="No such file"):
        CpuLatency(0, tmp_path / "none")


def test_another_user_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "closed")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(NotPermitted, match="run as root"):
        CpuLatency(0, tmp_path / "none")


def test_what_cannot_be_written_is_not_held(tmp_path: Path) -> None:
    before = fds()
    with pytest.raises(IpoibuError, match="No space left"):
        CpuLatency(0, Path("/dev/full"))
    assert fds() == before
