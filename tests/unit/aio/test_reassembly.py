# SPDX-License-Identifier: BSD-2-Clause
"""Fragments in any order become the packet again; contradictions end it."""

from __future__ import annotations

import random
from collections import Counter
from ipaddress import IPv4Address, IPv6Address

import pytest

from ipoibu.aio.reassembly import Reassembly
from ipoibu.base.limits import REASSEMBLY_S
from ipoibu.wire import fragment, ip
from ipoibu.wire.fragment import Fragment

PAYLOAD = bytes(number & 0xFF for number in range(4987))
FOUR = ip.Ipv4(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, PAYLOAD)
SIX = ip.Ipv6(IPv6Address("fd00::1"), IPv6Address("fd00::2"), 17, PAYLOAD)
BOTH = pytest.mark.parametrize("packet", [FOUR, SIX], ids=["IPv4", "IPv6"])


def parts_of(packet: ip.Packet, number: int = 7) -> list[Fragment]:
    raw = fragment.split(packet, 1300, number)
    assert all(len(it) <= 1300 for it in raw)
    found = [fragment.parse_untrusted(ip.parse_untrusted(it)) for it in raw]
    return [it for it in found if it is not None]


@BOTH
@pytest.mark.parametrize("seed", range(5))
def test_any_order_and_repetitions_give_the_packet(packet: ip.Packet, seed: int) -> None:
    parts = parts_of(packet)
    assert len(parts) == 4
    early, last = random.Random(seed).sample(parts, 4)[:3], None
    last = next(it for it in parts if it not in early)
    table = Reassembly(Counter())
    assert [table.add(0.0, it) for it in (*early, *early)] == [None] * 6
    joined = table.add(0.0, last)
    assert joined is not None
    assert (joined.source, joined.destination, joined.payload) == (
        packet.source,
        packet.destination,
        PAYLOAD,
    )
    assert (len(table), table.held_bytes) == (0, 0)


@BOTH
@pytest.mark.parametrize("shift", [-8, 8])
def test_an_overlap_ends_the_packet_with_all_that_follow(packet: ip.Packet, shift: int) -> None:
    parts = parts_of(packet)
    second = parts[1]
    overlapping = Fragment(
        second.source,
        second.destination,
        second.protocol,
        second.identification,
        second.offset_bytes + shift,
        True,
        second.payload,
    )
    counts: Counter[str] = Counter()
    table = Reassembly(counts)
    for each in (parts[0], parts[1], overlapping, *parts):
        assert table.add(0.0, each) is None
    assert counts["fragment_overlap"] == 1 + len(parts)
    assert table.held_bytes == 0
    table.expire(REASSEMBLY_S)
    assert len(table) == 0


def test_other_bytes_at_the_same_place_are_an_overlap() -> None:
    parts = parts_of(FOUR)
    first = parts[0]
    other = Fragment(first.source, first.destination, 17, 7, 0, True, bytes(len(first.payload)))
    counts: Counter[str] = Counter()
    table = Reassembly(counts)
    for each in (*parts[:3], other, parts[3]):
        assert table.add(0.0, each) is None
    assert counts["fragment_overlap"] == 2


def test_a_part_behind_the_last_is_a_contradiction() -> None:
    counts: Counter[str] = Counter()
    table = Reassembly(counts)
    parts = parts_of(FOUR)
    last = parts[3]
    behind = Fragment(last.source, last.destination, 17, 7, 6000, False, b"more")
    assert [table.add(0.0, it) for it in (parts[0], behind, last)] == [None] * 3
    assert counts["fragment_overlap"] == 1


def test_missing_fragments_are_forgotten_after_a_minute() -> None:
    counts: Counter[str] = Counter()
    table = Reassembly(counts)
    table.add(0.0, parts_of(FOUR)[0])
    table.expire(REASSEMBLY_S - 1)
    assert len(table) == 1
    table.expire(REASSEMBLY_S)
    assert (len(table), table.held_bytes, counts["fragment_timeout"]) == (0, 0, 1)


def test_an_atomic_fragment_stands_alone() -> None:
    """RFC 6946 §4."""
    table = Reassembly(Counter())
    part = Fragment(SIX.source, SIX.destination, 17, 7, 0, False, b"whole")
    joined = table.add(0.0, part)
    assert joined is not None
    assert joined.payload == b"whole"
