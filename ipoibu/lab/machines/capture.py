# SPDX-License-Identifier: BSD-2-Clause
"""The frames of a wire in a file of the format pcapng, with an interface for each machine.

    with Capture(Path("wire.pcapng"), "abc") as capture, Wire(3, capture) as wire:
        ...
    print(capture)  # wire.pcapng: 312 frames captured, 0 dropped

The format is what Wireshark writes itself (draft-ietf-opsawg-pcapng). The file has whole blocks at any time:
a reader may follow it, and the end of its writer, SIGKILL included, costs no frame.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ipoibu.base.closing import Closing

CAPTURE_BYTES: Final = 256 << 20  # what a person opens; 30 000 frames of 9000 bytes
END_BYTES: Final = 128  # room for the statistics of one interface

# Types of blocks
_SECTION: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_STATISTICS: Final = 5
_PACKET: Final = 6

_BYTE_ORDER: Final = 0x1A2B3C4D
_ETHERNET: Final = 1  # LINKTYPE_ETHERNET
_PACKET_HEAD: Final = struct.Struct("<IIIIIII")  # type, length, interface, time, captured, original


class Capture(Closing):
    """A file of frames, at most `limit_bytes` long; the frames beyond are counted. `OSError`.

    Each frame is there once, on the interface of the machine that has sent it. Threads may share a capture.
    """

    def __init__(self, path: Path, names: Sequence[str], limit_bytes: int = CAPTURE_BYTES) -> None:
        """Create `path`, or empty it, with an interface for each of `names`."""
        self.path = path
        self._captured = [0] * len(names)
        self._dropped = [0] * len(names)
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._size = 0
        self._full = ""  # why there are no further frames
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            self._write(_section(), *map(_interface, names))
        except OSError:
            self.close()
            raise

    @property
    def frames(self) -> int:
        """The number of frames in the file."""
        return sum(self._captured)

    @property
    def dropped_frames(self) -> int:
        """The number of frames that the file lacks."""
        return sum(self._dropped)

    def __str__(self) -> str:
        full = f": {self._full}" if self._full else ""
        return f"{self.path}: {self.frames} frames captured, {self.dropped_frames} dropped{full}"

    def record(self, index: int, frame: bytes) -> None:
        """Append a frame that machine `index` has sent."""
        with self._lock:
            if self._fd >= 0 and not self._full:
                try:
                    self._append(index, frame)
                except OSError as error:
                    self._full = os.strerror(error.errno or 0)
            counts = self._dropped if self._fd < 0 or self._full else self._captured
            counts[index] += 1

    def close(self) -> None:
        """Append how many frames were captured and dropped, and close the file."""
        with self._lock:
            if self._fd < 0:
                return
            with suppress(OSError):  # a full disk has no room for them
                for index, counts in enumerate(zip(self._captured, self._dropped, strict=True)):
                    self._write(_statistics(index, *counts, self._full))
            os.close(self._fd)
            self._fd = -1

    def _append(self, index: int, frame: bytes) -> None:
        padding = bytes(-len(frame) % 4)
        size = len(frame)
        length = _PACKET_HEAD.size + size + len(padding) + len(_OUTBOUND) + 4
        if self._size + length > self._limit_bytes - END_BYTES * len(self._captured):
            self._full = f"the file is full at {self._limit_bytes >> 20} MiB"
            return
        now_ns = time.time_ns()
        high, low = now_ns >> 32, now_ns & 0xFFFFFFFF
        head = _PACKET_HEAD.pack(_PACKET, length, index, high, low, size, size)
        self._write(head, frame, padding, _OUTBOUND, length.to_bytes(4, "little"))

    def _write(self, *parts: bytes) -> None:
        """Append all of `parts`, or nothing and raise OSError."""
        size = sum(map(len, parts))
        if os.writev(self._fd, parts) < size:
            with suppress(OSError):  # a pipe has no size
                os.ftruncate(self._fd, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += size


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + length + body + length


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


_END_OF_OPTIONS: Final = _option(0, b"")
_OUTBOUND: Final = _option(2, struct.pack("<I", 2)) + _END_OF_OPTIONS  # epb_flags: it went out


def _section() -> bytes:
    size = struct.pack("<q", -1)  # of a section that goes to the end of the file
    writer = _option(4, b"ipoibu lab")  # shb_userappl
    head = struct.pack("<IHH", _BYTE_ORDER, 1, 0)
    return _block(_SECTION, head + size + writer + _END_OF_OPTIONS)


def _interface(name: str) -> bytes:
    body = struct.pack("<HHI", _ETHERNET, 0, 0)  # no snapshot length: whole frames
    body += _option(2, name.encode())  # if_name
    body += _option(3, f"vec0 of machine {name}".encode())  # if_description
    body += _option(9, b"\x09")  # if_tsresol: nanoseconds
    return _block(_INTERFACE, body + _END_OF_OPTIONS)


def _statistics(index: int, captured: int, dropped: int, comment: str) -> bytes:
    now_ns = time.time_ns()
    body = struct.pack("<III", index, now_ns >> 32, now_ns & 0xFFFFFFFF)
    if comment:
        body += _option(1, comment.encode()[:40])  # opt_comment
    body += _option(4, struct.pack("<Q", captured + dropped))  # isb_ifrecv
    body += _option(5, struct.pack("<Q", dropped))  # isb_ifdrop
    return _block(_STATISTICS, body + _END_OF_OPTIONS)
