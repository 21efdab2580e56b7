# SPDX-License-Identifier: BSD-2-Clause
"""Multicast listener discovery, version 1 (RFC 2710) and 2 (RFC 3810): IGMP for IPv6."""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, ip, membership
from ipoibu.wire.membership import Filter, Query, Record, Report

REASONS: Final = ip.REASONS | membership.REASONS | {"mld_short", "mld_fragment", "mld_checksum"}

ALL_V2_ROUTERS: Final = IPv6Address("ff02::16")  # RFC 3810 §5.2.14
ALL_NODES: Final = IPv6Address("ff02::1")
ROUTER_ALERT: Final = bytes((ip.ICMPV6, 0, 5, 2, 0, 0, 1, 0))  # hop-by-hop header, RFC 2711 §2.1

_HEADER: Final = struct.Struct("!BBHHH")
_QUERY: Final = struct.Struct("!BBHHH16sBBH")
_ROBUSTNESS: Final = 2  # RFC 3810 §9.1
_V1_BYTES: Final = 24


class Kind(enum.IntEnum):
    """The ICMPv6 types of MLD."""

    QUERY = 130
    REPORT_V1 = 131
    DONE = 132
    REPORT_V2 = 143


_KINDS: Final = frozenset(Kind)


def parse_untrusted(packet: Octets) -> Report | Query | None:
    """Read a whole IPv6 packet with its extension headers; None if it is no MLD."""
    header = ip.parse_untrusted(packet)
    if isinstance(header, ip.Ipv4):
        return None
    upper = header.upper_untrusted()
    data = upper.payload
    if upper.protocol != ip.ICMPV6 or not data or data[0] not in _KINDS:
        return None
    if upper.is_fragment:
        raise BadFrame("mld_fragment")
    if len(data) < _HEADER.size:
        raise BadFrame("mld_short")
    if ip.transport_checksum(header.source, header.destination, ip.ICMPV6, data):
        raise BadFrame("mld_checksum")
    if data[0] == Kind.REPORT_V2:
        count = _HEADER.unpack_from(data)[4]
        return Report(membership.records_untrusted(data[_HEADER.size :], count, 16))
    if len(data) < _V1_BYTES:
        raise BadFrame("mld_short")
    group = data[8:24]
    if data[0] == Kind.QUERY:
        return Query(membership.group_untrusted(group) if any(group) else None)
    wanted = Filter.IS_EXCLUDE if data[0] == Kind.REPORT_V1 else Filter.TO_INCLUDE
    return Report((Record(membership.group_untrusted(group), wanted),))


def report(source: IPv6Address, records: Sequence[Record]) -> ip.Ipv6:
    """A version 2 report with hop limit 1 and router alert; RFC 3810 §5.2."""
    body = membership.pack_records(records, 6)
    unsealed = _HEADER.pack(Kind.REPORT_V2, 0, 0, 0, len(records)) + body
    check = ip.transport_checksum(source, ALL_V2_ROUTERS, ip.ICMPV6, unsealed)
    message = _HEADER.pack(Kind.REPORT_V2, 0, check, 0, len(records)) + body
    return ip.Ipv6(source, ALL_V2_ROUTERS, ip.HOP_BY_HOP, ROUTER_ALERT + message, hop_limit=1)


def query(
    source: IPv6Address, group: IPv6Address | None, response_s: float, interval_s: float
) -> ip.Ipv6:
    """A version 2 query for the listeners of `group`, or of any group (RFC 3810 §5.1).

    `source` is a link-local address, `response_s` at most 32 s, and `interval_s` 127 s.
    """
    destination = ALL_NODES if group is None else group
    named = bytes(16) if group is None else group.packed
    delay_ms, interval = round(response_s * 1000), round(interval_s)
    fields = [Kind.QUERY, 0, 0, delay_ms, 0, named, _ROBUSTNESS, interval, 0]
    fields[2] = ip.transport_checksum(source, destination, ip.ICMPV6, _QUERY.pack(*fields))
    message = ROUTER_ALERT + _QUERY.pack(*fields)
    return ip.Ipv6(source, destination, ip.HOP_BY_HOP, message, hop_limit=1)
