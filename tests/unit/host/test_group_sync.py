# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import KERNEL_GROUPS_LIST_S, KERNEL_GROUPS_POLL_S, ROUTED_GROUPS_MAX
from ipoibu.host import group_sync
from ipoibu.host.group_sync import GroupSync
from ipoibu.host.monitor import Monitor, Notice
from ipoibu.host.netlink import (
    RTM_DELMULTICAST,
    RTM_NEWLINK,
    RTM_NEWMULTICAST,
    RTM_NEWROUTE,
    Link,
    Netlink,
)
from tests.doubles.endpoint import EndpointDouble

INDEX, OTHER = 7, 8
VRRP = ipaddress.ip_address("224.0.0.18")
MDNS6 = ipaddress.ip_address("ff02::fb")
RTM_NEWNETCONF = 80


class Kernel(Netlink):
    """An interface whose groups the test sets, with the socket of its notices."""

    def __init__(self) -> None:
        super().__init__()
        self.present = True
        self.lists_ipv4 = True
        self.receives_all = False
        self.held: set[IpAddress] = set()
        self.routed: set[IpAddress] = set()
        self.heard: list[tuple[int, ...]] = []
        self.waiting: list[Notice] = []
        self.overruns = 0

    def link(self, name: str | int) -> Link | None:
        link = Link(INDEX, "ib0", 2044, True, None, receives_all=self.receives_all)
        return link if self.present else None

    def groups(self, index: int, family: int) -> set[IpAddress] | None:
        if family == socket.AF_INET and not self.lists_ipv4:
            return None
        version = 4 if family == socket.AF_INET else 6
        return {group for group in self.held if group.version == version}

    def routed_groups(self) -> set[IpAddress]:
        return set(self.routed)

    def listen(self, *numbers: int) -> None:
        self.heard.append(numbers)

    def notices(self) -> Iterator[Notice]:
        waiting, self.waiting = self.waiting, []
        return iter(waiting)


class Stack(EndpointDouble):
    def __init__(self) -> None:
        self.received: frozenset[IpAddress] = frozenset()
        self.log: list[bool] = []

    def memberships_changed(self, groups: frozenset[IpAddress]) -> None:
        self.received = groups

    def allmulticast_changed(self, is_wanted: bool) -> None:
        self.log.append(is_wanted)


class Bench:
    def __init__(self) -> None:
        self.kernel, self.stack = Kernel(), Stack()
        self.sync = GroupSync(INDEX, self.stack, self.kernel)

    def read_notices(self, kind: int, index: int = INDEX) -> bool:
        data = struct.pack("=IHHIIBBBBI", 24, kind, 0, 0, 0, 2, 0, 0, 0, index)
        self.kernel.waiting.append(Notice(kind, 0, data, 0))
        return self.sync.read_notices()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    bench = Bench()
    with monkeypatch.context() as patch:
        monitor = bench.sync._monitor
        patch.setattr(bench.sync, "_monitor", bench.kernel)
        yield bench
        monitor.close()
    bench.kernel.close()


def test_a_refresh_publishes_the_groups_of_both_families(bench: Bench) -> None:
    bench.kernel.held = {VRRP, MDNS6}
    bench.sync.refresh()
    assert bench.stack.received == {VRRP, MDNS6}
    bench.kernel.held = {VRRP}
    bench.sync.refresh()
    assert bench.stack.received == {VRRP}


@pytest.mark.parametrize("kind", [RTM_NEWMULTICAST, RTM_DELMULTICAST, RTM_NEWLINK])
def test_only_notices_of_this_interface_call_for_a_refresh(bench: Bench, kind: int) -> None:
    assert bench.read_notices(kind)
    assert not bench.read_notices(kind, OTHER)
    assert not bench.sync.read_notices()


def test_a_notice_of_a_multicast_router_calls_for_a_refresh(bench: Bench) -> None:
    assert bench.read_notices(RTM_NEWNETCONF, OTHER)


@pytest.mark.parametrize(("router", "is_relevant"), [(INDEX, True), (OTHER, False), (-1, True)])
def test_a_multicast_router_on_another_interface_changes_nothing(
    bench: Bench, router: int, is_relevant: bool
) -> None:
    """-1 (NETCONFA_IFINDEX_ALL) is the host."""
    data = struct.pack("=IHHIIBxxxHHi", 28, RTM_NEWNETCONF, 0, 0, 0, 2, 8, 1, router)
    bench.kernel.waiting.append(Notice(RTM_NEWNETCONF, 0, data, 0))
    assert bench.sync.read_notices() == is_relevant


def test_lost_notices_call_for_a_refresh(bench: Bench) -> None:
    bench.kernel.overruns = 1
    assert bench.sync.read_notices()
    assert not bench.sync.read_notices()


def test_the_all_multicast_mode_is_published_when_it_changes(bench: Bench) -> None:
    bench.sync.refresh()
    assert bench.stack.log == []
    for wanted in (True, True, False):
        bench.kernel.receives_all = wanted
        bench.sync.refresh()
    assert bench.stack.log == [True, False]


def test_an_interface_that_is_gone_changes_no_mode(bench: Bench) -> None:
    bench.kernel.present = False
    bench.sync.refresh()
    assert bench.stack.log == []


def test_a_kernel_that_does_not_list_ipv4_groups_has_a_table_of_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 6.15; the table of this machine has the loopback interface at least."""
    bench.kernel.lists_ipv4 = False
    bench.kernel.held = {MDNS6}
    seen: list[list[str]] = []

    def read(lines: list[str], index: int) -> set[IpAddress]:
        seen.append(lines)
        return {VRRP}

    monkeypatch.setattr(group_sync, "read_igmp_table", read)
    monkeypatch.setattr(group_sync, "_PIECE_BYTES", 100)
    for _ in range(2):
        bench.sync.refresh()
    assert bench.stack.received == {VRRP, MDNS6}
    assert [lines[0].split()[:2] for lines in seen] == [["Idx", "Device"]] * 2


def test_without_notices_the_groups_are_listed_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    with Netlink() as netlink:
        for unknown, list_s in (
            (frozenset(), KERNEL_GROUPS_LIST_S),
            (frozenset({37, 38}), KERNEL_GROUPS_POLL_S),
        ):
            monkeypatch.setattr(
                Monitor,
                "_add",
                lambda self, number, unknown=unknown: number not in unknown,
            )
            sync = GroupSync(INDEX, Stack(), netlink)
            assert sync.list_s == list_s
            sync.close()


def test_a_multicast_router_receives_the_groups_that_its_routes_take(bench: Bench) -> None:
    """Only then does the sync listen for multicast routes; a change of these calls for a refresh."""
    bench.kernel.held, bench.kernel.routed = {VRRP}, {MDNS6}
    bench.sync.refresh()
    assert bench.stack.received == {VRRP}
    assert bench.kernel.heard == []
    bench.kernel.receives_all = True
    bench.sync.refresh()
    bench.sync.refresh()
    assert bench.stack.received == {VRRP, MDNS6}
    assert bench.kernel.heard == [(6, 10)]
    assert bench.read_notices(RTM_NEWROUTE)
    bench.kernel.receives_all = False
    bench.sync.refresh()
    assert bench.stack.received == {VRRP}


def test_so_many_groups_of_multicast_routes_are_received_and_no_more(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The groups of the router's own sockets come on top; a warning comes once until there is room."""
    bench.kernel.held, bench.kernel.receives_all = {VRRP}, True
    groups = [ipaddress.ip_address("239.0.0.0") + number for number in range(ROUTED_GROUPS_MAX + 1)]
    for count, warnings in ((1, 1), (1, 1), (0, 1), (1, 2)):
        bench.kernel.routed = set(groups[: ROUTED_GROUPS_MAX + count])
        bench.sync.refresh()
        assert VRRP in bench.stack.received
        assert len(bench.stack.received) == ROUTED_GROUPS_MAX + 1
        assert caplog.text.count("multicast routes have 1025 groups") == warnings


def test_groups_that_hosts_make_up_do_not_push_out_those_that_were_there(bench: Bench) -> None:
    bench.kernel.receives_all = True
    first = ipaddress.ip_address("239.200.0.1")
    bench.kernel.routed = {first}
    bench.sync.refresh()
    invented = ipaddress.ip_address("239.0.0.0")
    bench.kernel.routed |= {invented + number for number in range(2 * ROUTED_GROUPS_MAX)}
    bench.sync.refresh()
    assert first in bench.stack.received
    assert len(bench.stack.received) == ROUTED_GROUPS_MAX
    later = ipaddress.ip_address("239.200.0.2")
    bench.kernel.routed = {first, later}
    bench.sync.refresh()
    assert bench.stack.received == {first, later}
