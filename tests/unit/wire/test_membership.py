# SPDX-License-Identifier: BSD-2-Clause
"""Reports as joins and leaves, and the interest in a group over a series of records (M3, M4)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Final

import pytest

from ipoibu.base.errors import BadFrame
from ipoibu.wire import membership
from ipoibu.wire.membership import NOT_A_MEMBER, Filter, Interest, Record, Report, after
from tests.doubles.membership_changes import Change, changes

GROUP: Final = IPv4Address("239.1.2.3")
ONE: Final = IPv4Address("192.0.2.1")
TWO: Final = IPv4Address("192.0.2.2")


@pytest.mark.parametrize(
    ("filter_", "sources", "join"),
    [
        (Filter.IS_INCLUDE, (), False),
        (Filter.IS_INCLUDE, (ONE,), True),
        (Filter.IS_EXCLUDE, (), True),
        (Filter.IS_EXCLUDE, (ONE,), True),
        (Filter.TO_INCLUDE, (), False),
        (Filter.TO_INCLUDE, (ONE,), True),
        (Filter.TO_EXCLUDE, (), True),
        (Filter.TO_EXCLUDE, (ONE,), True),
        (Filter.ALLOW, (), None),
        (Filter.ALLOW, (ONE,), True),
        (Filter.BLOCK, (), None),
        (Filter.BLOCK, (ONE,), None),
    ],
)
def test_a_record_reads_as_a_join_a_leave_or_neither(
    filter_: Filter, sources: tuple[IPv4Address, ...], join: bool | None
) -> None:
    report = Report((Record(GROUP, filter_, sources),))
    assert changes(report) == (() if join is None else (Change(GROUP, join),))


def test_changes_keep_the_order_of_the_records() -> None:
    report = Report((Record(GROUP, Filter.TO_INCLUDE), Record(GROUP, Filter.TO_EXCLUDE)))
    assert changes(report) == (Change(GROUP, False), Change(GROUP, True))


EVERY: Final = None
NONE: Final = NOT_A_MEMBER


# RFC 3376 §4.2.12, for each record type from each kind of interest; excluded sources are not kept
@pytest.mark.parametrize(
    ("before", "filter_", "sources", "expected"),
    [
        (NONE, Filter.IS_INCLUDE, (ONE,), {ONE}),
        (NONE, Filter.IS_EXCLUDE, (ONE,), EVERY),
        (NONE, Filter.TO_INCLUDE, (), NONE),
        (NONE, Filter.TO_EXCLUDE, (), EVERY),
        (NONE, Filter.ALLOW, (ONE, TWO), {ONE, TWO}),
        (NONE, Filter.BLOCK, (ONE,), NONE),
        ({ONE}, Filter.IS_INCLUDE, (TWO,), {TWO}),
        ({ONE}, Filter.IS_EXCLUDE, (), EVERY),
        ({ONE}, Filter.TO_INCLUDE, (), NONE),
        ({ONE}, Filter.TO_EXCLUDE, (ONE,), EVERY),
        ({ONE}, Filter.ALLOW, (TWO,), {ONE, TWO}),
        ({ONE, TWO}, Filter.BLOCK, (TWO,), {ONE}),
        ({ONE}, Filter.BLOCK, (ONE,), NONE),
        (EVERY, Filter.IS_INCLUDE, (ONE,), {ONE}),
        (EVERY, Filter.IS_EXCLUDE, (ONE,), EVERY),
        (EVERY, Filter.TO_INCLUDE, (), NONE),
        (EVERY, Filter.TO_EXCLUDE, (), EVERY),
        (EVERY, Filter.ALLOW, (ONE,), EVERY),
        (EVERY, Filter.BLOCK, (ONE,), EVERY),
    ],
)
def test_m4_the_interest_follows_the_records(
    before: Interest,
    filter_: Filter,
    sources: tuple[IPv4Address, ...],
    expected: set[IPv4Address] | None,
) -> None:
    """M4, S2."""
    start = None if before is None else frozenset(before)
    result = after(start, Record(GROUP, filter_, sources))
    assert result == expected


def test_a_group_must_be_multicast() -> None:
    assert membership.group_untrusted(GROUP.packed) == GROUP
    for raw in (ONE.packed, bytes(4), bytes(16), IPv6Address("fe80::1").packed):
        with pytest.raises(BadFrame) as caught:
            membership.group_untrusted(raw)
        assert caught.value.reason == "membership_group"


@pytest.mark.parametrize(
    ("area", "count"),
    [
        ("", 1),
        ("04000000ef0102", 1),
        ("04000000ef010203", 2),
        ("04000001ef010203", 1),  # a source that is not there
        ("04010000ef010203", 1),  # auxiliary data that is not there
        ("0400ffffef010203", 1),
        ("04000000ef010203", 0xFFFF),
    ],
)
def test_a_record_that_is_cut_off_is_refused(area: str, count: int) -> None:
    with pytest.raises(BadFrame) as caught:
        membership.records_untrusted(bytes.fromhex(area), count, 4)
    assert caught.value.reason == "membership_record"


def test_a_record_is_the_same_for_both_versions_but_for_the_addresses() -> None:
    four = (Record(GROUP, Filter.ALLOW, (ONE, TWO)), Record(GROUP, Filter.TO_EXCLUDE))
    raw = membership.pack_records(four, 4)
    assert raw.hex() == "05000002ef010203c0000201c0000202" + "04000000ef010203"
    assert membership.records_untrusted(raw, 2, 4) == four
    six = (Record(IPv6Address("ff05::1"), Filter.BLOCK, (IPv6Address("2001:db8::7"),)),)
    raw = membership.pack_records(six, 6)
    assert raw.hex() == "06000001" + "ff05" + "00" * 13 + "01" + "20010db8" + "00" * 11 + "07"
    assert membership.records_untrusted(raw, 1, 16) == six


def test_an_address_of_the_other_version_is_not_packed() -> None:
    with pytest.raises(ValueError, match="is not an IPv6 address"):
        membership.pack_records([Record(GROUP, Filter.TO_EXCLUDE)], 6)
    with pytest.raises(ValueError, match="is not an IPv4 address"):
        membership.pack_records([Record(GROUP, Filter.ALLOW, (IPv6Address("::1"),))], 4)
