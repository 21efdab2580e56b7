# SPDX-License-Identifier: BSD-2-Clause
"""What comes out of a machine: into memory and a file."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from ipoibu.lab.errors import LabError

OUTPUT_BYTES: Final = 16 << 20  # kept of a stream; the rest is counted and dropped
QUOTED_CHARACTERS: Final = 64 << 10  # of a stream in an error's message


class Output:
    """What came of a stream: its beginning, up to a cap, and the number of bytes beyond."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.dropped_bytes = 0

    def add(self, data: bytes) -> bytes:
        """Add `data`; return what has room."""
        room = data[: OUTPUT_BYTES - len(self._data)]
        self._data += room
        self.dropped_bytes += len(data) - len(room)
        return room

    def __bytes__(self) -> bytes:
        return bytes(self._data)

    def __str__(self) -> str:
        """Return the output, with a replacement for bytes that are no UTF-8."""
        lost = f"\n[{self.dropped_bytes} bytes dropped]\n" if self.dropped_bytes else ""
        return self._data.decode(errors="replace") + lost


class Stream:
    """A pipe out of a machine, which a thread drains into memory and a file.

    All processes of the machine share its end, so the thread ends when the last of them has.
    """

    def __init__(self, file: Path) -> None:
        self._read_fd, self.write_fd = os.pipe()
        self._file = file
        self._fd = -1
        self._output = Output()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name=f"lab-{file.name}", daemon=True)

    def start(self) -> None:
        """Give up the machine's end, create the file and begin to drain."""
        self._fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.close(self.write_fd)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of file; raise LabError when it does not come."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise LabError(f"a process of the machine that writes {self._file} has survived")
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def text(self) -> str:
        """Return the machine's output, with a replacement for bytes that are no UTF-8."""
        return str(self._output)

    def add(self, chunk: bytes) -> None:
        """Add a piece of output; any thread may call it after `start`. What comes after `join` is lost."""
        with self._lock:
            if self._fd < 0:
                return
            write_all(self._fd, self._output.add(chunk))

    def _drain(self) -> None:
        while chunk := os.read(self._read_fd, 1 << 16):
            self.add(chunk)
        os.close(self._read_fd)


def end_of(text: str, characters: int = QUOTED_CHARACTERS) -> str:
    """Return the last characters of `text`, and say what is missing before."""
    lost = len(text) - characters
    return text if lost <= 0 else f"[{lost} characters before this]\n{text[lost:]}"


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, however little the descriptor takes at once."""
    while data:
        data = data[os.write(fd, data) :]
