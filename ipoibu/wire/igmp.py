# SPDX-License-Identifier: BSD-2-Clause
"""IGMP, versions 1 (RFC 1112), 2 (RFC 2236) and 3 (RFC 3376): who joins and leaves which group."""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from ipoibu.errors import BadFrame
from ipoibu.wire import Octets, ip
from ipoibu.wire.membership import FILTERS, Filter, Query, Record, Report

REASONS: Final = ip.REASONS | {
    "igmp_short",
    "igmp_fragment",
    "igmp_checksum",
    "igmp_record",
    "igmp_group",
}

ALL_V3_ROUTERS: Final = IPv4Address("224.0.0.22")  # RFC 3376 §4.2.14
ROUTER_ALERT: Final = bytes.fromhex("94040000")  # RFC 2113

_HEADER: Final = struct.Struct("!BBHHH")
_RECORD: Final = struct.Struct("!BBH4s")
_INTERNETWORK_CONTROL: Final = 0xC0  # RFC 3376 §4


class Kind(enum.IntEnum):
    """The message types that tell of membership."""

    QUERY = 0x11
    REPORT_V1 = 0x12
    REPORT_V2 = 0x16
    LEAVE = 0x17
    REPORT_V3 = 0x22


def parse_untrusted(packet: Octets) -> Report | Query | None:
    """Read a whole IPv4 packet; None if it is no IGMP, or an IGMP message about something else.

    A record of a type that nobody defined is skipped (RFC 3376 §4.2.12).
    """
    header = ip.parse_untrusted(packet)
    if isinstance(header, ip.Ipv6) or header.protocol != ip.IGMP:
        return None
    upper = header.upper_untrusted()
    if upper.is_fragment:
        raise BadFrame("igmp_fragment")
    data = upper.payload
    if len(data) < _HEADER.size:
        raise BadFrame("igmp_short")
    if ip.checksum(data):
        raise BadFrame("igmp_checksum")
    group = IPv4Address(data[4:8])
    match data[0]:
        case Kind.QUERY:
            return Query(None if group.is_unspecified else _group_untrusted(group))
        case Kind.REPORT_V1 | Kind.REPORT_V2:
            return Report((Record(_group_untrusted(group), Filter.IS_EXCLUDE),))
        case Kind.LEAVE:
            return Report((Record(_group_untrusted(group), Filter.TO_INCLUDE),))
        case Kind.REPORT_V3:
            return Report(tuple(_records_untrusted(data)))
        case _:
            return None


def _records_untrusted(data: bytes) -> list[Record]:
    records = []
    offset = _HEADER.size
    for _ in range(_HEADER.unpack_from(data)[4]):
        if len(data) < offset + _RECORD.size:
            raise BadFrame("igmp_record")
        kind, auxiliary_words, source_count, group = _RECORD.unpack_from(data, offset)
        start = offset + _RECORD.size
        stop = start + 4 * source_count
        offset = stop + 4 * auxiliary_words
        if len(data) < offset:
            raise BadFrame("igmp_record")
        address = _group_untrusted(IPv4Address(group))
        if kind in FILTERS:
            sources = tuple(IPv4Address(data[at : at + 4]) for at in range(start, stop, 4))
            records.append(Record(address, Filter(kind), sources))
    return records


def _group_untrusted(address: IPv4Address) -> IPv4Address:
    if not address.is_multicast:
        raise BadFrame("igmp_group")
    return address


def report(source: IPv4Address, records: Sequence[Record]) -> ip.Ipv4:
    """A version 3 report with its TTL of 1 and router alert; RFC 3376 §4.2. IPv4 records only."""
    body = b"".join(
        _RECORD.pack(record.filter, 0, len(record.sources), record.group.packed)
        + b"".join(address.packed for address in record.sources)
        for record in records
    )
    check = ip.checksum(_HEADER.pack(Kind.REPORT_V3, 0, 0, 0, len(records)) + body)
    return ip.Ipv4(
        source,
        ALL_V3_ROUTERS,
        ip.IGMP,
        _HEADER.pack(Kind.REPORT_V3, 0, check, 0, len(records)) + body,
        ttl=1,
        tos=_INTERNETWORK_CONTROL,
        options=ROUTER_ALERT,
    )
