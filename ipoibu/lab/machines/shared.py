# SPDX-License-Identifier: BSD-2-Clause
"""Files of the host in a directory that a machine writes, too: what it puts there must not lead elsewhere."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from ipoibu.base.closing import Closing


class SharedDirectory(Closing):
    """A directory that stays the one it was, whatever the machine makes of its path."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close it; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def create(self, name: str, mode: int = 0o644) -> BinaryIO:
        """Create a file, to write it; `FileExistsError` if there is something of this name, a link, too."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return open(os.open(name, flags, mode, dir_fd=self._fd), "wb")

    def read_untrusted(self, name: str, limit_bytes: int) -> bytes:
        """Return the first bytes of a regular file; nothing if there is none, but a link or a device."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=self._fd)
        except OSError:
            return b""
        try:
            return os.read(fd, limit_bytes) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        finally:
            os.close(fd)

    def remove(self, name: str) -> None:
        """Remove a file or link, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._fd)
