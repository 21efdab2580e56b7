# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from ipoibu.host.address_message import read_address
from ipoibu.host.arp_query import ArpQuery
from ipoibu.host.arp_sync import ArpSync
from ipoibu.host.monitor import Notice
from ipoibu.host.netlink import (
    IFF_UP,
    RT_SCOPE_HOST,
    RT_SCOPE_LINK,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWROUTE,
    Link,
    Netlink,
)
from ipoibu.host.route_message import RT_TABLE_LOCAL, RT_TABLE_MAIN, RTN_LOCAL, RTN_UNICAST
from ipoibu.proto.neigh.host_addresses import ArpPolicy, AskArp, Ignore
from tests.doubles.endpoint import EndpointDouble

INDEX = socket.if_nametoindex("lo")  # its name is that of the directory below
LOOPBACK, LOCAL = IPv4Address("10.255.0.1"), IPv4Address("10.255.0.2")


class Kernel(Netlink):
    """A host whose other addresses the test sets, with the socket of its notices."""

    def __init__(self) -> None:
        super().__init__()
        self.master: int | None = None
        self.held = {LOOPBACK: RT_SCOPE_LINK, LOCAL: RT_SCOPE_HOST}
        self.waiting: list[Notice] = []
        self.overruns = 0
        self.listings = 0
        self.of_another_vrf: set[IPv4Address] = set()
        self.has_networks = False

    def link(self, name: str | int) -> Link | None:
        return Link(INDEX, "lo", 2044, True, None, master=self.master)

    def other_addresses(self, index: int, widest: int) -> set[IPv4Address]:
        self.listings += 1
        return {address for address, scope in self.held.items() if scope <= widest}

    def has_local_networks(self) -> bool:
        return self.has_networks

    def is_local(self, ip: IPv4Address, vrf: int | None) -> bool:
        return (ip in self.of_another_vrf) == (vrf is not None)

    def notices(self) -> Iterator[Notice]:
        waiting, self.waiting = self.waiting, []
        return iter(waiting)


class Stack(EndpointDouble):
    def __init__(self) -> None:
        self.log: list[tuple[set[IPv4Address], ArpPolicy]] = []
        self.ask: AskArp | None = None

    def answer_arp(self, ask: AskArp) -> None:
        self.ask = ask

    def arp_changed(self, others: frozenset[IPv4Address], policy: ArpPolicy) -> None:
        self.log.append((set(others), policy))


class Bench:
    def __init__(self, sysctls: Path) -> None:
        self.sysctls = sysctls
        self.kernel, self.stack = Kernel(), Stack()
        for scope in ("all", "lo"):
            (sysctls / "ipv4/conf" / scope).mkdir(parents=True)
            for name in ("arp_ignore", "arp_announce", "arp_filter", "proxy_arp", "forwarding"):
                self.write(scope, name, 0)
        self.sync = ArpSync(INDEX, self.stack, self.kernel, sysctls)

    def write(self, scope: str, name: str, value: int) -> None:
        (self.sysctls / "ipv4/conf" / scope / name).write_text(f"{value}\n")

    def refresh(self) -> list[tuple[set[IPv4Address], ArpPolicy]]:
        self.sync.refresh()
        log, self.stack.log = self.stack.log, []
        return log


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    bench.sync.close()
    monkeypatch.setattr(bench.sync, "_monitor", bench.kernel)
    yield bench
    bench.sync.close()  # with the kernel as its monitor


def test_a_refresh_publishes_what_changed_and_nothing_else(bench: Bench) -> None:
    assert bench.refresh() == [({LOOPBACK, LOCAL}, ArpPolicy())]
    assert bench.refresh() == []
    assert bench.kernel.listings == 1
    bench.write("lo", "arp_announce", 2)
    assert bench.refresh() == [({LOOPBACK, LOCAL}, ArpPolicy(announce=2))]


def test_a_notice_lists_the_addresses_again(bench: Bench) -> None:
    bench.refresh()
    del bench.kernel.held[LOCAL]
    assert not bench.sync.read_notices()
    bench.kernel.waiting.append(Notice(RTM_NEWADDR, 0, bytes(24), 0))
    assert bench.sync.read_notices()
    assert bench.refresh() == [({LOOPBACK}, ArpPolicy())]
    bench.kernel.overruns = 1
    assert bench.sync.read_notices()


def test_of_other_interfaces_only_one_that_goes_down_calls_for_a_listing(bench: Bench) -> None:
    bench.refresh()
    for index, flags, change, is_relevant in (
        (INDEX, IFF_UP, 0, True),
        (INDEX + 1, 0, 0xFFFFFFFF, False),
        (INDEX + 1, IFF_UP, IFF_UP, False),
        (INDEX + 1, 0, IFF_UP, True),
    ):
        data = struct.pack("=IHHIIBxHiII", 32, RTM_NEWLINK, 0, 0, 0, 0, 1, index, flags, change)
        bench.kernel.waiting.append(Notice(RTM_NEWLINK, 0, data, 0))
        assert bench.sync.read_notices() == is_relevant
        bench.refresh()


@pytest.mark.parametrize(("everywhere", "here"), [(1, 2), (2, 1), (2, 0)])
def test_the_larger_of_the_two_sysctls_counts(bench: Bench, everywhere: int, here: int) -> None:
    bench.write("all", "arp_ignore", everywhere)
    bench.write("lo", "arp_ignore", here)
    assert bench.refresh()[0][1].ignore is Ignore.OTHER_SUBNETS


def test_arp_ignore_3_leaves_out_the_addresses_of_scope_host(bench: Bench) -> None:
    bench.write("lo", "arp_ignore", 3)
    assert bench.refresh() == [({LOOPBACK}, ArpPolicy(Ignore.HOST_SCOPE))]


def test_an_interface_in_a_vrf_has_the_addresses_of_that_vrf(bench: Bench) -> None:
    bench.kernel.of_another_vrf = {LOCAL}
    assert bench.refresh() == [({LOOPBACK}, ArpPolicy())]
    bench.kernel.master = 9
    assert bench.refresh() == [({LOCAL}, ArpPolicy(by_routes=True))]
    bench.kernel.master = None
    assert bench.refresh() == [({LOOPBACK}, ArpPolicy())]


@pytest.mark.parametrize("scope", ["all", "lo"])
def test_with_arp_filter_the_kernel_decides(bench: Bench, scope: str) -> None:
    bench.write(scope, "arp_filter", 1)
    assert bench.refresh()[0][1] == ArpPolicy(by_routes=True)


def test_with_local_routes_to_networks_the_kernel_decides(bench: Bench) -> None:
    assert not bench.refresh()[0][1].by_routes
    bench.kernel.has_networks = True
    for noticed in (
        route("10.5.0.0", 16, RTN_UNICAST, RT_TABLE_MAIN),
        route("10.5.0.1", 32, RTN_LOCAL, RT_TABLE_LOCAL),
        route("127.0.0.0", 8, RTN_LOCAL, RT_TABLE_LOCAL),
    ):
        bench.kernel.waiting.append(noticed)
        assert not bench.sync.read_notices()
    bench.kernel.waiting.append(route("10.5.0.0", 16, RTN_LOCAL, RT_TABLE_LOCAL))
    assert bench.sync.read_notices()
    assert bench.refresh() == [({LOOPBACK, LOCAL}, ArpPolicy(by_routes=True))]


def route(network: str, bits: int, kind: int, table: int) -> Notice:
    """A notice of a new route."""
    header = struct.pack("=BBBBBBBBI", socket.AF_INET, bits, 0, 0, table, 0, 0, kind, 0)
    destination = struct.pack("=HH4s", 8, 1, IPv4Address(network).packed)
    data = struct.pack("=IHHII", 36, RTM_NEWROUTE, 0, 0, 0) + header + destination
    return Notice(RTM_NEWROUTE, 0, data, 0)


def test_proxy_arp_pvlan_counts_by_the_interface_s_own_value(bench: Bench) -> None:
    bench.write("lo", "forwarding", 1)
    bench.write("all", "proxy_arp_pvlan", 1)
    assert not bench.refresh()[0][1].is_proxy
    bench.write("lo", "proxy_arp_pvlan", 1)
    assert bench.refresh()[0][1].is_proxy


@pytest.mark.parametrize("scope", ["all", "lo"])
def test_proxy_arp_counts_while_the_interface_forwards(bench: Bench, scope: str) -> None:
    bench.write(scope, "proxy_arp", 1)
    bench.write("all", "forwarding", 1)
    assert not bench.refresh()[0][1].is_proxy
    bench.write("lo", "forwarding", 1)
    assert bench.refresh()[0][1].is_proxy


def test_a_kernel_without_the_sysctls_has_the_defaults(tmp_path: Path) -> None:
    kernel, stack = Kernel(), Stack()
    sync = ArpSync(INDEX, stack, kernel, tmp_path / "none")
    sync.refresh()
    assert stack.log == [({LOOPBACK, LOCAL}, ArpPolicy())]
    sync.close()
    kernel.close()


def test_an_address_message_has_interface_scope_and_address() -> None:
    attribute = struct.pack("=HH4s", 8, 2, LOOPBACK.packed)
    message = struct.pack("=IHHIIBBBBI", 32, RTM_NEWADDR, 0, 0, 0, 2, 32, 0, 253, 7) + attribute
    assert read_address(message, 0) == (7, RT_SCOPE_LINK, LOOPBACK)
    short = struct.pack("=IHHIIBBBBI", 24, RTM_NEWADDR, 0, 0, 0, 2, 32, 0, 253, 7)
    assert read_address(short, 0) == (7, RT_SCOPE_LINK, None)


def test_the_loopback_interface_has_no_address_that_another_one_has() -> None:
    with Netlink() as netlink:
        assert IPv4Address("127.0.0.1") not in netlink.other_addresses(INDEX, RT_SCOPE_HOST)
        assert IPv4Address("127.0.0.1") in netlink.other_addresses(1 << 30, RT_SCOPE_HOST)
        assert IPv4Address("127.0.0.1") not in netlink.other_addresses(1 << 30, RT_SCOPE_LINK)


def test_whether_a_probed_address_is_local_is_the_kernels_answer() -> None:
    query = ArpQuery(INDEX)
    nobody = IPv4Address(0)
    assert query.ask(nobody, IPv4Address("127.0.0.1")) == "local"
    assert query.ask(nobody, IPv4Address("192.0.2.1")) is None
    assert query.ask(IPv4Address("192.0.2.7"), IPv4Address("0.0.0.0")) is None, "an error"
    query.close()


def test_the_networks_of_this_machine_s_loopback_interface_are_no_local_networks() -> None:
    with Netlink() as netlink:
        assert not netlink.has_local_networks()
        assert netlink.is_local(IPv4Address("127.0.0.1"), None)
        assert not netlink.is_local(IPv4Address("192.0.2.1"), None)
