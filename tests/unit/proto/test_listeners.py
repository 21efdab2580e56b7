# SPDX-License-Identifier: BSD-2-Clause
"""The local stack's list of groups, and its IGMP and MLD reports, become joins and leaves."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import GROUPS_MAX, MEMBERSHIP_SOURCES_MAX
from ipoibu.wire import igmp, ip, mld
from ipoibu.wire.membership import Filter, Record
from ipoibu.wire.mgid import of_group
from tests.doubles.engine_bench import OUR_V4, OUR_V6, Bench
from tests.doubles.simulation import TEMPLATE

TV = IPv4Address("239.1.2.3")
TV6 = IPv6Address("ff15::77")
IGMP_QUERY, IGMP_V1_REPORT, IGMP_V2_REPORT, IGMP_LEAVE = 0x11, 0x12, 0x16, 0x17  # RFC 3376 §4
MLD_V1_REPORT, MLD_DONE = 131, 132  # RFC 2710 §3.1
S1, S2, S3 = (IPv4Address(f"10.9.9.{i}") for i in (1, 2, 3))


def report(bench: Bench, *records: Record) -> None:
    if records[0].group.version == 4:
        bench.host.report(igmp.report(OUR_V4, records).pack())
    else:
        bench.host.report(mld.report(OUR_V6, records).pack())
    bench.run(2)


def old(bench: Bench, kind: int, group: IpAddress) -> None:
    """An IGMPv1/v2 or MLDv1 message about one group."""
    if group.version == 4:
        body = bytes((kind, 0, 0, 0)) + group.packed
        check = ip.checksum(body).to_bytes(2, "big")
        data = body[:2] + check + body[4:]
        bench.host.report(ip.Ipv4(OUR_V4, IPv4Address(int(group)), ip.IGMP, data, ttl=1).pack())
    else:
        body = bytes((kind, 0, 0, 0, 0, 0, 0, 0)) + group.packed
        target = IPv6Address(int(group))
        check = ip.transport_checksum(OUR_V6, target, ip.ICMPV6, body).to_bytes(2, "big")
        data = mld.ROUTER_ALERT + body[:2] + check + body[4:]
        bench.host.report(ip.Ipv6(OUR_V6, target, ip.HOP_BY_HOP, data, hop_limit=1).pack())
    bench.run(2)


def is_joined(bench: Bench, group: IpAddress) -> bool:
    return of_group(group, TEMPLATE.params.pkey) in bench.host.groups


@pytest.mark.parametrize("group", [TV, TV6])
@pytest.mark.parametrize("join", [Filter.IS_EXCLUDE, Filter.TO_EXCLUDE])
@pytest.mark.parametrize("leave", [Filter.IS_INCLUDE, Filter.TO_INCLUDE])
def test_exclude_joins_and_include_nothing_leaves(
    group: IpAddress, join: Filter, leave: Filter
) -> None:
    bench = Bench()
    report(bench, Record(group, join))
    assert is_joined(bench, group)
    report(bench, Record(group, leave))
    assert not is_joined(bench, group)


def test_a_report_is_passed_on_to_the_group_it_is_for() -> None:
    bench = Bench("10.0.0.1/24")
    bench.host.report(igmp.report(OUR_V4, [Record(TV, Filter.TO_EXCLUDE)]).pack())
    assert bench.host.counts == {}
    destination, frame = bench.sent[-1]
    assert destination.gid == of_group(igmp.ALL_V3_ROUTERS, TEMPLATE.params.pkey)
    assert frame[4:] == igmp.report(OUR_V4, [Record(TV, Filter.TO_EXCLUDE)]).pack()


@pytest.mark.parametrize(
    ("join", "leave", "group"),
    [
        (IGMP_V2_REPORT, IGMP_LEAVE, TV),
        (IGMP_V1_REPORT, IGMP_LEAVE, TV),
        (MLD_V1_REPORT, MLD_DONE, TV6),
    ],
)
def test_the_older_versions_join_and_leave(join: int, leave: int, group: IpAddress) -> None:
    """S3."""
    bench = Bench()
    old(bench, join, group)
    assert is_joined(bench, group)
    old(bench, leave, group)
    assert not is_joined(bench, group)


def test_repeated_reports_make_one_user_and_one_leave_ends_it() -> None:
    bench = Bench()
    for _ in range(5):
        report(bench, Record(TV, Filter.IS_EXCLUDE))
    report(bench, Record(TV, Filter.TO_INCLUDE))
    assert not is_joined(bench, TV)
    assert bench.host.counts == {}


def test_a_source_specific_group_is_left_with_its_last_source() -> None:
    """S2: RFC 3376 §5.1: the report for the change from {S1, S2} to {} is a BLOCK alone."""
    bench = Bench()
    report(bench, Record(TV, Filter.ALLOW, (S1,)))
    report(bench, Record(TV, Filter.ALLOW, (S2,)))
    report(bench, Record(TV, Filter.BLOCK, (S1, S3)))
    assert is_joined(bench, TV)
    report(bench, Record(TV, Filter.BLOCK, (S2,)))
    assert not is_joined(bench, TV)


def test_blocking_sources_of_a_group_that_wants_all_others_leaves_nothing() -> None:
    bench = Bench()
    report(bench, Record(TV, Filter.TO_EXCLUDE, (S1,)))
    report(bench, Record(TV, Filter.BLOCK, (S2, S3)))
    assert is_joined(bench, TV)


def test_several_records_of_one_report_are_applied_in_order() -> None:
    bench = Bench()
    other = IPv4Address("239.9.9.9")
    report(
        bench,
        Record(TV, Filter.TO_EXCLUDE),
        Record(other, Filter.TO_EXCLUDE),
        Record(TV, Filter.TO_INCLUDE),
    )
    assert (is_joined(bench, TV), is_joined(bench, other)) == (False, True)


def test_more_sources_than_are_remembered_count_as_every_source() -> None:
    bench = Bench()
    many = tuple(IPv4Address("10.9.0.0") + i for i in range(MEMBERSHIP_SOURCES_MAX + 1))
    report(bench, Record(TV, Filter.TO_INCLUDE, many[:200]))
    report(bench, Record(TV, Filter.ALLOW, many[200:]))
    report(bench, Record(TV, Filter.BLOCK, many))
    assert is_joined(bench, TV)
    report(bench, Record(TV, Filter.TO_INCLUDE))
    assert not is_joined(bench, TV)


def test_the_kernel_s_leave_does_not_take_the_application_s_membership() -> None:
    bench = Bench()
    bench.host.join(str(TV))
    report(bench, Record(TV, Filter.TO_EXCLUDE))
    report(bench, Record(TV, Filter.TO_INCLUDE))
    report(bench, Record(TV, Filter.TO_INCLUDE))
    assert is_joined(bench, TV)
    bench.host.leave(str(TV))
    bench.run(2)
    assert not is_joined(bench, TV)


def test_a_group_refused_for_lack_of_room_is_not_left_later() -> None:
    bench = Bench("10.0.0.1/24")
    first = IPv4Address("239.0.0.0")
    for i in range(4096):
        bench.host.join(str(first + i))
    bench.host.report(
        igmp.report(OUR_V4, [Record(IPv4Address("239.77.0.1"), Filter.TO_EXCLUDE)]).pack()
    )
    assert bench.host.counts["group_table_full"] > 0
    bench.host.report(
        igmp.report(OUR_V4, [Record(IPv4Address("239.77.0.1"), Filter.TO_INCLUDE)]).pack()
    )
    assert bench.host.counts["group_not_joined"] == 0


def test_a_query_of_our_own_router_is_only_passed_on() -> None:
    bench = Bench()
    before = set(bench.host.groups)
    body = bytes((IGMP_QUERY, 10, 0, 0)) + bytes(4)
    data = body[:2] + ip.checksum(body).to_bytes(2, "big") + body[4:]
    bench.host.report(ip.Ipv4(OUR_V4, IPv4Address("224.0.0.1"), ip.IGMP, data, ttl=1).pack())
    assert len(bench.sent) == 1
    assert bench.host.groups == before


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"", "ip_short"),
        (igmp.report(OUR_V4, [Record(TV, Filter.TO_EXCLUDE)]).pack()[:-1], "ip_length"),
        (ip.Ipv4(OUR_V4, TV, ip.IGMP, b"\x22").pack(), "igmp_short"),
        (ip.Ipv4(OUR_V4, TV, ip.IGMP, bytes(8)).pack(), "igmp_checksum"),
    ],
)
def test_a_broken_report_is_counted_and_dropped(packet: bytes, reason: str) -> None:
    bench = Bench()
    bench.host.report(packet)
    assert bench.host.counts == {reason: 1}
    assert bench.sent == []


def test_reports_before_the_link_is_up_are_followed_when_it_comes_up() -> None:
    bench = Bench("10.0.0.1/24", ready=False)
    bench.host.report(igmp.report(OUR_V4, [Record(TV, Filter.TO_EXCLUDE)]).pack())
    assert bench.host.counts == {"link_down": 1}
    bench.run(1)
    assert is_joined(bench, TV)


def test_an_ipv6_group_is_counted_apart_from_ipv4_ones() -> None:
    bench = Bench()
    report(bench, Record(ip_address("ff02::fb"), Filter.TO_EXCLUDE))
    assert not is_joined(bench, ip_address("224.0.0.251"))
    assert is_joined(bench, ip_address("ff02::fb"))


def listed(bench: Bench, *groups: str) -> None:
    now = bench.now
    bench.host.carry_out(bench.host.engine.memberships_changed(now, map(ip_address, groups)))
    bench.run(2)


@pytest.mark.parametrize("group", [IPv4Address("224.0.0.18"), TV, TV6])
def test_the_kernel_s_list_joins_and_leaves_without_reports(group: IpAddress) -> None:
    """M3, M4."""
    bench = Bench()
    listed(bench, str(group))
    assert is_joined(bench, group)
    listed(bench, str(group))
    listed(bench)
    assert not is_joined(bench, group)
    assert bench.host.counts == {}


def test_a_group_that_the_list_and_reports_name_has_one_user() -> None:
    bench = Bench()
    report(bench, Record(TV, Filter.TO_EXCLUDE))
    listed(bench, str(TV))
    report(bench, Record(TV, Filter.IS_EXCLUDE))
    users = [info.users for info in bench.host.engine.groups(bench.now) if TV in info.ips]
    assert users == [1]


def test_a_lost_report_of_leaving_does_not_keep_the_group() -> None:
    bench = Bench()
    report(bench, Record(TV, Filter.TO_EXCLUDE))
    listed(bench, str(TV))
    listed(bench)
    assert not is_joined(bench, TV)


def test_a_report_of_leaving_does_not_take_a_group_from_the_list() -> None:
    """The list is the newer of the two, or the next one comes at once."""
    bench = Bench()
    listed(bench, str(TV))
    report(bench, Record(TV, Filter.TO_EXCLUDE))
    report(bench, Record(TV, Filter.TO_INCLUDE))
    assert is_joined(bench, TV)
    listed(bench)
    assert not is_joined(bench, TV)
    assert bench.host.counts == {}


def test_a_group_that_is_on_no_list_follows_its_reports() -> None:
    """An ipvlan interface in a container reports its groups here; our namespace does not list them."""
    bench = Bench()
    report(bench, Record(TV, Filter.TO_EXCLUDE))
    listed(bench, "239.9.9.9")
    listed(bench)
    assert is_joined(bench, TV)
    report(bench, Record(TV, Filter.TO_INCLUDE))
    assert not is_joined(bench, TV)


def test_groups_that_hosts_never_report_change_nothing() -> None:
    bench = Bench()
    before = set(bench.host.groups)
    listed(bench, "224.0.0.1", "ff02::1", "ff01::1", "ff01::2")
    assert bench.host.groups == before
    listed(bench)
    assert bench.host.groups == before


def test_without_ipv6_the_list_s_ipv6_groups_are_not_joined() -> None:
    """T3."""
    bench = Bench("10.0.0.1/24", template=replace(TEMPLATE, mtu_bytes=1000))
    before = set(bench.host.groups)
    listed(bench, "ff02::fb", str(TV))
    assert bench.host.groups == before | {of_group(TV, TEMPLATE.params.pkey)}


def test_a_listed_group_without_room_is_joined_by_a_later_list() -> None:
    bench = Bench("10.0.0.1/24")
    first = IPv4Address("239.0.0.0")
    for i in range(GROUPS_MAX):
        bench.host.join(str(first + i))
    wanted = [f"239.77.0.{i}" for i in range(50)]
    listed(bench, *wanted)
    assert bench.host.counts["group_table_full"] >= len(wanted)
    assert len([line for line in bench.host.log if "not joined" in str(line)]) < 30
    for i in range(len(wanted), 2 * len(wanted)):
        bench.host.leave(str(first + i))
    bench.run(2)
    listed(bench, *wanted)
    assert all(is_joined(bench, ip_address(group)) for group in wanted)
