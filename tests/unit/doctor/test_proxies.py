# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from ipoibu.base.addr import IpAddress, IpNetwork
from ipoibu.base.errors import NoSuchDevice
from ipoibu.doctor import proxies as checkup_proxies
from ipoibu.doctor.finding import Finding
from ipoibu.doctor.proxies import ASKED_MAX, ProxyState, findings, proxies

HWADDR = "00:11:22:33:" + ":".join(["00"] * 16)


class Kernel:
    """A host that forwards, with routes to 10.1.0.0/16 and fd00:1::/64 behind it."""

    def __init__(self) -> None:
        self.forwarding = {4, 6}
        self.proxy_ndp = True
        self.behind: set[IpNetwork] = {ip_network("10.1.0.0/16"), ip_network("fd00:1::/64")}

    def forwards(self, version: int) -> bool:
        return version in self.forwarding

    def answers_nd(self) -> bool:
        return self.proxy_ndp

    def obstacle(self, ip: IpAddress) -> str | None:
        return None if any(ip in network for network in self.behind) else "it has no route"

    def networks_behind(self) -> set[IpNetwork]:
        return self.behind


class Link:
    """A link of which some hosts answer; it notes for which addresses it was asked."""

    def __init__(self, **owners: str) -> None:
        self.owners = {ip_address(ip): hwaddr for ip, hwaddr in owners.items()}
        self.asked: list[IpAddress] = []

    def __call__(self, ips: Sequence[IpAddress]) -> Mapping[IpAddress, str]:
        self.asked += ips
        return {ip: self.owners[ip] for ip in ips if ip in self.owners}


def looked_at(
    *texts: str,
    kernel: Kernel | None = None,
    link: Link | None = None,
    counters: Mapping[str, int] | None = None,
    origin: str = "option",
    receives_all: bool = False,
) -> list[Finding]:
    rows = [{"proxy": text, "origin": origin} for text in texts]
    state = ProxyState("ib0", rows, counters or {}, receives_all)
    return list(findings(state, kernel or Kernel(), link or Link()))


def test_a_proxy_without_obstacles_is_one_line() -> None:
    (finding,) = looked_at("10.1.0.0/16", "10.1.0.7", "fd00:1::/120", "routes")
    assert (finding.check, finding.status) == ("proxy", "ok")
    assert finding.detail == "ib0 answers for 4 proxy entries"


@pytest.mark.parametrize(
    ("text", "remedies"),
    [
        ("10.1.0.0/16", ["sysctl -w net.ipv4.ip_forward=1"]),
        ("fd00:1::/120", ["sysctl -w net.ipv6.conf.all.forwarding=1"]),
        (
            "routes",
            ["sysctl -w net.ipv4.ip_forward=1", "sysctl -w net.ipv6.conf.all.forwarding=1"],
        ),
    ],
)
def test_a_host_that_does_not_forward_answers_for_nobody(text: str, remedies: list[str]) -> None:
    kernel = Kernel()
    kernel.forwarding = set()
    found = looked_at(text, kernel=kernel)
    assert [(it.status, it.remedy) for it in found] == [("warn", it) for it in remedies]


def test_entries_of_the_kernel_need_proxy_ndp_for_ipv6() -> None:
    kernel = Kernel()
    kernel.proxy_ndp = False
    (finding,) = looked_at("fd00:9::1", "10.9.0.1", kernel=kernel, origin="kernel")
    assert finding.remedy == "sysctl -w net.ipv6.conf.ib0.proxy_ndp=1"
    assert [it.status for it in looked_at("10.9.0.1", kernel=kernel, origin="kernel")] == ["ok"]
    kernel.proxy_ndp = True
    assert [it.status for it in looked_at("fd00:9::1", kernel=kernel, origin="kernel")] == ["ok"]


def test_what_has_no_route_elsewhere_is_named_with_the_reason() -> None:
    found = looked_at("10.2.0.7", "10.2.0.0/24", "10.1.3.0/24")
    assert [it.detail for it in found] == [
        "ib0 does not answer for 10.2.0.7: it has no route",
        "ib0 answers for no host of 10.2.0.0/24: no route in it leads elsewhere",
    ]
    assert [it.remedy for it in found] == [
        "ip route add 10.2.0.7/32 dev DEVICE",
        "ip route add 10.2.0.0/24 dev DEVICE",
    ]


def test_one_route_within_a_network_is_enough() -> None:
    """A route to one host behind lies in the network of the link."""
    kernel = Kernel()
    kernel.behind = {ip_network("10.77.0.200/32")}
    assert [it.status for it in looked_at("10.77.0.0/24", kernel=kernel)] == ["ok"]
    kernel.behind = {ip_network("fd77::c8/128"), ip_network("10.0.0.0/8")}
    assert [it.status for it in looked_at("10.77.0.0/24", kernel=kernel)] == ["ok"]
    kernel.behind = {ip_network("fd77::c8/128"), ip_network("10.78.0.0/24")}
    assert [it.status for it in looked_at("10.77.0.0/24", kernel=kernel)] == ["warn"]


def test_a_default_route_alone_is_none_for_routes() -> None:
    kernel = Kernel()
    kernel.behind = {ip_network("0.0.0.0/0"), ip_network("::/0")}
    (finding,) = looked_at("routes", kernel=kernel)
    assert "none but a default route" in finding.detail
    kernel.behind.add(ip_network("10.1.0.0/16"))
    assert [it.status for it in looked_at("routes", kernel=kernel)] == ["ok"]


def test_a_large_network_of_ipv6_is_explained_where_not_all_groups_are_received() -> None:
    info, okay = looked_at("fd00:1::/64")
    assert (info.status, okay.status) == ("info", "ok")
    assert "once the kernel knows the host" in info.detail
    assert [it.status for it in looked_at("fd00:1::/64", receives_all=True)] == ["ok"]


def test_a_host_of_the_link_that_has_a_proxied_address_is_named() -> None:
    link = Link(**{"10.1.0.7": HWADDR, "10.2.0.7": HWADDR})
    found = looked_at("10.1.0.7", "10.1.0.8", "10.2.0.7", "10.1.0.0/24", link=link)
    warned = [it for it in found if HWADDR in it.detail]
    assert [it.remedy for it in warned] == ["ipoibu neigh del proxy 10.1.0.7 dev ib0"]
    assert list(map(str, link.asked)) == ["10.1.0.7", "10.1.0.8"], "what is behind us, no network"


def test_the_link_is_asked_for_so_many_addresses_and_no_more() -> None:
    link = Link()
    texts = [f"10.1.1.{last}" for last in range(ASKED_MAX + 1)]
    info, okay = looked_at(*texts, link=link)
    assert (
        info.detail == f"ib0: the link was asked for {ASKED_MAX} of {ASKED_MAX + 1} addresses alone"
    )
    assert okay.status == "ok"
    assert len(link.asked) == ASKED_MAX


@pytest.mark.parametrize(
    "counter",
    [
        "proxy_table_full",
        "proxy_groups_full",
        "proxy_answers_full",
        "proxy_limited",
        "proxy_conflict",
    ],
)
def test_each_cap_that_was_reached_is_a_warning(counter: str) -> None:
    (finding,) = looked_at("10.1.0.0/16", counters={counter: 3, "proxy_answered": 9})
    assert finding.status == "warn"
    assert f"({counter} 3)" in finding.detail
    assert [it.status for it in looked_at("10.1.0.0/16", counters={counter: 0})] == ["ok"]


def test_an_interface_that_has_gone_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str, *_: Any) -> None:
        raise NoSuchDevice(name)

    monkeypatch.setattr(checkup_proxies, "Client", gone)
    assert list(proxies({"ib0": {"ethernet": None, "link_layer": "Ethernet"}})) == []
