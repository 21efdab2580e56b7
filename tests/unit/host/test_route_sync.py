# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.addr import IpInterface
from ipoibu.base.limits import ROUTE_CHANGES_PER_CALL
from ipoibu.base.route import FIELD_SOURCE, FIELD_TOS, AskRoute, NextHop, RouteChange
from ipoibu.host.monitor import Notice
from ipoibu.host.netlink import (
    IFA_F_NODAD,
    IFF_UP,
    RTM_DELROUTE,
    RTM_DELRULE,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWNEXTHOP,
    RTM_NEWROUTE,
    RTM_NEWRULE,
    Link,
    Netlink,
)
from ipoibu.host.netsocket import NLM_F_REPLACE
from ipoibu.host.route_message import RouteEntry, RouteReader
from ipoibu.host.route_rules import Rule
from ipoibu.host.route_sync import RouteSync
from ipoibu.host.route_table import RouteTable
from tests.doubles.endpoint import EndpointDouble
from tests.doubles.prefixes import network_of
from tests.unit.host.route_messages import INDEX, OTHER, message


class Kernel(Netlink):
    """An interface whose addresses and routes the test sets, with the socket of its notices."""

    def __init__(self) -> None:
        super().__init__()
        self.present = True
        self.up = True
        self.forwards = False
        self.held: set[IpInterface] = set()
        self.flags = 0
        self.listed: list[bytes] = []
        self.listings = 0
        self.waiting: list[Notice] = []
        self.overruns = 0
        self.ruled: list[Rule] = []
        self.rule_listings = 0
        self.objects: dict[int, tuple[NextHop, ...]] = {}

    def link(self, name: str | int) -> Link | None:
        link = Link(INDEX, "ib0", 2044, self.up, None, self.forwards)
        return link if self.present else None

    def flagged_addresses(self, index: int) -> dict[IpInterface, int]:
        return dict.fromkeys(self.held, self.flags)

    def routes(self, index: int, reader: RouteReader) -> Iterator[tuple[bytes, RouteEntry]]:
        self.listings += 1
        for data in self.listed:
            found = reader.read(data, 0)
            if found is not None:
                yield found

    def rules(self) -> list[Rule]:
        self.rule_listings += 1
        return list(self.ruled)

    def nexthops(self, index: int) -> dict[int, tuple[NextHop, ...]]:
        return dict(self.objects)

    def notices(self, most: int) -> Iterator[Notice]:
        waiting, self.waiting = self.waiting, []
        return iter(waiting)

    def fileno(self) -> int:
        return 0

    def notify(self, kind: int, data: bytes, flags: int = 0) -> None:
        self.waiting.append(Notice(kind, flags, data, 0))

    def notify_link(self, kind: int, index: int = INDEX, flags: int = IFF_UP) -> None:
        self.notify(kind, bytes(20) + struct.pack("=II", index, flags))


class Endpoint(EndpointDouble):
    def __init__(self) -> None:
        self.log: list[str] = []

    def address_added(self, address: IpInterface, is_checked: bool, is_optimistic: bool) -> None:
        marks = " unchecked" * (not is_checked) + " optimistic" * is_optimistic
        self.log.append(f"+{address}{marks}")

    def address_removed(self, address: IpInterface) -> None:
        self.log.append(f"-{address}")

    def routes_changed(self, changes: list[RouteChange]) -> None:
        assert len(changes) <= ROUTE_CHANGES_PER_CALL
        for prefix, target in changes:
            network = network_of(prefix)
            if target is None:
                self.log.append(f"-{network}")
            else:
                vias = " ".join(str(hop.via) for hop in target.hops) or str(target.fields)
                self.log.append(f"+{network} {vias} {target.kind}")

    def routes_left_out(self, count: int) -> None:
        self.log.append(f"left out {count}")

    def answer_routes(self, ask: AskRoute) -> None:
        self.ask = ask

    def router_changed(self, is_router: bool) -> None:
        self.log.append(f"router {is_router}")

    def heard(self) -> list[str]:
        log, self.log = self.log, []
        return sorted(log)


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, sysctls: Path) -> None:
        self.kernel = Kernel()
        self.endpoint = Endpoint()
        self.sysctls = sysctls
        self.route_sync = RouteSync(INDEX, self.endpoint, self.kernel, sysctls)
        self.route_sync.close()
        monkeypatch.setattr(self.route_sync, "_monitor", self.kernel)

    def refresh(self) -> list[str]:
        assert self.route_sync.refresh() is not None
        return self.endpoint.heard()

    def follow(self) -> list[str]:
        if self.route_sync.read_notices():
            return self.refresh()
        return []


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(monkeypatch, tmp_path)
    yield bench
    bench.kernel.close()


def test_what_is_there_at_first_is_published_and_then_only_changes(bench: Bench) -> None:
    bench.kernel.held = {ipaddress.ip_interface("10.0.0.1/24")}
    bench.kernel.listed = [message("10.0.0.0/24"), message("0.0.0.0/0", "10.0.0.9")]
    assert bench.refresh() == [
        "+0.0.0.0/0 10.0.0.9 unicast",
        "+10.0.0.0/24 None unicast",
        "+10.0.0.1/24",
    ]
    assert bench.refresh() == []


def test_what_it_published_goes_when_the_interface_leaves_the_namespace(bench: Bench) -> None:
    bench.kernel.held = {ipaddress.ip_interface("10.0.0.1/24")}
    bench.kernel.listed = [message("10.0.0.0/24"), message("0.0.0.0/0", "10.0.0.9")]
    bench.refresh()
    bench.route_sync.withdraw()
    assert bench.endpoint.heard() == ["-0.0.0.0/0", "-10.0.0.0/24", "-10.0.0.1/24"]
    bench.route_sync.withdraw()
    assert bench.endpoint.heard() == []


def test_an_address_without_duplicate_detection_stays_unchecked(bench: Bench) -> None:
    bench.kernel.held = {ipaddress.ip_interface("fd00::9/128")}
    bench.kernel.flags = IFA_F_NODAD
    assert bench.refresh() == ["+fd00::9/128 unchecked"]


def test_a_link_that_was_down_for_a_moment_is_reported_once(bench: Bench) -> None:
    """The listing shows the interface up again, without the addresses that the kernel dropped."""
    bench.kernel.notify_link(RTM_NEWLINK, flags=0)  # of the time before
    for flags, was_down in ((IFF_UP, False), (0, True), (IFF_UP, False)):
        first = bench.route_sync.refresh()
        assert first is not None
        assert not first.was_down
        bench.kernel.notify_link(RTM_NEWLINK, flags=flags)
        assert bench.route_sync.read_notices()
        link = bench.route_sync.refresh()
        assert link is not None
        assert (link.up, link.was_down) == (True, was_down)


@pytest.mark.parametrize("scope", ["all", "ib0"])
def test_optimistic_dad_marks_the_ipv6_addresses_of_a_host(bench: Bench, scope: str) -> None:
    """RFC 4429; as in the kernel, a router is not optimistic."""
    (bench.sysctls / "ipv6/conf" / scope).mkdir(parents=True)
    (bench.sysctls / "ipv6/conf" / scope / "optimistic_dad").write_text("1\n")
    bench.kernel.held = set(map(ipaddress.ip_interface, ("fd00::9/64", "10.0.0.9/24")))
    assert bench.refresh() == ["+10.0.0.9/24", "+fd00::9/64 optimistic"]
    bench.kernel.forwards = True
    bench.kernel.held.add(ipaddress.ip_interface("fd00::10/64"))
    bench.kernel.notify_link(RTM_NEWADDR)
    assert bench.follow() == ["+fd00::10/64", "router True"]


def test_a_change_is_followed_by_its_notice_without_another_listing(bench: Bench) -> None:
    bench.kernel.listed = [message(f"10.{n}.0.0/16", "10.0.0.7") for n in range(1, 200)]
    bench.refresh()
    bench.kernel.notify(RTM_NEWROUTE, message("10.5.0.0/16", "10.0.0.8"), NLM_F_REPLACE)
    assert bench.follow() == ["+10.5.0.0/16 10.0.0.8 unicast"]
    bench.kernel.notify(RTM_DELROUTE, message("10.5.0.0/16", "10.0.0.8"))
    assert bench.follow() == ["-10.5.0.0/16"]
    assert bench.kernel.listings == 1


def test_an_overrun_lists_everything_again(bench: Bench) -> None:
    bench.kernel.listed = [message("10.5.0.0/16", "10.0.0.7")]
    bench.refresh()
    bench.kernel.listed = []
    bench.kernel.overruns += 1
    assert bench.follow() == ["-10.5.0.0/16"]
    assert bench.kernel.listings == 2


def test_routes_that_vanish_with_their_interface_without_a_notice_are_withdrawn(
    bench: Bench,
) -> None:
    bench.kernel.listed = [message("10.5.0.0/16", "10.0.0.7")]
    bench.refresh()
    bench.kernel.up, bench.kernel.listed = False, []
    bench.kernel.notify_link(RTM_NEWLINK)
    assert bench.follow() == ["-10.5.0.0/16"]
    bench.kernel.notify_link(RTM_NEWLINK)
    assert bench.follow() == []
    assert bench.kernel.listings == 2  # it was down already


@pytest.mark.parametrize("source", ["10.0.0.1", None])
def test_routes_that_vanish_with_an_address_without_a_notice_are_withdrawn(
    bench: Bench, source: str | None
) -> None:
    """The kernel removes the routes that prefer the address, and all routes with the last address."""
    others = set() if source is None else {ipaddress.ip_interface("10.1.0.1/24")}
    bench.kernel.held = {ipaddress.ip_interface("10.0.0.1/24"), *others}
    bench.kernel.listed = [message("10.5.0.0/16", "10.0.0.7", source=source)]
    bench.refresh()
    bench.kernel.held, bench.kernel.listed = others, []
    bench.kernel.notify_link(RTM_NEWADDR)
    assert bench.follow() == ["-10.0.0.1/24", "-10.5.0.0/16"]


def test_an_address_that_no_route_prefers_goes_without_a_listing(bench: Bench) -> None:
    held = {ipaddress.ip_interface("10.0.0.1/24"), ipaddress.ip_interface("10.1.0.1/24")}
    bench.kernel.held = held
    bench.kernel.listed = [message("10.5.0.0/16", "10.0.0.7", source="10.0.0.1")]
    bench.refresh()
    bench.kernel.held = {ipaddress.ip_interface("10.0.0.1/24")}
    bench.kernel.notify_link(RTM_NEWADDR)
    assert bench.follow() == ["-10.1.0.1/24"]
    assert bench.kernel.listings == 1


def test_that_the_host_forwards_is_published_as_it_changes(bench: Bench) -> None:
    """The notices are those of the subnets' anycast routes."""
    assert bench.refresh() == []
    for bench.kernel.forwards in (True, False):
        bench.kernel.notify(RTM_NEWROUTE, message("fd00::/128", kind=4))
        assert bench.follow() == [f"router {bench.kernel.forwards}"]
        assert bench.follow() == []


def test_an_interface_that_is_gone_is_none_and_publishes_nothing(bench: Bench) -> None:
    bench.kernel.held = {ipaddress.ip_interface("10.0.0.1/24")}
    bench.refresh()
    bench.kernel.present = False
    bench.kernel.notify_link(RTM_NEWLINK)
    assert bench.route_sync.read_notices()
    assert bench.route_sync.refresh() is None
    assert bench.endpoint.heard() == []


def test_notices_of_other_interfaces_change_nothing(bench: Bench) -> None:
    bench.refresh()
    bench.kernel.notify_link(RTM_NEWLINK, OTHER)
    bench.kernel.notify(RTM_NEWROUTE, message("10.5.0.0/16", "10.8.0.1", index=OTHER))
    assert bench.follow() == []


def test_many_routes_reach_the_endpoint_in_batches(bench: Bench) -> None:
    bench.kernel.listed = [message(f"10.{n >> 8}.{n & 255}.0/24") for n in range(2000)]
    assert len(bench.refresh()) == 2000


RULE = Rule(socket.AF_INET, False, FIELD_SOURCE, 7)


def test_routes_beyond_the_cap_are_counted_logged_and_listed_when_there_is_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bench.route_sync, "_table", RouteTable(entries_max=8))
    routes = [message(f"10.{number}.0.0/16", "10.0.0.2") for number in range(10)]
    bench.kernel.listed = routes[:8]
    bench.refresh()
    for data in routes[8:]:
        bench.kernel.notify(RTM_NEWROUTE, data)
    assert bench.follow() == ["left out 2"]
    assert caplog.text.count("too many routes") == 1
    listings = bench.kernel.listings
    bench.kernel.listed = routes[1:9]
    bench.kernel.notify(RTM_DELROUTE, routes[0])
    assert bench.follow() == ["+10.8.0.0/16 10.0.0.2 unicast", "-10.0.0.0/16"]
    assert bench.kernel.listings == listings + 1


def test_under_other_rules_the_kernel_is_asked_about_each_flow_of_the_family(bench: Bench) -> None:
    bench.kernel.listed = [message("10.5.0.0/16", "10.0.0.7"), message("fd05::/16", "fe80::7")]
    bench.refresh()
    bench.kernel.ruled = [RULE]
    bench.kernel.notify(RTM_NEWRULE, bytes(28))
    assert bench.follow() == ["+0.0.0.0/0 1 ask", "-10.5.0.0/16"]
    # every change may change an answer, whatever its table or interface
    bench.kernel.notify(RTM_NEWROUTE, message("10.6.0.0/16", "10.8.0.1", index=OTHER, table=100))
    assert bench.follow() == ["+0.0.0.0/0 1 ask"]
    bench.kernel.notify(RTM_NEWROUTE, message("10.7.0.0/16", "10.0.0.7"))
    assert bench.follow() == ["+0.0.0.0/0 1 ask"]
    bench.kernel.notify(RTM_NEWROUTE, message("fd06::/16", "fe80::7"))
    assert bench.follow() == ["+0.0.0.0/0 1 ask", "+fd06::/16 fe80::7 unicast"]
    bench.kernel.ruled = []
    bench.kernel.notify(RTM_DELRULE, bytes(28))
    assert bench.follow() == [
        "+0.0.0.0/0 1 ask",
        "+10.5.0.0/16 10.0.0.7 unicast",
        "+10.7.0.0/16 10.0.0.7 unicast",
        "-0.0.0.0/0",
    ]
    assert bench.kernel.rule_listings == 3
    bench.route_sync.close()


@pytest.mark.parametrize(("route", "fields"), [({"tos": 16}, FIELD_TOS), ({"table": 253}, 0)])
def test_the_kernel_is_asked_where_routes_select_by_more_than_the_destination(
    bench: Bench, route: dict[str, Any], fields: int
) -> None:
    bench.refresh()
    bench.kernel.notify(RTM_NEWROUTE, message("10.5.0.0/16", "10.0.0.7", **route))
    assert {f"+0.0.0.0/0 {fields} ask", "-10.5.0.0/16"} <= set(bench.follow())
    bench.kernel.notify(RTM_DELROUTE, message("10.5.0.0/16", "10.0.0.7", **route))
    assert "-0.0.0.0/0" in bench.follow()
    bench.route_sync.close()


def test_a_nexthop_object_that_changes_changes_its_routes(bench: Bench) -> None:
    """The kernel need not name the routes (nexthop_compat_mode=0)."""
    first, second = (NextHop(ipaddress.ip_address(f"10.0.0.{n}")) for n in (7, 8))
    bench.kernel.objects = {1: (first,)}
    bench.kernel.listed = [message("10.5.0.0/16", nexthop=1)]
    assert bench.refresh() == ["+10.5.0.0/16 10.0.0.7 unicast"]
    bench.kernel.objects = {1: (first, second)}
    bench.kernel.notify(RTM_NEWNEXTHOP, bytes(24))
    assert bench.follow() == ["+10.5.0.0/16 10.0.0.7 10.0.0.8 unicast"]
    bench.kernel.notify(RTM_NEWNEXTHOP, bytes(24))
    assert bench.follow() == []
    assert bench.kernel.listings == 2


def test_a_multipath_route_has_all_its_next_hops(bench: Bench) -> None:
    hops = [(INDEX, "10.0.0.8", 1), (OTHER, "10.8.0.8", 1), (INDEX, "10.0.0.9", 1)]
    bench.refresh()
    bench.kernel.notify(RTM_NEWROUTE, message("10.7.0.0/16", hops=hops))
    assert bench.follow() == ["+10.7.0.0/16 10.0.0.8 10.0.0.9 unicast"]
