# SPDX-License-Identifier: BSD-2-Clause
"""MLD of both versions as Linux sends it: M3, M4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv6Address
from typing import Final

import pytest

from ipoibu.base.errors import BadFrame
from ipoibu.wire import ip, mld
from ipoibu.wire.ip import Ipv6
from ipoibu.wire.membership import NOT_A_MEMBER, Filter, Query, Record, Report, after
from tests.doubles.membership_changes import Change, changes

HOST: Final = IPv6Address("fe80::1")
GROUP: Final = IPv6Address("ff05::1:2345")
SOURCE: Final = IPv6Address("2001:db8::7")


def sealed(message: str) -> bytes:
    """An IPv6 packet with router alert and this MLD message, its checksum filled in."""
    raw = bytes.fromhex(message)
    check = ip.transport_checksum(HOST, mld.ALL_V2_ROUTERS, ip.ICMPV6, raw)
    raw = raw[:2] + check.to_bytes(2, "big") + raw[4:]
    return Ipv6(HOST, mld.ALL_V2_ROUTERS, ip.HOP_BY_HOP, mld.ROUTER_ALERT + raw).pack()


def reason(packet: bytes) -> str:
    with pytest.raises(BadFrame) as caught:
        mld.parse_untrusted(packet)
    return caught.value.reason


@pytest.mark.parametrize(
    ("name", "join"),
    [
        ("mld.v1-join", True),
        ("mld.v1-leave", False),
        ("mld.v2-join", True),
        ("mld.v2-leave", False),
        ("mld.v2-source-join", True),
    ],
)
def test_linux_joins_and_leaves(golden: Callable[[str], bytes], name: str, join: bool) -> None:
    report = mld.parse_untrusted(golden(name))
    assert isinstance(report, Report)
    assert changes(report) == (Change(GROUP, join),)


def test_a_report_has_several_groups(golden: Callable[[str], bytes]) -> None:
    report = mld.parse_untrusted(golden("mld.v2-two-groups"))
    assert isinstance(report, Report)
    assert changes(report) == (
        Change(IPv6Address("ff05::2"), True),
        Change(IPv6Address("ff02::2"), True),
    )


def test_dropping_the_only_source_is_a_block_and_ends_the_membership(
    golden: Callable[[str], bytes],
) -> None:
    interest = NOT_A_MEMBER
    for name, expected in (
        ("mld.v2-source-join", frozenset({SOURCE})),
        ("mld.v2-source-leave", NOT_A_MEMBER),
    ):
        report = mld.parse_untrusted(golden(name))
        assert isinstance(report, Report)
        (record,) = report.records
        interest = after(interest, record)
        assert interest == expected


def test_every_record_type_is_read_and_an_undefined_one_skipped(
    golden: Callable[[str], bytes],
) -> None:
    """S1."""
    assert mld.parse_untrusted(golden("mld.v2-many")) == Report(
        tuple(
            Record(IPv6Address(f"ff05::{kind}"), Filter(kind), (IPv6Address(f"2001:db8::{kind}"),))
            for kind in range(1, 7)
        )
    )


def test_queries_are_recognised(golden: Callable[[str], bytes]) -> None:
    assert mld.parse_untrusted(golden("mld.query-general")) == Query(None)
    assert mld.parse_untrusted(golden("mld.query-group-v2")) == Query(GROUP)


def test_what_is_no_mld_says_nothing(golden: Callable[[str], bytes]) -> None:
    for name in ("ndisc.ns", "igmp.v2-join", "ip.v6-plain", "icmp.v6-unreachable"):
        assert mld.parse_untrusted(golden(name)) is None
    empty = Ipv6(HOST, GROUP, ip.ICMPV6, b"")
    assert mld.parse_untrusted(empty.pack()) is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("8300000000", "mld_short"),
        ("8f00000000", "mld_short"),
        ("8300000000000000ff0500000000000000000000000123", "mld_short"),
        ("8200000000000000", "mld_short"),
        ("8300000000000000" + "fe80" + "00" * 13 + "01", "membership_group"),
        ("8400000000000000" + "00" * 16, "membership_group"),
        ("8200000000000000" + "fe80" + "00" * 13 + "01", "membership_group"),
        ("8f00000000000001", "membership_record"),
        ("8f00000000000002" + "04000000ff05" + "00" * 13 + "01", "membership_record"),
        ("8f00000000000001" + "04000000fe80" + "00" * 13 + "01", "membership_group"),
    ],
)
def test_a_malformed_message_is_refused(message: str, expected: str) -> None:
    assert reason(sealed(message)) == expected


def test_a_wrong_checksum_is_refused(golden: Callable[[str], bytes]) -> None:
    assert reason(golden("mld.v1-join")[:-1] + b"\x44") == "mld_checksum"


def test_a_fragment_is_refused(golden: Callable[[str], bytes]) -> None:
    packet = ip.parse_untrusted(golden("mld.v1-join"))
    assert isinstance(packet, Ipv6)
    first = bytes.fromhex("3a00000100000001") + packet.upper_untrusted().payload
    fragment = replace(packet, next_header=ip.FRAGMENT, payload=first)
    assert reason(fragment.pack()) == "mld_fragment"


def test_a_cut_hop_by_hop_header_is_refused() -> None:
    packet = Ipv6(HOST, mld.ALL_V2_ROUTERS, ip.HOP_BY_HOP, mld.ROUTER_ALERT[:7])
    assert reason(packet.pack()) == "ip_extension"


def test_our_report_is_the_one_linux_sends(golden: Callable[[str], bytes]) -> None:
    for name, record in (
        ("mld.v2-join", Record(GROUP, Filter.TO_EXCLUDE)),
        ("mld.v2-source-join", Record(GROUP, Filter.ALLOW, (SOURCE,))),
    ):
        assert mld.report(HOST, [record]).pack() == golden(name)
