# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import os
from pathlib import Path

import pytest

from ipoibu.base.errors import IpoibuError, NotPermitted, UsageError
from ipoibu.host.cpu_latency import bounded_cpu_latency


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_bound_is_written_as_the_kernel_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "cpu_dma_latency"
    path.touch()
    before = fds()
    with bounded_cpu_latency(258, path):
        assert path.read_bytes() == (258).to_bytes(4, "little")
        assert fds() == before + 1
    assert fds() == before


@pytest.mark.parametrize("us", [-1, 1_000_001])
def test_a_bound_out_of_bounds_is_refused(tmp_path: Path, us: int) -> None:
    with (
        pytest.raises(UsageError, match="expected 0 to"),
        bounded_cpu_latency(us, tmp_path / "none"),
    ):
        pass


def test_a_kernel_without_says_so(tmp_path: Path) -> None:
    with (
        pytest.raises(IpoibuError, match="No such file"),
        bounded_cpu_latency(0, tmp_path / "none"),
    ):
        pass


def test_another_user_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "closed")

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(NotPermitted, match="run as root"),
        bounded_cpu_latency(0, tmp_path / "none"),
    ):
        pass


def test_what_cannot_be_written_is_not_held(tmp_path: Path) -> None:
    before = fds()
    with (
        pytest.raises(IpoibuError, match="No space left"),
        bounded_cpu_latency(0, Path("/dev/full")),
    ):
        pass
    assert fds() == before
