# SPDX-License-Identifier: BSD-2-Clause
"""IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810): queries and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ipoibu.conform.headers.ip import (
    ICMPV6,
    ICMPV6_TYPES,
    IPV4_PROTOCOLS,
    PROTOCOL_OF,
    complete_plain_checksum,
    complete_pseudo_checksum,
    is_plain_sum,
    is_pseudo_sum,
)
from ipoibu.conform.layout import Layout, address, code, number
from ipoibu.conform.packet import COMPLETE, NEXT, SUMS, Given, Layer

IGMP: Final = Layout(
    "igmp",
    code("type", 8, 0x11),
    number("max_response", 8),
    code("checksum", 16),
    address("group", 32),
)
IGMP3_QUERY: Final = Layout(
    "igmp3_query",  # behind `igmp`
    number("reserved", 4),
    number("suppress", 1),
    number("robustness", 3, 2),
    number("interval", 8, 125),
    number("sources", 16),
)
IGMP3_REPORT: Final = Layout(
    "igmp3_report",
    code("type", 8, 0x22),
    number("reserved", 8),
    code("checksum", 16),
    number("reserved2", 16),
    number("records", 16),
)
IGMP3_RECORD: Final = Layout(
    "igmp3_record",
    number("type", 8),
    number("aux_words", 8),
    number("sources", 16),
    address("group", 32),
)
MLD: Final = Layout(
    "mld",
    number("type", 8, 130),
    number("code", 8),
    code("checksum", 16),
    number("max_response_ms", 16),
    number("reserved", 16),
    address("group", 128),
)
MLD2_QUERY: Final = Layout(
    "mld2_query",  # behind `mld`
    number("reserved", 4),
    number("suppress", 1),
    number("robustness", 3, 2),
    number("interval", 8, 125),
    number("sources", 16),
)
MLD2_REPORT: Final = Layout(
    "mld2_report",
    number("type", 8, 143),
    number("code", 8),
    code("checksum", 16),
    number("reserved", 16),
    number("records", 16),
)
MLD2_RECORD: Final = Layout(
    "mld2_record",
    number("type", 8),
    number("aux_words", 8),
    number("sources", 16),
    address("group", 128),
)

IGMP_PROTOCOL: Final = 2
IGMP_TYPES: Final = {
    "query": 0x11,
    "report1": 0x12,
    "report2": 0x16,
    "leave": 0x17,
    "report3": 0x22,
}


def igmp(**values: Given) -> Layer:
    """An IGMP message of version 1 or 2, or the beginning of a query of version 3."""
    return Layer(IGMP, values)


def igmp3_query(**values: Given) -> Layer:
    return Layer(IGMP3_QUERY, values)


def igmp3_report(**values: Given) -> Layer:
    return Layer(IGMP3_REPORT, values)


def igmp3_record(**values: Given) -> Layer:
    return Layer(IGMP3_RECORD, values)


def mld(**values: Given) -> Layer:
    """An MLD query (130), report (131) or done (132), or the beginning of a query of version 2."""
    return Layer(MLD, values)


def mld2_query(**values: Given) -> Layer:
    return Layer(MLD2_QUERY, values)


def mld2_report(**values: Given) -> Layer:
    return Layer(MLD2_REPORT, values)


def mld2_record(**values: Given) -> Layer:
    return Layer(MLD2_RECORD, values)


def _next_of_igmp(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    is_query = layers[-1].values["type"] == IGMP_TYPES["query"]
    return (IGMP3_QUERY if is_query and len(rest) >= IGMP3_QUERY.size else None), rest


def _next_of_mld(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    is_query = layers[-1].values["type"] == 130
    return (MLD2_QUERY if is_query and len(rest) >= MLD2_QUERY.size else None), rest


def _next_record(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    last = layers[-1]
    report = next(it for it in reversed(layers) if it.layout in (IGMP3_REPORT, MLD2_REPORT))
    record = IGMP3_RECORD if report.layout is IGMP3_REPORT else MLD2_RECORD
    if last.layout is record:
        sources, words = last.values["sources"], last.values["aux_words"]
        assert isinstance(sources, int)
        assert isinstance(words, int)
        rest = rest[(4 if record is IGMP3_RECORD else 16) * sources + 4 * words :]
    seen = sum(it.layout is record for it in layers)
    count = report.values["records"]
    assert isinstance(count, int)
    return (record if seen < count else None), rest


for _layout in (IGMP, IGMP3_REPORT):
    PROTOCOL_OF[_layout] = IGMP_PROTOCOL
    COMPLETE[_layout] = complete_plain_checksum(_layout)
    SUMS[_layout] = is_plain_sum
for _layout in (MLD, MLD2_REPORT):
    PROTOCOL_OF[_layout] = ICMPV6
    COMPLETE[_layout] = complete_pseudo_checksum(_layout)
    SUMS[_layout] = is_pseudo_sum(ICMPV6)
for _type in (130, 131, 132):
    ICMPV6_TYPES[_type] = MLD
ICMPV6_TYPES[143] = MLD2_REPORT
IPV4_PROTOCOLS[IGMP_PROTOCOL] = lambda rest: IGMP3_REPORT if rest[:1] == b"\x22" else IGMP
NEXT[IGMP] = _next_of_igmp
NEXT[MLD] = _next_of_mld
for _layout in (IGMP3_REPORT, IGMP3_RECORD, MLD2_REPORT, MLD2_RECORD):
    NEXT[_layout] = _next_record
