# SPDX-License-Identifier: BSD-2-Clause
"""Temporary directories that outlive no lab for long: the next lab removes those of a killed one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def work_directory(kind: str) -> Iterator[Path]:
    """Make a temporary directory `ipoibu-<kind>-...`, and remove it at the end.

    Its owner holds a lock on it (flock), which the kernel drops when the owner ends, however it ends.
    So this first removes the directories of the kind and of this user that nobody holds. Processes that
    the owner forks without exec hold the lock, too.
    """
    prefix = f"ipoibu-{kind}-"
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_if_left(path)
    path, lock = _make(prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _make(prefix: str) -> tuple[Path, int]:
    """Return a new directory and the descriptor that holds its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        with contextlib.suppress(FileNotFoundError):  # another lab took it for one that was left
            lock = os.open(path, os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)


def _remove_if_left(path: Path) -> None:
    with contextlib.suppress(OSError):  # it is gone, no directory, or in use
        lock = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
