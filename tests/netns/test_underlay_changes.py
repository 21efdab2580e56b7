# SPDX-License-Identifier: BSD-2-Clause
"""A running interface whose GID changes with the routes to the peers, or the addresses of its net device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.underlay import ROUTED4, ROUTED6, gateway
from tests.netns.routed import confine, hwaddr, live_peers, met, reaches, route, start

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]


@pytest.fixture
def two(request: pytest.FixtureRequest, sh: Sh) -> Iterator[NamespaceLab]:
    """Two hosts in two networks, without interfaces; their devices have link-local addresses, too."""
    with NamespaceLab(2, start=False, underlay=request.param) as lab:
        confine(lab)
        for host in lab.hosts:
            sh(host, f"ip address add fe80::{host.number}/64 dev eth0 nodad")
            host.device = "soft:eth0"
        yield lab


on_ipv4 = pytest.mark.parametrize("two", [ROUTED4], indirect=True, ids=["ipv4"])
on_ipv6 = pytest.mark.parametrize("two", [ROUTED6], indirect=True, ids=["ipv6"])


def _gid(host: Host) -> str:
    return str(host.ask("show")["gid"]).removeprefix("::ffff:")


def _interfaces(host: Host, sh: Sh) -> str:
    """Return the addresses of the kernel's interfaces, and their indices."""
    lines = sh(host, "ip -o address show dev ib0; ip -o address show dev ib0.8001").splitlines()
    return "\n".join(sorted(line.split("valid_lft")[0].rstrip("\\ ") for line in lines))


def _goes_on(host: Host, sh: Sh, before: str) -> None:
    """The daemon, the interfaces and their addresses are those of before."""
    assert host.ended() is None, host.log()
    assert _interfaces(host, sh) == before
    assert "Traceback" not in host.log()


def _meets(lab: NamespaceLab, until: Until) -> None:
    """Both hosts are peers; a connection to a former address may last until TCP gives up."""
    first, second = lab.hosts
    until(lambda: hwaddr(first) in live_peers(second) and hwaddr(second) in live_peers(first))
    for target in (second.ipv4.ip, second.ipv6.ip, "10.88.0.2"):
        until(lambda target=target: reaches(first, target))


@on_ipv4
@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_a_first_host_with_another_address_goes_on_with_its_child(
    two: NamespaceLab, mode: str, sh: Sh, until: Until
) -> None:
    """Its peer knows it by the former address only, so it has to find the peer."""
    first = two.hosts[0]
    for host in two.hosts:
        host.options = ["--mode", mode]
        host.device = "soft:eth0,ipv4"
    start(two, until)
    for host in two.hosts:
        host.ask("child-add", pkey="0x8001", address=[f"10.88.0.{host.number}/24"])
    _meets(two, until)
    sent = first.ask("stats")["fabric.tx_packets"]
    before = _interfaces(first, sh)
    assert first.wire_ip is not None
    moved = first.wire_ip + 5
    sh(first, f"ip address del {first.wire_ip}/24 dev eth0; ip address add {moved}/24 dev eth0")
    sh(first, f"ip route replace default via {gateway(1, 4)}")
    until(lambda: _gid(first) == str(moved))
    _meets(two, until)
    _goes_on(first, sh, before)
    assert first.ask("show")["gid_by"] == f"the loss of the address {first.wire_ip}"
    assert f"the underlay is {moved} now, not {first.wire_ip}, by the loss" in first.log()
    assert first.ask("stats")["fabric.tx_packets"] > sent  # the counters go on


@on_ipv6
def test_the_gid_follows_the_route_to_the_peers(two: NamespaceLab, sh: Sh, until: Until) -> None:
    first, second = two.hosts
    start(two, until)
    for host in two.hosts:
        host.ask("child-add", pkey="0x8001", address=[f"10.88.0.{host.number}/24"])
    _meets(two, until)
    before = _interfaces(second, sh)
    sh(second, "ip address add fd78:2::9/64 dev eth0 nodad")
    sh(second, f"ip -6 route replace default via {gateway(2, 6)} dev eth0 src fd78:2::9")
    until(lambda: _gid(second) == "fd78:2::9")
    assert second.ask("show")["gid_by"].startswith(f"the route to the peer {first.wire_ip} by ")
    _meets(two, until)
    _goes_on(second, sh, before)


@on_ipv4
def test_peers_that_come_later_choose_the_underlay(
    two: NamespaceLab, tmp_path: Path, sh: Sh, until: Until
) -> None:
    first, second = two.hosts
    peers = tmp_path / "peers"
    peers.write_text("fe80::77\n")
    second.peer, second.options = None, ["--peers-file", str(peers)]
    two.start()
    assert _gid(second) == "fe80::2"
    peers.write_text(f"{first.wire_ip}\n")
    until(lambda: _gid(second) == str(second.wire_ip))
    until(lambda: met(two.hosts))
    until(lambda: reaches(first, second.ipv4.ip))


@on_ipv4
def test_each_rail_has_an_underlay_of_its_own(two: NamespaceLab, sh: Sh, until: Until) -> None:
    """The kernel's route to the peer leads over the first rail as long as that is up."""
    first, second = two.hosts
    assert two.router is not None
    router = two.router.path.name
    sh(second, f"ip link add eth1 mtu 9000 type veth peer name q2 netns {router} mtu 9000")
    route(two, "ip address add 10.79.2.1/24 dev q2; ip link set q2 up")
    sh(second, "ip link set eth1 up && ip address add fe80::12/64 dev eth1 nodad")
    sh(second, "ip address add 10.79.2.2/24 dev eth1")
    sh(second, "ip route add default via 10.79.2.1 dev eth1 metric 2000")
    second.options = ["--device", "soft:eth1"]
    start(two, until)
    assert _gid(second) == str(second.wire_ip)
    sh(second, "ip link set eth0 down")
    until(lambda: _gid(second) == "10.79.2.2")
    until(lambda: met(two.hosts))
    until(lambda: reaches(first, second.ipv4.ip))
    rails = {rail["device"]: rail["state"] for rail in second.ask("show")["rails"]}
    assert rails == {"soft:eth0": "down", "soft:eth1": "active"}


def test_a_link_with_multicast_follows_another_link_local_address(sh: Sh, until: Until) -> None:
    with NamespaceLab(2) as lab:
        first, second = lab.hosts
        for host in lab.hosts:
            host.ask("child-add", pkey="0x8001", address=[f"10.88.0.{host.number}/24"])
        until(lambda: reaches(first, "10.88.0.2"))
        before = _interfaces(second, sh)
        sh(second, "ip -6 address flush dev eth0; ip address add fe80::9/64 dev eth0 nodad")
        until(lambda: _gid(second) == "fe80::9")
        for target in (second.ipv4.ip, second.ipv6.ip, "10.88.0.2"):
            until(lambda target=target: reaches(first, target))
        _goes_on(second, sh, before)
