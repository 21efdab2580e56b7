# SPDX-License-Identifier: BSD-2-Clause
"""The reliable multi-packet header, which carries tables longer than a datagram: §13.6 of volume 1.

    | version 1 | type 1 | response time 5b | flags 3b | status 1 | data1 4 | data2 4 |

| type  | data1           | data2                                                  |
| ----- | --------------- | ------------------------------------------------------ |
| DATA  | segment, from 1 | bytes: in the first segment of all, in the last of it  |
| ACK   | last in order   | the last segment that may be sent before the next ACK  |
| STOP  | reserved        | reserved                                               |
| ABORT | reserved        | reserved                                               |

The bytes of a segment count from the end of this header, and include the 20 of the SA's own header.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets

REASONS: Final = frozenset({"rmpp_short", "rmpp_version", "rmpp_type"})

HEADER_LEN: Final = 12
SEGMENT_LEN: Final = 220  # the bytes behind the header in a datagram of 256
VERSION: Final = 1
NO_RESPONSE_TIME: Final = 0x1F  # §13.6.2.1: the receiver gives no time

_HEADER: Final = struct.Struct("!BBBBII")


class Type(enum.IntEnum):
    """The type of an active header; NONE is a header that is not active."""

    NONE = 0
    DATA = 1
    ACK = 2
    STOP = 3
    ABORT = 4


class Flag(enum.IntFlag):
    ACTIVE = 1
    FIRST = 2
    LAST = 4


_NO_FLAGS: Final = Flag(0)


class Status(enum.IntEnum):
    """Our reason to end a transfer, §13.6.2.1; a peer's status stays a plain number."""

    NORMAL = 0
    RESOURCES_EXHAUSTED = 1
    TOTAL_TIME_TOO_LONG = 118
    INCONSISTENT_LENGTH = 119
    INCONSISTENT_FIRST = 120


@dataclass(frozen=True, slots=True)
class Rmpp:
    """The header; the meaning of `data1` and `data2` (the IBA's names) depends on the type."""

    type: Type = Type.NONE
    flags: Flag = _NO_FLAGS
    status: int = Status.NORMAL
    data1: int = 0
    data2: int = 0
    response_time: int = 0

    def pack(self) -> bytes:
        """Return 12 bytes, which are zeros if the header is not active, as Linux sends them."""
        if self.type is Type.NONE:
            return bytes(HEADER_LEN)
        shared = self.response_time << 3 | self.flags | Flag.ACTIVE
        return _HEADER.pack(VERSION, self.type, shared, self.status, self.data1, self.data2)

    @property
    def is_first(self) -> bool:
        return Flag.FIRST in self.flags

    @property
    def is_last(self) -> bool:
        return Flag.LAST in self.flags


NOT_ACTIVE: Final = Rmpp()


def data(segment: int, payload_bytes: int, *, first: bool = False, last: bool = False) -> Rmpp:
    """The header of one segment of a table."""
    flags = Flag.ACTIVE | first * Flag.FIRST | last * Flag.LAST
    return Rmpp(Type.DATA, Flag(flags), 0, segment, payload_bytes, NO_RESPONSE_TIME)


def ack(segment: int, window_last: int) -> Rmpp:
    """All segments up to `segment` have arrived; send up to `window_last`."""
    return Rmpp(Type.ACK, Flag.ACTIVE, 0, segment, window_last, NO_RESPONSE_TIME)


def abort(status: Status) -> Rmpp:
    """The receiver ends the transfer."""
    return Rmpp(Type.ABORT, Flag.ACTIVE, status, 0, 0, NO_RESPONSE_TIME)


def parse_untrusted(raw: Octets) -> Rmpp:
    """Read the 12 bytes behind the MAD header; a header that is not active is `NOT_ACTIVE`.

    A header is not active without the active flag, or with type 0. OpenSM writes a header of type 0
    for tables; the kernel fills it in, umad2sim does not.
    """
    if len(raw) < HEADER_LEN:
        raise BadFrame("rmpp_short")
    version, kind, shared, status, data1, data2 = _HEADER.unpack_from(raw)
    flags = Flag(shared & 7)
    if Flag.ACTIVE not in flags or kind == Type.NONE:
        return NOT_ACTIVE
    if version != VERSION:
        raise BadFrame("rmpp_version")
    try:
        known = Type(kind)
    except ValueError:
        raise BadFrame("rmpp_type") from None
    return Rmpp(known, flags, status, data1, data2, shared >> 3)
