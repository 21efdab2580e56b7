# SPDX-License-Identifier: BSD-2-Clause
"""The frames of a mesh on a byte stream; a profile of our own, docs/unicast.md.

Where the connections of a mesh are TCP streams, each message is a frame:

    | length of the body 2 | kind 1 | 0 1 | body ... |

The first frame of each side is its greeting, or the refusal of the side that was asked, whose body is a
greeting, too. All others are control messages (`ipoibu.wire.mesh`).
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final

from ipoibu.errors import BadFrame
from ipoibu.wire import Octets

REASONS: Final = frozenset({"mesh_frame_kind", "mesh_frame_length"})

BODY_MAX: Final = 4096  # bytes; the longest list has 2004
_HEADER: Final = struct.Struct("!HBx")


class FrameKind(enum.IntEnum):
    """The kinds of frames."""

    GREETING = 1
    REFUSAL = 2  # the greeting of a host that does not accept ours
    CONTROL = 3


def frame(kind: FrameKind, body: bytes) -> bytes:
    """Return a frame; `body` has at most 4096 bytes."""
    return _HEADER.pack(len(body), kind) + body


class FrameReader:
    """Cuts the bytes of a stream into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def frames_untrusted(self, data: Octets) -> Iterator[tuple[FrameKind, bytes]]:
        """Yield the frames that `data` completes. `BadFrame`: the stream has no meaning from here on."""
        self._bytes += data
        while len(self._bytes) >= _HEADER.size:
            length, raw_kind = _HEADER.unpack_from(self._bytes)
            try:
                kind = FrameKind(raw_kind)
            except ValueError:
                raise BadFrame("mesh_frame_kind") from None
            if length > BODY_MAX:
                raise BadFrame("mesh_frame_length")
            end = _HEADER.size + length
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_HEADER.size : end])
            del self._bytes[:end]
            yield kind, body
