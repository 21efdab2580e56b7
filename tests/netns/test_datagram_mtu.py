# SPDX-License-Identifier: BSD-2-Clause
"""Datagrams as long as the wire carries: on 1500-byte Ethernet, and beyond InfiniBand's MTUs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., object]


def _whole_pings(until: Until, host: Host, other: Host, mtu: int) -> None:
    """Ping with packets of exactly `mtu` bytes and a little less, which no host may cut."""
    for address, headers in ((other.ipv4.ip, 28), (other.ipv6.ip, 48)):
        for size in (mtu - headers, mtu - headers - 1, mtu - headers - 3):
            until(lambda to=str(address), size=size: _ping(host, to, size).returncode == 0)


def _ping(host: Host, address: str, size: int) -> subprocess.CompletedProcess[str]:
    return host.run(["ping", "-c", "1", "-W", "5", "-M", "do", "-s", str(size), address])


def _mtu_to(host: Host, address: str) -> int:
    """Return the MTU by which the kernel of a host refuses longer packets to an IPv4 address."""
    ip_mtu = 14  # <linux/in.h>; Python has no name for it
    code = f"""
from socket import *
asked = socket(AF_INET, SOCK_DGRAM)
asked.connect(({address!r}, 9))
print(asked.getsockopt(IPPROTO_IP, {ip_mtu}))
"""
    done = host.run([sys.executable, "-c", code])
    return int(done.stdout)


@pytest.mark.parametrize(
    ("wire", "options", "mtu"),
    [
        (1500, (), 1424),
        (1356, (), 1280),
        (2119, (), 2040),
        (9000, ("--mtu", "8924"), 8924),
        (9000, ("--mtu", "3001"), 3001),
        (65535, ("--mtu", "9140"), 9140),
    ],
)
def test_the_whole_mtu_passes_in_both_families(
    sh: Sh, until: Until, wire: int, options: tuple[str, ...], mtu: int
) -> None:
    with NamespaceLab(start=False) as lab:
        first, second = lab.hosts
        for host in lab.hosts:
            sh(host, f"ip link set eth0 mtu {wire}")
            host.options += options
        lab.start()
        assert [host.ask("show")["mtu"] for host in lab.hosts] == [mtu, mtu]
        _whole_pings(until, first, second, mtu)
        too_long = _ping(first, str(second.ipv4.ip), mtu - 27)
        assert "essage too long" in too_long.stderr  # iputils words it in two ways
        assert _mtu_to(first, str(second.ipv4.ip)) == mtu
        assert first.ask("stats")["fabric.tx_refused"] == 0


def test_connected_mode_works_on_1500_bytes(sh: Sh, until: Until) -> None:
    with NamespaceLab(start=False) as lab:
        first, second = lab.hosts
        for host in lab.hosts:
            sh(host, "ip link set eth0 mtu 1500")
            host.options += ["--mode", "connected"]
        lab.start()
        big = ["ping", "-c", "1", "-W", "2", "-s", "60000", str(second.ipv6.ip)]
        until(lambda: first.run(big).returncode == 0)  # the first packets go by datagram
        done = sh(
            first, f"ip netns exec {second.namespace.name} iperf3 -s -1 -D;"
            f" until ip netns exec {second.namespace.name} ss -Hltn | grep -q :5201; do sleep 0.1; done;"
            f"iperf3 -c {second.ipv4.ip} -t 1 > /dev/null && echo streamed"
        )  # fmt: skip
        assert done == "streamed\n"


def test_a_datagram_longer_than_a_hosts_receives_is_counted_there(sh: Sh, until: Until) -> None:
    """Two hosts with different MTUs: an error of the administrator, which no host can mend."""
    with NamespaceLab(start=False) as lab:
        first, second = lab.hosts
        second.options += ["--mtu", "8924"]
        lab.start()
        until(lambda: _ping(second, str(first.ipv4.ip), 56).returncode == 0)
        before = first.ask("stats")["fabric.drop_too_long"]
        second.run(["ping", "-c", "1", "-W", "1", "-M", "do", "-s", "5000", str(first.ipv4.ip)])
        until(lambda: first.ask("stats")["fabric.drop_too_long"] > before)


def test_a_wire_that_shrinks_takes_the_link_down_until_it_is_back(sh: Sh, until: Until) -> None:
    with NamespaceLab(start=False) as lab:
        first, second = lab.hosts
        for host in lab.hosts:
            sh(host, "ip link set eth0 mtu 1500")
        lab.start()
        sh(first, "ip link set eth0 mtu 1400")
        until(lambda: first.ask("show")["state"] == "down")
        sh(first, "ip link set eth0 mtu 1500")
        until(lambda: first.ask("show")["state"] == "up")
        until(lambda: _ping(first, str(second.ipv6.ip), 1424 - 48).returncode == 0)
