# SPDX-License-Identifier: BSD-2-Clause
"""What comes out of a machine: into memory and a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import BinaryIO, Final

from ipoibu.lab.errors import LabError

STREAM_BYTES: Final = 16 << 20  # kept of one machine's output; the rest is dropped


class Stream:
    """A pipe out of a machine, which a thread drains into memory and a file.

    All processes of the machine share its end, so the thread ends when the last of them has.
    """

    def __init__(self, file: Path, copy_to: BinaryIO | None = None) -> None:
        self._read_fd, self.write_fd = os.pipe()
        self._file = file
        self._copy_to = copy_to
        self._data = bytearray()
        self._dropped_bytes = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name=f"lab-{file.name}", daemon=True)

    def start(self) -> None:
        """Give up the machine's end, create the file and begin to drain."""
        self._file.touch()
        os.close(self.write_fd)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of file; raise LabError when it does not come."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise LabError(f"a process of the machine that writes {self._file} has survived")

    def text(self) -> str:
        """Return the machine's output, with a replacement for bytes that are no UTF-8."""
        lost = f"\n[{self._dropped_bytes} bytes dropped]\n" if self._dropped_bytes else ""
        return self._data.decode(errors="replace") + lost

    def add(self, chunk: bytes) -> None:
        """Add a piece of output; any thread may call it after `start`."""
        with self._lock:
            room = chunk[: STREAM_BYTES - len(self._data)]
            self._data += room
            self._dropped_bytes += len(chunk) - len(room)
            with self._file.open("ab", buffering=0) as file:
                file.write(room)
            if self._copy_to is not None:
                self._copy_to.write(chunk)
                self._copy_to.flush()

    def _drain(self) -> None:
        while chunk := os.read(self._read_fd, 1 << 16):
            self.add(chunk)
        os.close(self._read_fd)
