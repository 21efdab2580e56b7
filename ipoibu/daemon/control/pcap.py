# SPDX-License-Identifier: BSD-2-Clause
"""The pcap file format for IPoIB frames, with nanosecond time stamps.

LINKTYPE_IPOIB (242): GRH 40, encapsulation header 4, payload. See the tcpdump.org list of link
types.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # commands that only ask a daemon do not load the core
    from ipoibu._core import CapturedFrame

LINKTYPE_IPOIB: Final = 242
MAGIC_NANOSECONDS: Final = 0xA1B23C4D
SNAPLEN_BYTES: Final = 262_144  # libpcap's MAXIMUM_SNAPLEN: readers refuse larger ones
SNAPLEN_MIN_BYTES: Final = 44  # GRH and encapsulation header
RECORD_HEADER: Final = struct.Struct("<IIII")  # seconds, nanoseconds, captured, original length


def file_header(snaplen_bytes: int = SNAPLEN_BYTES) -> bytes:
    return struct.pack("<IHHiIII", MAGIC_NANOSECONDS, 2, 4, 0, 0, snaplen_bytes, LINKTYPE_IPOIB)


def record(frame: CapturedFrame, snaplen_bytes: int = SNAPLEN_BYTES) -> bytes:
    seconds, nanoseconds = divmod(frame.time_ns, 1_000_000_000)
    data = frame.data[:snaplen_bytes]
    return RECORD_HEADER.pack(seconds, nanoseconds, len(data), frame.wire_len) + data


def cut(data: bytes, count: int) -> int:
    """The number of bytes of the first `count` records of `data`, which has whole records."""
    end = 0
    while count > 0 and end + RECORD_HEADER.size <= len(data):
        end += RECORD_HEADER.size + RECORD_HEADER.unpack_from(data, end)[2]
        count -= 1
    return end


def records_in(data: bytes) -> int:
    """The number of records in `data`, which has whole records."""
    count = end = 0
    while end < len(data):
        end += RECORD_HEADER.size + RECORD_HEADER.unpack_from(data, end)[2]
        count += 1
    return count
