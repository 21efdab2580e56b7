# SPDX-License-Identifier: BSD-2-Clause
"""Connected mode on the built-in HCA: RFC 4755 between real network stacks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]

MTU = 65520
LARGE = 60000


@pytest.fixture(scope="module")
def connected() -> Iterator[Lab]:
    with Lab(options=["--mode", "connected"]) as lab:
        yield lab


@contextmanager
def _iperf_server(host: Host) -> Iterator[None]:
    command = ["iperf3", "-s", "-1", "--forceflush"]
    with host.namespace.popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if b"listening" in line:
                break
        try:
            yield
        finally:
            server.kill()


def _live(host: Host, role: str = "active") -> list[dict[str, Any]]:
    return [c for c in host.ask("conn") if c["role"] == role and c["state"] == "live"]


def _ip(host: Host, version: int = 4) -> str:
    return str(next(address.ip for address in host.addresses if address.version == version))


def _connect(sh: Sh, until: Until, one: Host, other: Host) -> None:
    sh(one, f"ping -c 1 -W 3 {_ip(other)}")
    until(lambda: _live(one) and _live(other))


def test_the_interface_has_the_large_mtu_and_says_so(connected: Lab) -> None:
    shown = connected.hosts[0].ask("show")
    assert (shown["mtu"], shown["mode"], shown["ib_mtu"]) == (MTU, "connected", 2048)
    assert shown["hwaddr"].startswith("80:")  # RFC 4755 §3.1: we accept connections


def test_the_first_packet_makes_a_connection_each_way(connected: Lab, sh: Sh, until: Until) -> None:
    one, other = connected.hosts[:2]
    _connect(sh, until, one, other)
    (mine,), (theirs,) = _live(one), _live(other, "passive")
    assert mine["mtu"] == MTU
    assert (mine["qpn"], mine["remote_qpn"]) == (theirs["remote_qpn"], theirs["qpn"])
    assert len(_live(one, "passive")) == 1  # profile `linux`: a connection for each direction


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("size", [56, 2017, LARGE])
def test_pings_of_every_size_come_back_unfragmented(
    connected: Lab, sh: Sh, until: Until, version: int, size: int
) -> None:
    one, other = connected.hosts[:2]
    _connect(sh, until, one, other)
    before = one.ask("stats")["tx_connected_packets"]
    sh(one, f"ping -{version} -c 3 -i 0.2 -W 3 -M do -s {size} {_ip(other, version)}")
    assert one.ask("stats")["tx_connected_packets"] >= before + 3


def test_streams_cross_whole(connected: Lab, sh: Sh, until: Until) -> None:
    one, other = connected.hosts[:2]
    _connect(sh, until, one, other)
    before = other.ask("stats")
    with _iperf_server(other):
        done = one.run(["iperf3", "-t", "1", "-c", _ip(other)])
    assert done.returncode == 0, done.stdout
    after = other.ask("stats")
    assert after["rx_superframes"] > before["rx_superframes"]
    assert after["rx_bad_superframe"] == before["rx_bad_superframe"]


def test_a_datagram_host_is_reached_with_its_smaller_mtu(sh: Sh, until: Until) -> None:
    with Lab(hosts=3, options=["--mode", "connected"], start=False) as lab:
        lab.hosts[2].options = []
        lab.start()
        one, other, small = lab.hosts
        _connect(sh, until, one, other)
        sh(one, f"ping -c 1 -W 3 {_ip(small)}")
        refused = one.run(["ping", "-c", "1", "-W", "2", "-M", "do", "-s", str(LARGE), _ip(small)])
        assert refused.returncode != 0
        assert "mtu" in (refused.stdout + refused.stderr).lower()  # learned from our ICMP error
        assert f"mtu {2044}" in sh(one, f"ip route get {_ip(small)}")
        sh(one, f"ping -c 2 -i 0.2 -W 3 -s {LARGE} {_ip(small)}")  # in fragments
        sh(one, f"ping -c 2 -i 0.2 -W 3 -M do -s {LARGE} {_ip(other)}")
        assert all(c["mtu"] == MTU for c in _live(one))


def test_a_host_that_restarts_is_connected_to_again(sh: Sh, until: Until) -> None:
    with Lab(options=["--mode", "connected"]) as lab:
        one, other = lab.hosts
        _connect(sh, until, one, other)
        (before,) = _live(one)
        other.kill()
        other.start()
        until(lambda: one.run(["ping", "-c", "1", "-W", "1", _ip(other)]).returncode == 0)
        until(lambda: any(c["peer"] != before["peer"] for c in _live(one)), 30)
        sh(one, f"ping -c 2 -i 0.2 -W 3 -M do -s {LARGE} {_ip(other)}")
