# SPDX-License-Identifier: BSD-2-Clause
"""Groups of guests: joined on the link by their reports, left when they leave or fall silent."""

from __future__ import annotations

import random
from ipaddress import IPv4Address, IPv6Address

import pytest

from ipoibu.base.addr import IpAddress, Mac
from ipoibu.base.limits import (
    ETHERNET_LAST_MEMBER_S,
    ETHERNET_MEMBERSHIP_S,
    ETHERNET_QUERY_FAST_S,
    ETHERNET_QUERY_S,
    GROUP_LEAVE_DELAY_S,
)
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Count
from ipoibu.proto.ethernet.listeners import GuestListeners
from ipoibu.proto.ethernet.macs import Macs
from ipoibu.proto.groups.groups import Groups
from ipoibu.wire import igmp, ip, mld
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import Frame, group_mac
from ipoibu.wire.membership import Filter, Query, Record
from ipoibu.wire.mgid import of_group
from tests.doubles.ethernet_bench import GUEST, GUEST2, GUEST_IP, GUEST_V6, Lan
from tests.doubles.simulation import PARAMS, TEMPLATE

GROUP = IPv4Address("239.1.2.3")
GROUP6 = IPv6Address("ff15::123")
JOIN, LEAVE = Filter.TO_EXCLUDE, Filter.TO_INCLUDE
LEFT_S = GROUP_LEAVE_DELAY_S + 0.1  # a group lingers so long


@pytest.fixture
def lan() -> Lan:
    lan = Lan()
    lan.clear()
    return lan


def report(lan: Lan, group: IpAddress, change: Filter, mac: Mac = GUEST) -> None:
    records = (Record(group, change),)
    if isinstance(group, IPv4Address):
        packet = igmp.report(IPv4Address(0), records).pack()
    else:
        packet = mld.report(GUEST_V6, records).pack()
    destination = ip.parse_untrusted(packet).destination
    kind = EtherType.IPV4 if group.version == 4 else EtherType.IPV6
    lan.guest(Frame(group_mac(destination), mac, kind, packet))


def is_joined(lan: Lan, group: IpAddress) -> bool:
    return of_group(group, PARAMS.pkey, PARAMS.scope) in lan.groups


def queries(lan: Lan) -> list[tuple[Mac, IpAddress | None]]:
    """The questions to guests: where each went, and the group that it names."""
    found: list[tuple[Mac, IpAddress | None]] = []
    for frame in lan.frames:
        parse = igmp.parse_untrusted if frame.ethertype == EtherType.IPV4 else mld.parse_untrusted
        if frame.ethertype in (EtherType.IPV4, EtherType.IPV6):
            message = parse(frame.payload)
            if isinstance(message, Query):
                found.append((frame.destination, message.group))
    return found


@pytest.mark.parametrize("group", [GROUP, GROUP6])
def test_a_report_joins_a_group_and_goes_on_to_the_link(lan: Lan, group: IpAddress) -> None:
    report(lan, group, JOIN)
    assert is_joined(lan, group)
    assert len(lan.packets) == 1, "a multicast router of the link reads it"
    assert lan.ethernet.groups() == {group: 1}


@pytest.mark.parametrize("group", [GROUP, GROUP6])
def test_the_last_guest_that_leaves_has_the_others_asked(lan: Lan, group: IpAddress) -> None:
    report(lan, group, JOIN)
    lan.clear()
    report(lan, group, LEAVE)
    assert queries(lan) == [(group_mac(group), group)]
    assert is_joined(lan, group)
    report(lan, group, JOIN, GUEST2)  # had kept silent
    lan.run(ETHERNET_LAST_MEMBER_S + LEFT_S)
    assert is_joined(lan, group)
    report(lan, group, LEAVE, GUEST2)
    lan.run(ETHERNET_LAST_MEMBER_S + LEFT_S)
    assert not is_joined(lan, group)


def test_a_group_stays_while_one_guest_is_in_it(lan: Lan) -> None:
    lan.run(ETHERNET_QUERY_S + 5)  # the queries of the start
    report(lan, GROUP, JOIN)
    report(lan, GROUP, JOIN, GUEST2)
    lan.clear()
    report(lan, GROUP, LEAVE)
    lan.run(ETHERNET_LAST_MEMBER_S + LEFT_S)
    assert not queries(lan)
    assert is_joined(lan, GROUP)
    report(lan, GROUP, JOIN)
    report(lan, GROUP, LEAVE, GUEST2)
    lan.run(ETHERNET_LAST_MEMBER_S + LEFT_S)
    assert is_joined(lan, GROUP)
    lan.run(ETHERNET_MEMBERSHIP_S)
    assert not is_joined(lan, GROUP)
    report(lan, GROUP, JOIN)
    assert is_joined(lan, GROUP), "a group comes back"


def test_a_silent_guest_leaves_its_groups(lan: Lan) -> None:
    report(lan, GROUP, JOIN)
    lan.run(ETHERNET_MEMBERSHIP_S - 1)
    assert is_joined(lan, GROUP)
    report(lan, GROUP, Filter.IS_EXCLUDE)
    lan.run(ETHERNET_MEMBERSHIP_S - 1)
    assert is_joined(lan, GROUP)
    lan.run(1 + LEFT_S)
    assert not is_joined(lan, GROUP)


def test_guests_are_asked_when_the_link_comes_up_and_then_again() -> None:
    lan = Lan()
    nodes = group_mac(IPv4Address("224.0.0.1")), group_mac(IPv6Address("ff02::1"))
    assert queries(lan) == [(mac, None) for mac in nodes]
    assert not lan.sent, "the link is not asked"
    lan.clear()
    times: list[int] = []
    for second in range(1, 400):  # a bridge that did not forward yet has lost the first ones
        lan.run(1)
        if queries(lan):
            assert len(queries(lan)) == 2
            times.append(second)
            lan.clear()
    assert times == [1, 3, 7, 15, 31, 63, 127, 252, 377]
    lan.carry_out(lan.ethernet.note_rewired(lan.now))
    lan.run(3 * ETHERNET_QUERY_FAST_S)
    assert len(queries(lan)) == 2 * 3
    lan.carry_out(lan.engine.port_event(lan.now, "down"))
    lan.clear()
    lan.run(2 * ETHERNET_QUERY_S)
    assert not queries(lan)


def test_our_queries_come_from_nobody_or_from_our_link_local_address() -> None:
    lan = Lan()
    packets = [ip.parse_untrusted(it.payload) for it in lan.frames if it.ethertype != 0x0806]
    assert [it.source.version for it in packets] == [4, 6]
    assert packets[0].source.is_unspecified
    assert packets[1].source.is_link_local
    assert {it.source for it in lan.frames} == {lan.mac}


def test_a_link_without_ipv6_has_no_ipv6_queries() -> None:
    lan = Lan(mtu_bytes=1000)
    assert len(queries(lan)) == 1


def test_groups_that_nobody_reports_are_not_joined(lan: Lan) -> None:
    before = set(lan.groups)
    for group in (IPv4Address("224.0.0.1"), IPv6Address("ff02::1"), IPv6Address("ff01::5")):
        report(lan, group, JOIN)
    assert lan.groups == before


def test_a_damaged_report_is_counted(lan: Lan) -> None:
    packet = bytearray(igmp.report(GUEST_IP, (Record(GROUP, JOIN),)).pack())
    packet[-1] ^= 1
    lan.guest(Frame(group_mac(igmp.ALL_V3_ROUTERS), GUEST, EtherType.IPV4, bytes(packet)))
    assert lan.counts == {"igmp_checksum": 1}
    assert not lan.packets


def test_a_full_table_refuses_and_counts() -> None:
    context = EngineContext(TEMPLATE, random.Random(1))
    macs = Macs(context, lambda mac: False)
    table = GuestListeners(context, Groups(context), macs, cap=2)
    for number in range(3):
        group = IPv4Address(f"239.0.0.{number}")
        packet = igmp.report(GUEST_IP, (Record(group, JOIN),)).pack()
        table.report_untrusted(0.0, GUEST, 4, packet)
    assert len(table) == 2
    assert context.take().count(Count("ethernet_memberships_full")) == 1
    packet = igmp.report(GUEST_IP, (Record(IPv4Address("239.0.0.0"), JOIN),)).pack()
    table.report_untrusted(1.0, GUEST, 4, packet)
    assert Count("ethernet_memberships_full") not in context.take(), "it is known"


def test_the_groups_of_guests_wait_for_room_in_the_interface() -> None:
    context = EngineContext(TEMPLATE, random.Random(1))
    groups = Groups(context, cap=1)
    table = GuestListeners(context, groups, Macs(context, lambda mac: False))
    for number in range(2):
        group = IPv4Address(f"239.0.0.{number}")
        table.report_untrusted(0.0, GUEST, 4, igmp.report(GUEST_IP, (Record(group, JOIN),)).pack())
    assert table.members() == {IPv4Address("239.0.0.0"): 1}
    assert len(table) == 1
    assert Count("group_table_full") in context.take()
