# SPDX-License-Identifier: BSD-2-Clause
"""IGMP, versions 1 (RFC 1112), 2 (RFC 2236) and 3 (RFC 3376): the groups that a host joins and leaves."""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, ip, membership
from ipoibu.wire.membership import Filter, Query, Record, Report

REASONS: Final = ip.REASONS | membership.REASONS | {"igmp_short", "igmp_fragment", "igmp_checksum"}

ALL_V3_ROUTERS: Final = IPv4Address("224.0.0.22")  # RFC 3376 §4.2.14
ALL_HOSTS: Final = IPv4Address("224.0.0.1")
ROUTER_ALERT: Final = bytes.fromhex("94040000")  # RFC 2113

_HEADER: Final = struct.Struct("!BBHHH")
_QUERY: Final = struct.Struct("!BBH4sBBH")
_ROBUSTNESS: Final = 2  # RFC 3376 §8.1


class Kind(enum.IntEnum):
    """The message types about membership."""

    QUERY = 0x11
    REPORT_V1 = 0x12
    REPORT_V2 = 0x16
    LEAVE = 0x17
    REPORT_V3 = 0x22


def parse_untrusted(packet: Octets) -> Report | Query | None:
    """Read a whole IPv4 packet; None if it is no IGMP message about membership."""
    header = ip.parse_untrusted(packet)
    if isinstance(header, ip.Ipv6) or header.protocol != ip.IGMP:
        return None
    upper = header.upper_untrusted()
    data = upper.payload
    if upper.is_fragment:
        raise BadFrame("igmp_fragment")
    if len(data) < _HEADER.size:
        raise BadFrame("igmp_short")
    if ip.checksum(data):
        raise BadFrame("igmp_checksum")
    group = data[4:8]
    match data[0]:
        case Kind.QUERY:
            return Query(membership.group_untrusted(group) if any(group) else None)
        case Kind.REPORT_V1 | Kind.REPORT_V2:
            return Report((Record(membership.group_untrusted(group), Filter.IS_EXCLUDE),))
        case Kind.LEAVE:
            return Report((Record(membership.group_untrusted(group), Filter.TO_INCLUDE),))
        case Kind.REPORT_V3:
            count = _HEADER.unpack_from(data)[4]
            return Report(membership.records_untrusted(data[_HEADER.size :], count, 4))
        case _:
            return None


def report(source: IPv4Address, records: Sequence[Record]) -> ip.Ipv4:
    """A version 3 report with its TTL of 1 and router alert; RFC 3376 §4.2."""
    body = membership.pack_records(records, 4)
    check = ip.checksum(_HEADER.pack(Kind.REPORT_V3, 0, 0, 0, len(records)) + body)
    return ip.Ipv4(
        source,
        ALL_V3_ROUTERS,
        ip.IGMP,
        _HEADER.pack(Kind.REPORT_V3, 0, check, 0, len(records)) + body,
        ttl=1,
        tos=ip.INTERNETWORK_CONTROL,  # RFC 3376 §4
        options=ROUTER_ALERT,
    )


def query(group: IPv4Address | None, response_s: float, interval_s: float) -> ip.Ipv4:
    """A version 3 query for the members of `group`, or of any group (RFC 3376 §4.1).

    `response_s` is at most 12.7 s, and `interval_s` 127 s.

    It comes from 0.0.0.0, so that no router takes us for the querier (RFC 4541 §2.1.1).
    """
    named = bytes(4) if group is None else group.packed
    fields = [Kind.QUERY, round(response_s * 10), 0, named, _ROBUSTNESS, round(interval_s), 0]
    fields[2] = ip.checksum(_QUERY.pack(*fields))
    return ip.Ipv4(
        IPv4Address(0),
        ALL_HOSTS if group is None else group,
        ip.IGMP,
        _QUERY.pack(*fields),
        ttl=1,
        tos=ip.INTERNETWORK_CONTROL,
        options=ROUTER_ALERT,
    )
