# SPDX-License-Identifier: BSD-2-Clause
"""A TCP stream from one host of a lab to another, whose rate a test reads while it runs."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Final, Self

from ipoibu.lab.host import Host

PORT: Final = 7722
CHUNK_BYTES: Final = 1 << 18
STALL_S: Final = 60.0


class Stream:
    """Sends from `source` to `target` until the block ends; `received` counts bytes."""

    def __init__(self, source: Host, target: Host, port: int = PORT) -> None:
        self.received = 0
        self._stopping = False
        with target.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((str(target.ipv4.ip), port))
            listener.listen(1)
            self._out = source.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._out.settimeout(STALL_S)
            self._out.connect((str(target.ipv4.ip), port))
            self._into, _ = listener.accept()
        self._into.settimeout(STALL_S)
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._take)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping = True
        for end in (self._out, self._into):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._out.close()
        self._into.close()

    def _send(self) -> None:
        data = bytes(CHUNK_BYTES)
        with contextlib.suppress(OSError):  # the end of the stream
            while not self._stopping:
                self._out.sendall(data)

    def _take(self) -> None:
        buffer = bytearray(CHUNK_BYTES)
        with contextlib.suppress(OSError):
            while not self._stopping and (n := self._into.recv_into(buffer)) > 0:
                self.received += n

    def rate(self, seconds: float) -> float:
        """Return the stream's bytes a second during the next `seconds`."""
        began, before = time.monotonic(), self.received
        time.sleep(seconds)
        return (self.received - before) / (time.monotonic() - began)

    def resumes(self, bytes_per_second: float, timeout_s: float) -> float:
        """Return the seconds until the stream is that fast for 0.2 s; raise when the stream is late."""
        began = time.monotonic()
        while (last := self.rate(0.2)) < bytes_per_second:
            late = time.monotonic() - began
            assert late < timeout_s, f"{last:.0f} bytes/s after {late:.1f} s"
        return time.monotonic() - began
