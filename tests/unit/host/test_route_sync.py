# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Iterator

import pytest

from ipoibu.addr import IpAddress, IpInterface, IpNetwork
from ipoibu.host.netlink import Link, Netlink, Route, RouteKind
from ipoibu.host.route_sync import RouteSync

INDEX = 1 << 20  # no interface has it, so the real notices are never about it


class Kernel(Netlink):
    """An interface whose addresses and routes the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.present = True
        self.forwards = False
        self.held: set[IpInterface] = set()
        self.listed: list[Route] = []

    def link(self, name: str | int) -> Link | None:
        link = Link(INDEX, "ib0", 2044, True, None, self.forwards)
        return link if self.present else None

    def addresses(self, index: int) -> set[IpInterface]:
        return set(self.held)

    def routes(self, index: int) -> list[Route]:
        return list(self.listed)


class Endpoint:
    def __init__(self) -> None:
        self.log: list[str] = []

    def address_added(self, address: IpInterface) -> None:
        self.log.append(f"+{address}")

    def address_removed(self, address: IpInterface) -> None:
        self.log.append(f"-{address}")

    def route_added(self, network: IpNetwork, via: IpAddress | None, kind: RouteKind) -> None:
        self.log.append(f"+{network} {via} {kind}")

    def route_removed(self, network: IpNetwork) -> None:
        self.log.append(f"-{network}")

    def router_changed(self, is_router: bool) -> None:
        self.log.append(f"router {is_router}")

    def heard(self) -> list[str]:
        log, self.log = self.log, []
        return log


class Bench:
    def __init__(self) -> None:
        self.kernel = Kernel()
        self.endpoint = Endpoint()
        self.route_sync = RouteSync(INDEX, self.endpoint, self.kernel)

    def refresh(self) -> list[str]:
        assert self.route_sync.refresh() is not None
        return self.endpoint.heard()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.route_sync.close()
    bench.kernel.close()


def _route(
    network: str, via: str | None = None, *, table: int = 254, metric: int = 0, paths: int = 1
) -> Route:
    gateway = ipaddress.ip_address(via) if via else None
    return Route(ipaddress.ip_network(network), gateway, "unicast", table, metric, paths)


def test_what_is_there_at_first_is_published_and_then_only_changes(bench: Bench) -> None:
    bench.kernel.held = {ipaddress.ip_interface("10.0.0.1/24")}
    bench.kernel.listed = [_route("10.0.0.0/24"), _route("0.0.0.0/0", "10.0.0.9")]
    assert bench.refresh() == [
        "+10.0.0.1/24",
        "+10.0.0.0/24 None unicast",
        "+0.0.0.0/0 10.0.0.9 unicast",
    ]
    assert bench.refresh() == []


def test_what_vanished_without_a_notice_is_withdrawn(bench: Bench) -> None:
    bench.kernel.held = {ipaddress.ip_interface("10.0.0.1/24")}
    bench.kernel.listed = [_route("10.0.0.0/24")]
    bench.refresh()
    bench.kernel.held = set()
    bench.kernel.listed = []
    assert bench.refresh() == ["-10.0.0.1/24", "-10.0.0.0/24"]


def test_that_the_host_forwards_is_published_as_it_changes(bench: Bench) -> None:
    assert bench.refresh() == []
    for bench.kernel.forwards in (True, False):
        assert bench.refresh() == [f"router {bench.kernel.forwards}"]
        assert bench.refresh() == []


def test_a_changed_gateway_is_published_without_a_gap(bench: Bench) -> None:
    bench.kernel.listed = [_route("10.5.0.0/16", "10.0.0.7")]
    bench.refresh()
    bench.kernel.listed = [_route("10.5.0.0/16", "10.0.0.8")]
    assert bench.refresh() == ["+10.5.0.0/16 10.0.0.8 unicast"]


def test_of_the_routes_to_one_network_the_least_metric_of_the_main_table_counts(
    bench: Bench,
) -> None:
    bench.kernel.listed = [
        _route("10.5.0.0/16", "10.0.0.1", table=100),
        _route("10.5.0.0/16", "10.0.0.2", metric=50),
        _route("10.5.0.0/16", "10.0.0.3", metric=10),
    ]
    assert bench.refresh() == ["+10.5.0.0/16 10.0.0.3 unicast"]
    bench.kernel.listed.pop()
    assert bench.refresh() == ["+10.5.0.0/16 10.0.0.2 unicast"]
    bench.kernel.listed.pop()
    assert bench.refresh() == ["+10.5.0.0/16 10.0.0.1 unicast"]


def test_a_multipath_route_is_logged_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.kernel.listed = [_route("10.7.0.0/16", "10.0.0.8", paths=2)]
    with caplog.at_level(logging.WARNING):
        bench.refresh()
        bench.refresh()
    assert [r.getMessage() for r in caplog.records] == [
        "route 10.7.0.0/16 has 2 next hops: all its packets go via 10.0.0.8"
    ]


def test_an_interface_that_is_gone_is_none_and_publishes_nothing(bench: Bench) -> None:
    bench.kernel.held = {ipaddress.ip_interface("10.0.0.1/24")}
    bench.refresh()
    bench.kernel.present = False
    assert bench.route_sync.refresh() is None
    assert bench.endpoint.heard() == []


def test_notices_of_other_interfaces_need_no_look(bench: Bench) -> None:
    assert not bench.route_sync.changed()
    assert bench.route_sync.fileno() >= 0
    assert socket.if_nametoindex("lo") != INDEX
