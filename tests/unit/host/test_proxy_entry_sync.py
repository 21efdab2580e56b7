# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.host.address_message import NTF_PROXY, read_proxy
from ipoibu.host.netlink import Netlink
from ipoibu.host.proxy_entry_sync import ProxySync
from tests.doubles.endpoint import EndpointDouble

INDEX = socket.if_nametoindex("lo")  # its name is that of the directory below
PROXY, PROXY6, ANYCAST = map(ip_address, ("10.0.0.77", "fd00::77", "fd00::"))


class Kernel(Netlink):
    def proxies(self, index: int) -> set[IpAddress]:
        return {PROXY, PROXY6}

    def anycasts(self, index: int) -> set[IpAddress]:
        return {ANYCAST}


class Bench(EndpointDouble):
    def __init__(self, sysctls: Path) -> None:
        self.sysctls = sysctls
        self.log: list[set[IpAddress]] = []
        for family, scope in (("ipv4", "lo"), ("ipv6", "lo"), ("ipv6", "all")):
            (sysctls / family / "conf" / scope).mkdir(parents=True)
        self.kernel = Kernel()
        self.sync = ProxySync(INDEX, self, self.kernel, sysctls)

    def proxies_changed(self, ips: frozenset[IpAddress]) -> None:
        self.log.append(set(ips))

    def write(self, path: str, value: int) -> None:
        family, scope, name = path.split("/")
        (self.sysctls / family / "conf" / scope / name).write_text(f"{value}\n")

    def refresh(self) -> list[set[IpAddress]]:
        self.sync.refresh()
        log, self.log = self.log, []
        return log


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.sync.close()
    bench.kernel.close()


def test_a_host_that_does_not_forward_has_anycast_addresses_at_most(bench: Bench) -> None:
    assert bench.refresh() == [{ANYCAST}]
    assert bench.refresh() == []


@pytest.mark.parametrize("scope", ["lo", "all"])
def test_a_router_answers_for_its_entries_and_in_ipv6_only_by_proxy_ndp(
    bench: Bench, scope: str
) -> None:
    bench.write("ipv4/lo/forwarding", 1)
    assert bench.refresh() == [{ANYCAST, PROXY}]
    bench.write("ipv6/lo/forwarding", 1)
    assert bench.refresh() == []
    bench.write(f"ipv6/{scope}/proxy_ndp", 1)
    assert bench.refresh() == [{ANYCAST, PROXY, PROXY6}]
    bench.write("ipv4/lo/forwarding", 0)
    assert bench.refresh() == [{ANYCAST, PROXY6}]


def test_only_notices_of_this_interface_call_for_a_refresh(bench: Bench) -> None:
    assert not bench.sync.read_notices()


def test_a_message_of_a_proxy_entry_has_interface_and_address() -> None:
    def message(flags: int) -> bytes:
        head = struct.pack("=IHHII", 36, 28, 0, 0, 0)
        return head + struct.pack("=BxxxiHBBHH4s", 2, 7, 0, flags, 0, 8, 1, PROXY.packed)

    assert read_proxy(message(NTF_PROXY), 0) == (7, PROXY)
    assert read_proxy(message(0), 0) == (7, None)


def test_this_machine_s_loopback_interface_has_neither() -> None:
    with Netlink() as netlink:
        assert netlink.proxies(INDEX) == set()
        assert netlink.anycasts(INDEX) == set()
