# SPDX-License-Identifier: BSD-2-Clause
"""The places of a machine's memory. tests/lab/test_memory.py boots machines on such file systems."""

import mmap
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ipoibu.lab.errors import LabError
from ipoibu.lab.machines import memory
from ipoibu.lab.machines.memory import Place, memory_place

NEEDED_BYTES = 64 << 20


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that stands for /dev/shm; the temporary one is beside it."""
    monkeypatch.setattr(memory, "SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "shm").mkdir()
    (tmp_path / "tmp").mkdir()
    return tmp_path / "shm"


def forbid_programs(*args: Any, **options: Any) -> None:
    raise PermissionError


def test_shared_memory_is_the_first_choice(shared: Path) -> None:
    assert memory_place(NEEDED_BYTES) == (Place(shared, None), [])
    assert list(shared.iterdir()) == []


def test_a_place_that_is_gone_is_passed_over(shared: Path) -> None:
    shared.rmdir()
    lack = "cannot be used: No such file or directory"
    temporary = Place(shared.parent / "tmp", None)
    assert memory_place(NEEDED_BYTES) == (temporary, [Place(shared, lack)])


def test_a_place_without_room_is_passed_over(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {shared: NEEDED_BYTES}
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(path, NEEDED_BYTES + 1))
    )
    place, unfit = memory_place(NEEDED_BYTES)
    assert place.path == shared.parent / "tmp"
    assert unfit == [Place(shared, "has only 64 MiB free")]


def test_an_error_names_every_place_and_the_remedy(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mmap, "mmap", forbid_programs)
    with pytest.raises(LabError) as caught:
        memory_place(NEEDED_BYTES)
    assert str(caught.value).startswith("no directory can hold 64 MiB of memory for machines: ")
    assert f"{shared} is mounted noexec; {shared.parent / 'tmp'} is mounted noexec; " in str(
        caught.value
    )
    assert str(caught.value).endswith("; set TMPDIR to a directory of another file system")
