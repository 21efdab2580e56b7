# SPDX-License-Identifier: BSD-2-Clause
"""IGMP and MLD reports, in one form for all versions (M3, M4, S1-S3).

A report is a list of records: a group, a filter, a list of sources. The older versions have only
"every source" and "no source". A record alone does not say whether its sender stays a member: a
host that drops the last source of a source-specific group only blocks that source. So the reader
keeps an `Interest` per group, and applies each record to it with `after`.

On the wire a record of IGMPv3 and one of MLDv2 differ only in the length of an address:

    | type 1 | auxiliary words 1 | sources 2 | group | source ... | auxiliary data |
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import BadFrame

REASONS: Final = frozenset({"membership_record", "membership_group"})


class Filter(enum.IntEnum):
    """Record types: RFC 3376 §4.2.12, RFC 3810 §5.2.12."""

    IS_INCLUDE = 1
    IS_EXCLUDE = 2
    TO_INCLUDE = 3
    TO_EXCLUDE = 4
    ALLOW = 5
    BLOCK = 6


_FILTERS: Final = frozenset(Filter)
_FIXED: Final = struct.Struct("!BBH")


@dataclass(frozen=True, slots=True)
class Record:
    """A change of the sender's interest in `group`."""

    group: IpAddress
    filter: Filter
    sources: tuple[IpAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Records in the order of the packet."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A router asks for the members of `group`, or of any group (None)."""

    group: IpAddress | None


Interest = frozenset[IpAddress] | None
"""The sources that a host wants of one group; None is every source, the empty set is no membership."""

NOT_A_MEMBER: Final[Interest] = frozenset()


def after(before: Interest, record: Record) -> Interest:
    """Return the interest in `record.group` after the record; RFC 3376 §4.2.12.

    The function does not keep excluded sources, because on this medium a group's packets go to all
    its members.
    """
    sources = frozenset(record.sources)
    match record.filter:
        case Filter.IS_EXCLUDE | Filter.TO_EXCLUDE:
            return None
        case Filter.IS_INCLUDE | Filter.TO_INCLUDE:
            return sources
        case Filter.ALLOW:
            return None if before is None else before | sources
        case Filter.BLOCK:
            return None if before is None else before - sources


def group_untrusted(raw: bytes) -> IpAddress:
    """Read 4 or 16 bytes that must be a multicast address."""
    group = _address(raw)
    if not group.is_multicast:
        raise BadFrame("membership_group")
    return group


def records_untrusted(area: bytes, count: int, address_bytes: int) -> tuple[Record, ...]:
    """Read `count` records with addresses of 4 or 16 bytes.

    The function skips records of undefined types, and auxiliary data (RFC 3376 §4.2.11-12).
    """
    records = []
    at = 0
    for _ in range(count):
        sources_at = at + _FIXED.size + address_bytes
        if len(area) < sources_at:
            raise BadFrame("membership_record")
        kind, auxiliary_words, source_count = _FIXED.unpack_from(area, at)
        group = group_untrusted(area[at + _FIXED.size : sources_at])
        stop = sources_at + source_count * address_bytes
        at = stop + 4 * auxiliary_words
        if len(area) < at:
            raise BadFrame("membership_record")
        if kind in _FILTERS:
            starts = range(sources_at, stop, address_bytes)
            sources = tuple(_address(area[start : start + address_bytes]) for start in starts)
            records.append(Record(group, Filter(kind), sources))
    return tuple(records)


def pack_records(records: Sequence[Record], version: int) -> bytes:
    """The inverse of `records_untrusted`; `ValueError` for an address not of IP `version`."""
    parts = []
    for record in records:
        parts.append(_FIXED.pack(record.filter, 0, len(record.sources)))
        for address in (record.group, *record.sources):
            if address.version != version:
                raise ValueError(f"{address} is not an IPv{version} address")
            parts.append(address.packed)
    return b"".join(parts)


def _address(raw: bytes) -> IpAddress:
    return IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw)
