# SPDX-License-Identifier: BSD-2-Clause
"""The header of every management datagram (MAD): InfiniBand volume 1, §13.4.3.

    | base version 1 | class 1 | class version 1 | method 1 | status 2 | class specific 2 |
    | transaction 8 | attribute 2 | reserved 2 | modifier 4 |

A datagram has 256 bytes. Shorter datagrams are valid, too: a simulated fabric delivers only the
written bytes.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets

REASONS: Final = frozenset({"mad_short", "mad_version"})

MAD_LEN: Final = 256
HEADER_LEN: Final = 24
BASE_VERSION: Final = 1
RESPONSE: Final = 0x80  # the bit that makes a method a response
GSI_QPN: Final = 1  # the general services interface
GSI_QKEY: Final = 0x80010000

_HEADER: Final = struct.Struct("!BBBBHHQHHI")


class Method(enum.IntEnum):
    """§13.4.5, §15.2.2; any other method stays a plain number."""

    GET = 0x01
    SET = 0x02
    REPORT = 0x06
    GET_TABLE = 0x12
    DELETE = 0x15
    GET_RESPONSE = 0x81
    REPORT_RESPONSE = 0x86
    GET_TABLE_RESPONSE = 0x92
    DELETE_RESPONSE = 0x95


@dataclass(frozen=True, slots=True)
class Header:
    """The header; `tid` is the transaction's 64 bits."""

    management_class: int
    class_version: int
    method: int
    attribute: int
    tid: int
    status: int = 0
    modifier: int = 0

    def pack(self) -> bytes:
        """Return 24 bytes; `struct.error` for a value that does not fit its field."""
        return _HEADER.pack(
            BASE_VERSION,
            self.management_class,
            self.class_version,
            self.method,
            self.status,
            0,
            self.tid,
            self.attribute,
            0,
            self.modifier,
        )


def parse_untrusted(raw: Octets) -> Header:
    """Read the start of a datagram."""
    if len(raw) < HEADER_LEN:
        raise BadFrame("mad_short")
    base, kind, version, method, status, _, tid, attribute, _, modifier = _HEADER.unpack_from(raw)
    if base != BASE_VERSION:
        raise BadFrame("mad_version")
    return Header(kind, version, method, attribute, tid, status, modifier)
