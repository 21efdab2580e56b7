# SPDX-License-Identifier: BSD-2-Clause
"""The cap of what machines write to the directory of their run, on the host."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ipoibu.base.closing import Closing
from ipoibu.base.limits import MACHINE_FILES_MAX, MACHINE_FILES_MAX_BYTES

PERIOD_S: Final = 1.0  # a machine writes a few hundred megabytes meanwhile
BLOCK_BYTES: Final = 512  # of st_blocks


class Quota(Closing):
    """Looks at the directory every second, on a thread of its own, and calls `end` once there is too much."""

    def __init__(self, directory: Path, end: Callable[[str], None]) -> None:
        self._directory = directory
        self._end = end
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lab-quota", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more; a second call does nothing."""
        self._is_closed.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_closed.wait(PERIOD_S):
            said = excess(self._directory)
            if said is not None:
                self._end(said)
                return


def excess(
    directory: Path, files_max: int = MACHINE_FILES_MAX, bytes_max: int = MACHINE_FILES_MAX_BYTES
) -> str | None:
    """Return what is too much in a directory, or None: its cost is at most that of `files_max` files."""
    files = size_bytes = 0
    waiting = [str(directory)]
    while waiting:
        with contextlib.suppress(FileNotFoundError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                files += 1
                if files > files_max:
                    return f"the machines have written more than {files_max} files to /run/lab"
                with contextlib.suppress(FileNotFoundError):
                    size_bytes += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                if size_bytes > bytes_max:
                    return f"the machines have written more than {bytes_max >> 20} MiB to /run/lab"
    return None
