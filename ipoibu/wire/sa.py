# SPDX-License-Identifier: BSD-2-Clause
"""Datagrams of the subnet administrator: class 3, version 2 (InfiniBand volume 1, §15.2).

    | MAD header 24 | RMPP 12 | SM key 8 | record length 2 | reserved 2 | component mask 8 | data 200 |

The record length counts in units of 8 bytes; only tables have one. A request's component mask
selects the fields of its record that count; the record codecs have it as `mask`.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, mad, rmpp

REASONS: Final = (
    mad.REASONS | rmpp.REASONS | {"sa_short", "sa_class", "sa_record_short", "sa_record_length"}
)

CLASS: Final = 0x03
CLASS_VERSION: Final = 2
HEADER_LEN: Final = mad.HEADER_LEN + rmpp.HEADER_LEN + 20
OWN_HEADER_LEN: Final = 20  # RMPP counts this part as payload of every segment
DATA_LEN: Final = mad.MAD_LEN - HEADER_LEN
RECORD_UNIT: Final = 8

_HEADER: Final = struct.Struct("!QHHQ")
_CLASS_PORT_INFO: Final = struct.Struct("!BBHI64x")


class Attribute(enum.IntEnum):
    CLASS_PORT_INFO = 0x0001
    NOTICE = 0x0002
    INFORM_INFO = 0x0003
    PATH_RECORD = 0x0035
    MC_MEMBER_RECORD = 0x0038


class Status(enum.IntEnum):
    """§13.4.7 (the low bits) and §15.2.2 (the high byte); other statuses stay plain numbers."""

    OK = 0x0000
    BUSY = 0x0001
    REDIRECT = 0x0002
    BAD_VERSION = 0x0004
    BAD_METHOD = 0x0008
    BAD_ATTRIBUTE = 0x000C
    BAD_VALUE = 0x001C
    NO_RESOURCES = 0x0100
    REQUEST_INVALID = 0x0200
    NO_RECORDS = 0x0300
    TOO_MANY_RECORDS = 0x0400
    INVALID_GID = 0x0500
    INSUFFICIENT_COMPONENTS = 0x0600
    DENIED = 0x0700


SELECT_EXACTLY: Final = 2  # the selector in front of an MTU, rate or packet lifetime
MTU_CODES: Final = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
MTU_BYTES: Final = {code: size for size, code in MTU_CODES.items()}


@dataclass(frozen=True, slots=True)
class SaMad:
    """One datagram; `data` has the bytes behind the headers, at most 200."""

    method: int
    attribute: int
    tid: int
    status: int = 0
    modifier: int = 0
    rmpp: rmpp.Rmpp = rmpp.NOT_ACTIVE
    mask: int = 0
    record_bytes: int = 0
    sm_key: int = 0
    data: bytes = b""

    def pack(self) -> bytes:
        """Return 256 bytes; `ValueError` for too much data or a record length that is no multiple of 8."""
        units, rest = divmod(self.record_bytes, RECORD_UNIT)
        if rest or len(self.data) > DATA_LEN:
            raise ValueError(f"{len(self.data)} bytes of {self.record_bytes}-byte records")
        header = mad.Header(
            CLASS,
            CLASS_VERSION,
            self.method,
            self.attribute,
            self.tid,
            self.status,
            self.modifier,
        )
        own = _HEADER.pack(self.sm_key, units, 0, self.mask)
        return (header.pack() + self.rmpp.pack() + own + self.data).ljust(mad.MAD_LEN, b"\0")


def parse_untrusted(raw: Octets) -> SaMad:
    """Read a datagram of the class, with any method and attribute."""
    header = mad.parse_untrusted(raw)
    if len(raw) < HEADER_LEN:
        raise BadFrame("sa_short")
    if header.management_class != CLASS or header.class_version != CLASS_VERSION:
        raise BadFrame("sa_class")
    whole = bytes(raw[: mad.MAD_LEN])
    sm_key, units, _, mask = _HEADER.unpack_from(whole, HEADER_LEN - OWN_HEADER_LEN)
    return SaMad(
        header.method,
        header.attribute,
        header.tid,
        header.status,
        header.modifier,
        rmpp.parse_untrusted(whole[mad.HEADER_LEN :]),
        mask,
        units * RECORD_UNIT,
        sm_key,
        whole[HEADER_LEN:],
    )


def records_untrusted(data: bytes, record_bytes: int, least: int) -> tuple[bytes, ...]:
    """Return the records of a table, each of at least `least` bytes; bytes behind the last record
    are padding."""
    if record_bytes < least:
        if not data:
            return ()  # an empty table needs no record length
        raise BadFrame("sa_record_length")
    count = len(data) // record_bytes
    return tuple(data[at * record_bytes : (at + 1) * record_bytes] for at in range(count))


class Capability2(enum.IntFlag):
    """The bits of ClassPortInfo:CapabilityMask2 that this program uses, §15.2.2 (Linux: ib_sa.h)."""

    SEND_ONLY_FULL_MEMBER = 1 << 12


@dataclass(frozen=True, slots=True)
class ClassPortInfo:
    """The SA's capabilities, §13.4.8.1, without the addresses of redirection and traps.

    An answer may take 4.096 µs times 2 to the power of `response_time`.
    """

    capability: int
    capability2: int
    response_time: int
    base_version: int = mad.BASE_VERSION
    class_version: int = CLASS_VERSION

    def pack(self) -> bytes:
        """72 bytes."""
        shared = self.capability2 << 5 | self.response_time
        return _CLASS_PORT_INFO.pack(self.base_version, self.class_version, self.capability, shared)

    @property
    def has_send_only_full_member(self) -> bool:
        return bool(self.capability2 & Capability2.SEND_ONLY_FULL_MEMBER)


def class_port_info_untrusted(data: bytes) -> ClassPortInfo:
    """Read the attribute from an answer's data."""
    if len(data) < _CLASS_PORT_INFO.size:
        raise BadFrame("sa_record_short")
    base, version, capability, shared = _CLASS_PORT_INFO.unpack_from(data)
    return ClassPortInfo(capability, shared >> 5, shared & 0x1F, base, version)
