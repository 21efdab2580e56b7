# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path

import pytest

from ipoibu.base.addr import IpAddress, IpNetwork
from ipoibu.base.limits import PROXY_DELAY_MAX_S
from ipoibu.host.monitor import Notice
from ipoibu.host.netlink import RTM_NEWROUTE, Link, Netlink
from ipoibu.host.proxy_network_sync import ProxiedSync, WantedProxies
from ipoibu.proto.neigh.proxy_networks import AskRouteBehind, ProxyRules
from tests.doubles.endpoint import EndpointDouble
from tests.unit.host.route_messages import message

INDEX = socket.if_nametoindex("lo")  # its name is that of the directory below
SINGLE, SINGLE6 = ip_network("192.0.2.9/32"), ip_network("fd77:2::9/128")
LARGE6 = ip_network("fd77:3::/64")
KNOWN, ROUTED, FOREIGN = map(IPv6Address, ("fd77:3::1", "fd77:3::2", "fd77:4::1"))


class Kernel(Netlink):
    """A host whose neighbours and routes the test sets, with the socket of its notices."""

    def __init__(self) -> None:
        super().__init__()
        self.neighbours: set[IPv6Address] = set()
        self.host_routes: set[IPv6Address] = set()
        self.behind: set[IpAddress] = set()
        self.waiting: list[Notice] = []
        self.overruns = 0
        self.listings = 0
        self.is_listening = False
        self.is_there = True

    def link(self, name: str | int) -> Link | None:
        return Link(INDEX, "lo", 2044, True, None) if self.is_there else None

    def ipv6_neighbours(self, but: int) -> set[IPv6Address]:
        return set(self.neighbours)

    def ipv6_host_routes(self, but: int) -> set[IPv6Address]:
        self.listings += 1
        return set(self.host_routes)

    def notices(self) -> Iterator[Notice]:
        waiting, self.waiting = self.waiting, []
        return iter(waiting)

    def listen(self, *numbers: int) -> None:
        self.is_listening = True

    def is_behind(self, ip: IpAddress) -> bool:
        return ip in self.behind


class Bench(EndpointDouble):
    def __init__(self, sysctls: Path) -> None:
        self.sysctls = sysctls
        self.kernel = Kernel()
        self.networks: tuple[IpNetwork, ...] = ()
        self.by_routes = False
        self.log: list[ProxyRules] = []
        self.ask: AskRouteBehind | None = None
        for family in ("ipv4", "ipv6"):
            (sysctls / family / "neigh/lo").mkdir(parents=True)
            (sysctls / family / "conf/lo").mkdir(parents=True)
            self.write(family, "neigh/lo/proxy_delay", 0)
            self.write(family, "conf/lo/forwarding", 1)
        self.sync = ProxiedSync(INDEX, self, self.kernel, self.wanted, sysctls)

    def write(self, family: str, path: str, value: int) -> None:
        (self.sysctls / family / path).write_text(f"{value}\n")

    def wanted(self) -> WantedProxies:
        return WantedProxies(self.networks, self.by_routes)

    def proxied_changed(self, rules: ProxyRules) -> None:
        self.log.append(rules)

    def answer_proxy(self, ask: AskRouteBehind) -> None:
        self.ask = ask

    def refresh(self) -> list[ProxyRules]:
        self.sync.refresh()
        log, self.log = self.log, []
        return log


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    bench.sync.close()
    monkeypatch.setattr(bench.sync, "_monitor", bench.kernel)
    monkeypatch.setattr(bench.sync._own_query, "is_behind", bench.kernel.is_behind, raising=False)
    yield bench
    bench.kernel.close()


def test_without_proxies_nothing_is_published_and_no_route_is_heard(bench: Bench) -> None:
    assert bench.refresh() == []
    assert not bench.kernel.is_listening
    assert bench.kernel.listings == 0
    assert bench.ask is not None


def test_single_addresses_are_published_while_they_are_behind_us(bench: Bench) -> None:
    bench.networks = (SINGLE, SINGLE6)
    (rules,) = bench.refresh()
    assert rules == ProxyRules((SINGLE, SINGLE6), listened=frozenset((IPv6Address("fd77:2::9"),)))
    assert bench.kernel.is_listening
    bench.kernel.behind = {ip_address("192.0.2.9")}
    bench.kernel.waiting.append(Notice(24, 0, bytes(28), 0))
    assert bench.sync.read_notices()
    (rules,) = bench.refresh()
    assert rules.behind == {ip_address("192.0.2.9")}
    assert bench.refresh() == []


def test_the_hosts_of_a_large_network_are_listened_for_as_the_kernel_knows_them(
    bench: Bench,
) -> None:
    bench.networks = (LARGE6,)
    bench.kernel.neighbours = {KNOWN, FOREIGN}
    bench.kernel.host_routes = {ROUTED}
    (rules,) = bench.refresh()
    assert rules.listened == {KNOWN, ROUTED}
    bench.refresh()
    assert bench.kernel.listings == 1, "routes are listed again only after a notice"
    bench.kernel.overruns = 1
    assert bench.sync.read_notices()
    bench.refresh()
    assert bench.kernel.listings == 2
    bench.by_routes = True
    assert bench.refresh()[0].listened == {KNOWN, ROUTED, FOREIGN}


def test_only_routes_of_single_hosts_make_it_list_the_routes_again(bench: Bench) -> None:
    """Router advertisements on another link change the others, and any host there can send those."""
    bench.networks = (LARGE6,)
    bench.refresh()
    for network, listings in (("::/0", 1), ("fd77:9::/64", 1), (f"{ROUTED}/128", 2)):
        bench.kernel.waiting.append(Notice(RTM_NEWROUTE, 0, message(network, "fe80::1"), 0))
        assert bench.sync.read_notices()
        bench.refresh()
        assert bench.kernel.listings == listings


def test_every_address_of_a_small_network_is_listened_for(bench: Bench) -> None:
    network = ip_network("fd77:5::/120")
    bench.networks = (network, ip_network("192.0.2.0/24"))
    (rules,) = bench.refresh()
    assert rules.listened == set(network)
    assert bench.kernel.listings == 0


@pytest.mark.parametrize(("value", "delay_s"), [(0, 0.0), (80, 0.8), (1 << 30, PROXY_DELAY_MAX_S)])
def test_the_delay_is_that_of_the_kernel(bench: Bench, value: int, delay_s: float) -> None:
    bench.networks = (SINGLE,)
    bench.write("ipv4", "neigh/lo/proxy_delay", value)
    assert bench.refresh()[0].delay_ipv4_s == delay_s


def test_a_proxy_that_cannot_forward_is_logged_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.networks = (SINGLE6,)
    bench.write("ipv6", "conf/lo/forwarding", 0)
    bench.write("ipv4", "conf/lo/forwarding", 0)
    with caplog.at_level(logging.WARNING):
        bench.refresh()
        bench.refresh()
    (line,) = caplog.messages
    assert "net.ipv6.conf.lo.forwarding" in line


def test_a_link_that_is_gone_changes_nothing_and_what_there_was_is_withdrawn(bench: Bench) -> None:
    bench.networks = (SINGLE,)
    bench.refresh()
    bench.kernel.is_there = False
    assert bench.refresh() == []
    bench.sync.withdraw()
    bench.sync.withdraw()
    assert bench.log == [ProxyRules()]
