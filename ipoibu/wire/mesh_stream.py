# SPDX-License-Identifier: BSD-2-Clause
"""The frames of a mesh on a byte stream; a profile of our own, docs/use/unicast.md.

Where the connections of a mesh are TCP streams, each message is a frame:

    | length of the rest 2 | kind 1 | 0 1 | body ... | with a key: tag 32 |

The first frame of each side is its greeting; the side that was dialed may refuse instead, by a frame
whose body is a greeting, too. All others are control messages (`ipoibu.wire.mesh`). Where hosts share a
key, nonces come before the greetings (`ipoibu.wire.mesh_key`). A nonce and a denial have no tag.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, mesh_key
from ipoibu.wire.mesh_key import TAG_LEN, KeyExchange, Seal

REASONS: Final = mesh_key.REASONS | {"mesh_frame_kind", "mesh_frame_length"}

BODY_MAX: Final = 4096  # bytes; the longest list has 2004
_HEADER: Final = struct.Struct("!HBB")


class FrameKind(enum.IntEnum):
    """The kinds of frames."""

    GREETING = 1
    REFUSAL = 2  # the greeting of a host that does not accept ours
    CONTROL = 3
    NONCE = 4
    DENIAL = 5  # the keys do not agree
    QUERY = 6  # "who listens here?": a refusal from each interface answers


_UNTAGGED: Final = frozenset({FrameKind.NONCE, FrameKind.DENIAL})


def frame(kind: FrameKind, body: bytes, seal: Seal | None = None) -> bytes:
    """Return a frame; `body` has at most 4096 bytes."""
    if seal is None or kind in _UNTAGGED:
        return _HEADER.pack(len(body), kind, 0) + body
    bare = _HEADER.pack(len(body) + TAG_LEN, kind, 0) + body
    return bare + seal.tag(bare)


class FrameReader:
    """Cuts the bytes of a stream into frames, and checks their tags where hosts share a key."""

    def __init__(self, exchange: KeyExchange | None = None) -> None:
        self._exchange = exchange
        self._bytes = bytearray()

    def frames_untrusted(self, data: Octets) -> Iterator[tuple[FrameKind, bytes]]:
        """Yield the frames that `data` completes. `BadFrame`: the stream has no meaning from here on."""
        self._bytes += data
        while len(self._bytes) >= _HEADER.size:
            length, raw_kind, zero = _HEADER.unpack_from(self._bytes)
            try:
                kind = FrameKind(raw_kind)
            except ValueError:
                raise BadFrame("mesh_frame_kind") from None
            if zero:  # of a nonce no tag shows that it was changed
                raise BadFrame("mesh_frame_kind")
            if length > BODY_MAX + (TAG_LEN if self._exchange is not None else 0):
                raise BadFrame("mesh_frame_length")
            end = _HEADER.size + length
            if len(self._bytes) < end:
                return
            whole = bytes(self._bytes[:end])
            del self._bytes[:end]
            yield kind, self._body_untrusted(kind, whole)

    def _body_untrusted(self, kind: FrameKind, whole: bytes) -> bytes:
        """Return the body, if the frame has the tag that it needs."""
        exchange = self._exchange
        if exchange is None:
            return whole[_HEADER.size :]
        seal = exchange.seal
        if kind is FrameKind.DENIAL and (seal is None or not seal.has_received):
            return whole[_HEADER.size :]
        if seal is not None:
            if kind is FrameKind.NONCE:
                raise BadFrame("mesh_frame_kind")
            if len(whole) < _HEADER.size + TAG_LEN:
                raise BadFrame("mesh_key_wrong")
            seal.check_untrusted(whole[:-TAG_LEN], whole[-TAG_LEN:])
            return whole[_HEADER.size : -TAG_LEN]
        if kind is not FrameKind.NONCE:
            raise BadFrame("mesh_key_missing")
        exchange.hear_untrusted(whole[_HEADER.size :])
        return whole[_HEADER.size :]
