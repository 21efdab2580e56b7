# SPDX-License-Identifier: BSD-2-Clause
"""IGMP of all versions as Linux sends it: M3, M4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Final

import pytest

from ipoibu.base.errors import BadFrame
from ipoibu.wire import igmp, ip
from ipoibu.wire.ip import Ipv4
from ipoibu.wire.membership import NOT_A_MEMBER, Filter, Query, Record, Report, after
from tests.doubles.membership_changes import Change, changes

HOST: Final = IPv4Address("10.0.0.1")
GROUP: Final = IPv4Address("239.1.2.3")
SOURCE: Final = IPv4Address("192.0.2.7")


def sealed(message: str) -> bytes:
    """An IPv4 packet with this IGMP message, its checksum filled in."""
    raw = bytes.fromhex(message)
    raw = raw[:2] + ip.checksum(raw).to_bytes(2, "big") + raw[4:]
    return Ipv4(HOST, igmp.ALL_V3_ROUTERS, ip.IGMP, raw).pack()


def reason(packet: bytes) -> str:
    with pytest.raises(BadFrame) as caught:
        igmp.parse_untrusted(packet)
    return caught.value.reason


@pytest.mark.parametrize(
    ("name", "join"),
    [
        ("igmp.v1-join", True),
        ("igmp.v2-join", True),
        ("igmp.v2-leave", False),
        ("igmp.v3-join", True),
        ("igmp.v3-leave", False),
        ("igmp.v3-source-join", True),
    ],
)
def test_linux_joins_and_leaves(golden: Callable[[str], bytes], name: str, join: bool) -> None:
    report = igmp.parse_untrusted(golden(name))
    assert isinstance(report, Report)
    assert changes(report) == (Change(GROUP, join),)


def test_dropping_the_only_source_is_a_block_and_ends_the_membership(
    golden: Callable[[str], bytes],
) -> None:
    interest = NOT_A_MEMBER
    for name, expected in (
        ("igmp.v3-source-join", frozenset({SOURCE})),
        ("igmp.v3-source-leave", NOT_A_MEMBER),
    ):
        report = igmp.parse_untrusted(golden(name))
        assert isinstance(report, Report)
        (record,) = report.records
        interest = after(interest, record)
        assert interest == expected


def test_every_record_type_is_read_and_an_undefined_one_skipped(
    golden: Callable[[str], bytes],
) -> None:
    """S1."""
    assert igmp.parse_untrusted(golden("igmp.v3-many")) == Report(
        tuple(
            Record(IPv4Address(f"239.0.0.{kind}"), Filter(kind), (IPv4Address(f"192.0.2.{kind}"),))
            for kind in range(1, 7)
        )
    )


def test_queries_are_recognised(golden: Callable[[str], bytes]) -> None:
    assert igmp.parse_untrusted(golden("igmp.query-general")) == Query(None)
    assert igmp.parse_untrusted(golden("igmp.query-group-v3")) == Query(GROUP)


def test_what_is_no_igmp_says_nothing(golden: Callable[[str], bytes]) -> None:
    for name in ("igmp.dvmrp", "ip.v6-hop-by-hop", "icmp.v4-unreachable"):
        assert igmp.parse_untrusted(golden(name)) is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("1600", "igmp_short"),
        ("16000000ef0102", "igmp_short"),
        ("160000000a000001", "membership_group"),
        ("17000000e0", "igmp_short"),
        ("1700000000000000", "membership_group"),
        ("110000000a000001", "membership_group"),
        ("2200000000000001", "membership_record"),
        ("220000000000000104000000ef0102", "membership_record"),
        ("2200000000000001040000000a000001", "membership_group"),
    ],
)
def test_a_malformed_message_is_refused(message: str, expected: str) -> None:
    assert reason(sealed(message)) == expected


def test_a_wrong_checksum_is_refused(golden: Callable[[str], bytes]) -> None:
    assert reason(golden("igmp.v2-join")[:-1] + b"\x04") == "igmp_checksum"


def test_a_fragment_is_refused(golden: Callable[[str], bytes]) -> None:
    packet = ip.parse_untrusted(golden("igmp.v2-join"))
    assert isinstance(packet, Ipv4)
    assert reason(replace(packet, more_fragments=True).pack()) == "igmp_fragment"
    assert reason(replace(packet, fragment_offset_bytes=8).pack()) == "igmp_fragment"


def test_our_report_is_the_one_linux_sends(golden: Callable[[str], bytes]) -> None:
    for name, record in (
        ("igmp.v3-join", Record(GROUP, Filter.TO_EXCLUDE)),
        ("igmp.v3-source-join", Record(GROUP, Filter.ALLOW, (SOURCE,))),
    ):
        ours = igmp.report(HOST, [record])
        assert replace(ours, dont_fragment=True).pack() == golden(name)
