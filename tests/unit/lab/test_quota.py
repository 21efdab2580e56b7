# SPDX-License-Identifier: BSD-2-Clause
"""What machines write on the host has a cap."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ipoibu.lab.machines import quota
from ipoibu.lab.machines.quota import Quota, excess


def test_files_and_directories_of_all_depths_count(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("a/one", "a/b/two", "three"):
        (tmp_path / name).touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert excess(tmp_path, files_max=6) is None
    assert excess(tmp_path, files_max=5) == (
        "the machines have written more than 5 files to /run/lab"
    )


def test_bytes_count_as_far_as_the_disk_has_them(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert excess(tmp_path) is None
    (tmp_path / "whole").write_bytes(bytes(3 << 20))
    assert excess(tmp_path, bytes_max=2 << 20) == (
        "the machines have written more than 2 MiB to /run/lab"
    )


def test_a_directory_that_has_gone_has_nothing(tmp_path: Path) -> None:
    assert excess(tmp_path / "none") is None


def test_the_watch_ends_the_machines_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "PERIOD_S", 0.01)
    monkeypatch.setattr(quota, "excess", lambda directory: f"too much in {directory}")
    said: list[str] = []
    has_ended = threading.Event()

    def end(reason: str) -> None:
        said.append(reason)
        has_ended.set()

    with Quota(tmp_path, end):
        assert has_ended.wait(60)
    assert said == [f"too much in {tmp_path}"]
