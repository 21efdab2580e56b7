# SPDX-License-Identifier: BSD-2-Clause
"""What machines print, on the lab's own output as it comes: by lines, each with its machine's name."""

from __future__ import annotations

import threading
from typing import BinaryIO, Final

from ipoibu.lab.machines.machine import Machine

LINE_BYTES: Final = 1 << 16  # a longer line is printed in pieces


class Live:
    """Prints what machines print. Any thread may call it; a reader who is gone costs the output alone."""

    def __init__(self, stream: BinaryIO, *, with_names: bool) -> None:
        self._stream = stream
        self._with_names = with_names
        self._begun: dict[str, bytes] = {}  # the line that each machine has begun
        self._lock = threading.Lock()
        self._is_open = True

    def __call__(self, machine: Machine, data: bytes) -> None:
        with self._lock:
            if not self._with_names:
                self._write(data)
                return
            *lines, rest = (self._begun.get(machine.name, b"") + data).split(b"\n")
            if len(rest) > LINE_BYTES:
                lines, rest = [*lines, rest], b""
            self._begun[machine.name] = rest
            prefix = machine.name.encode() + b" | "
            self._write(b"".join(prefix + line + b"\n" for line in lines))

    def finish(self) -> None:
        """Print the lines that have no end."""
        with self._lock:
            for name, rest in self._begun.items():
                if rest:
                    self._write(name.encode() + b" | " + rest + b"\n")
            self._begun.clear()

    def pause(self) -> None:
        """Print nothing more: a terminal belongs to somebody else now."""
        with self._lock:
            self._is_open = False

    def resume(self) -> None:
        """Print again after `pause`."""
        with self._lock:
            self._is_open = True

    def _write(self, data: bytes) -> None:
        if not self._is_open:
            return
        try:
            self._stream.write(data)
            self._stream.flush()
        except (OSError, ValueError):
            self._is_open = False
