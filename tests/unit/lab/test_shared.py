# SPDX-License-Identifier: BSD-2-Clause
"""A directory that a machine writes, too: nothing in it leads the host elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ipoibu.lab.machines.shared import SharedDirectory


def test_a_link_of_the_machine_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "own").write_text("of the host")
    (tmp_path / "run" / "put-1").symlink_to(tmp_path / "own")
    (tmp_path / "run" / "put-2").symlink_to(tmp_path / "new")
    with SharedDirectory(tmp_path / "run") as shared:
        for name in ("put-1", "put-2"):
            with pytest.raises(FileExistsError):
                shared.create(name)
            shared.remove(name)
        with shared.create("put-1", 0o755) as file:
            file.write(b"data")
    assert (tmp_path / "own").read_text() == "of the host"
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "run" / "put-1").stat().st_mode & 0o777 == 0o755


def test_only_a_regular_file_is_read_and_not_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    with SharedDirectory(tmp_path) as shared:
        assert shared.read_untrusted("file", 4) == b"0123"
        for name in ("link", "pipe", "directory", "nothing"):
            assert shared.read_untrusted(name, 4) == b""


def test_another_directory_in_its_place_is_not_used(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (tmp_path / "home").mkdir()
    with SharedDirectory(run) as shared:
        run.rename(tmp_path / "moved")
        run.symlink_to(tmp_path / "home")
        shared.create("file").close()
    assert list((tmp_path / "home").iterdir()) == []
    assert (tmp_path / "moved" / "file").exists()
