# SPDX-License-Identifier: BSD-2-Clause
"""Addresses that are not the interface's own: on the loopback interface, as the kernel treats them on a
veth."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace
from tests.netns.conftest import Cli, Until

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]


def test_unnumbered_hosts_reach_each_other(lab: NamespaceLab, sh: Sh, until: Until) -> None:
    """IPv4 on the loopback interface only, and a host route over the link."""
    pair = list(zip(lab.hosts, reversed(lab.hosts), strict=True))
    try:
        for host, other in pair:
            sh(host, f"ip address add 10.255.0.{host.number}/32 dev lo")
            route = f"10.255.0.{other.number}/32 dev ib0 src 10.255.0.{host.number}"
            sh(host, f"ip address del {host.ipv4} dev ib0; ip route add {route}")
        for host, other in pair:
            ping = ["ping", "-c1", "-W2", f"10.255.0.{other.number}"]
            until(lambda host=host, ping=ping: host.run(ping).returncode == 0)
    finally:
        for host, _ in pair:
            sh(host, f"ip address del 10.255.0.{host.number}/32 dev lo")
            sh(host, f"ip address replace {host.ipv4} dev ib0")


def test_arp_ignore_of_the_interface_ends_the_answers_for_another_one(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, second = lab.hosts

    def answers() -> bool:
        return first.run(["ping", "-c1", "-W1", "10.255.1.2"]).returncode == 0

    def is_silent() -> bool:
        first.ask("neigh-flush")  # an entry outlives the change until it is verified
        return not answers()

    try:
        sh(second, "ip address add 10.255.1.2/32 dev lo")
        sh(first, "ip route add 10.255.1.2/32 dev ib0")
        until(answers)
        sh(second, "sysctl -qw net.ipv4.conf.ib0.arp_ignore=1")
        until(is_silent)
        sh(second, "sysctl -qw net.ipv4.conf.ib0.arp_ignore=0")
        until(answers)
    finally:
        sh(second, "ip address del 10.255.1.2/32 dev lo")
        sh(first, "ip route del 10.255.1.2/32 dev ib0")


def test_an_administrator_adds_replaces_and_removes_neighbours(
    lab: NamespaceLab, cli: Cli, until: Until
) -> None:
    """`ip neigh` has no effect on a TUN."""
    first, second = lab.hosts
    ip, hwaddr = str(second.ipv4.ip), second.ask("show")["hwaddr"]
    wrong = "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:77:77"

    def neigh(*words: str) -> str:
        done = cli(first, "neigh", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def answers() -> bool:
        return first.run(["ping", "-c1", "-W2", ip]).returncode == 0

    until(answers)
    assert "has an entry" in cli(first, "neigh", "add", ip, "lladdr", hwaddr, "dev", "ib0").stderr
    neigh("replace", ip, "lladdr", wrong, "dev", "ib0", "nud", "permanent")
    assert not answers()
    (entry,) = [line for line in neigh("ib0").splitlines() if line.startswith(f"{ip} ")]
    assert f"lladdr {wrong}" in entry
    assert " PERMANENT" in entry
    neigh("flush", "dev", "ib0")
    assert not answers()
    neigh("replace", ip, "lladdr", hwaddr, "dev", "ib0")
    until(answers)
    neigh("del", ip, "dev", "ib0")
    left = [line for line in neigh("ib0").splitlines() if line.startswith(f"{ip} ")]
    assert not any(" PERMANENT" in line for line in left), "the host may have asked meanwhile"
    until(answers)


def test_proxy_entries_and_the_subnet_router_anycast_address_are_answered_for(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    """The second host is a router for 10.77.0.200 and fd77:9::200, which it has on its loopback interface."""
    first, second = lab.hosts
    commands = (
        "sysctl -qw net.ipv4.conf.ib0.forwarding=1",
        "sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.ib0.proxy_ndp=1",
        "sysctl -qw net.ipv4.conf.ib0.arp_ignore=1",  # so that only the entry has it answer
        "ip address add 10.77.0.200/32 dev lo",
        "ip -6 address add fd77:9::200/128 dev lo",
        "ip -6 address add fd77:9::2/64 dev ib0",
        "ip neigh add proxy 10.77.0.200 dev ib0",
        "ip neigh add proxy fd77:9::200 dev ib0",
    )
    undo = (
        "ip neigh del proxy 10.77.0.200 dev ib0",
        "ip neigh del proxy fd77:9::200 dev ib0",
        "ip -6 address del fd77:9::2/64 dev ib0",
        "ip -6 address del fd77:9::200/128 dev lo",
        "ip address del 10.77.0.200/32 dev lo",
        "sysctl -qw net.ipv4.conf.ib0.arp_ignore=0",
        "sysctl -qw net.ipv6.conf.all.forwarding=0 net.ipv6.conf.ib0.proxy_ndp=0",
        "sysctl -qw net.ipv4.conf.ib0.forwarding=0",
    )
    try:
        sh(first, "ip -6 address add fd77:9::1/64 dev ib0")
        for command in commands:
            sh(second, command)
        for target in ("10.77.0.200", "fd77:9::200", "fd77:9::"):

            def answers(target: str = target) -> bool:
                return first.run(["ping", "-c1", "-W1", target]).returncode == 0

            until(answers)
    finally:
        for command in undo:
            second.run(["sh", "-c", command])
        sh(first, "ip -6 address del fd77:9::1/64 dev ib0")


def test_proxy_arp_answers_for_the_hosts_behind_a_router(
    lab: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], cli: Cli, sh: Sh, until: Until
) -> None:
    first, router = lab.hosts
    behind, _ = pods

    def answers(target: str) -> bool:
        return first.run(["ping", "-c1", "-W1", target]).returncode == 0

    def inside(command: str) -> None:
        process = behind.popen(["sh", "-c", command])
        assert process.wait(60) == 0

    sh(router, f"ip link add v0 type veth peer name v1 netns {behind.name}")
    try:
        sh(router, "ip address add 192.0.2.1/24 dev v0; ip link set v0 up")
        inside("ip address add 192.0.2.9/24 dev v1; ip link set v1 up")
        inside("ip route add default via 192.0.2.1")
        sh(router, "sysctl -qw net.ipv4.conf.ib0.forwarding=1 net.ipv4.conf.v0.forwarding=1")
        sh(first, "ip route add 192.0.2.0/24 dev ib0")
        assert not answers("192.0.2.9")
        sh(router, "sysctl -qw net.ipv4.conf.ib0.proxy_arp=1")
        until(lambda: answers("192.0.2.9"))
        assert not answers("10.77.0.99"), "the route to it leads back"
        sh(router, "sysctl -qw net.ipv4.conf.ib0.proxy_arp=0 net.ipv4.conf.ib0.proxy_arp_pvlan=1")
        ask = ("ping", "-I", "ib0", "-c", "1", "-W", "3000")
        until(lambda: cli(first, *ask, "10.77.0.99").returncode == 0)
        assert cli(first, *ask, "192.0.2.9").returncode == 1, "the route to it leads elsewhere"
    finally:
        sh(first, "ip route del 192.0.2.0/24 dev ib0")
        for name in ("forwarding", "proxy_arp", "proxy_arp_pvlan"):
            sh(router, f"sysctl -qw net.ipv4.conf.ib0.{name}=0")
        sh(router, "ip link del v0")


def test_the_addresses_of_a_local_route_are_answered_for(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    """All of them, as a web server with a whole network has them (AnyIP)."""
    first, second = lab.hosts
    sh(first, "ip route add 10.254.0.0/16 dev ib0")
    try:
        assert first.run(["ping", "-c1", "-W1", "10.254.3.4"]).returncode != 0
        sh(second, "ip route add local 10.254.0.0/16 dev lo")
        until(lambda: first.run(["ping", "-c1", "-W1", "10.254.3.5"]).returncode == 0)
        sh(second, "ip route del local 10.254.0.0/16 dev lo")
        until(lambda: first.run(["ping", "-c1", "-W1", "10.254.3.6"]).returncode != 0)
    finally:
        second.run(["ip", "route", "del", "local", "10.254.0.0/16", "dev", "lo"])
        sh(first, "ip route del 10.254.0.0/16 dev ib0")


def test_with_arp_filter_the_way_back_decides(
    lab: NamespaceLab, cli: Cli, sh: Sh, until: Until
) -> None:
    """A host answers on the interface by which its packets to the asking host leave."""
    first, second = lab.hosts

    def answers(target: object) -> bool:
        asked = cli(first, "ping", "-I", "ib0", str(target), "-c", "1", "-W", "3000")
        return asked.returncode == 0

    def answers_for_both() -> bool:
        return answers("10.255.2.2") and answers(second.ipv4.ip)

    def answers_for_none() -> bool:
        return not answers("10.255.2.2") and not answers(second.ipv4.ip)

    elsewhere = f"{first.ipv4.ip}/32 dev v0"
    try:
        sh(second, "ip address add 10.255.2.2/32 dev lo")
        sh(second, "ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up")
        sh(second, f"sysctl -qw net.ipv4.conf.ib0.arp_filter=1; ip route add {elsewhere}")
        until(answers_for_none)
        sh(second, f"ip route del {elsewhere}")
        until(answers_for_both)
        sh(second, f"ip route add {elsewhere}")
        until(answers_for_none)
        sh(second, "sysctl -qw net.ipv4.conf.ib0.arp_filter=0")
        until(answers_for_both)
    finally:
        second.run(["sysctl", "-qw", "net.ipv4.conf.ib0.arp_filter=0"])
        second.run(["ip", "link", "del", "v0"])
        second.run(["ip", "address", "del", "10.255.2.2/32", "dev", "lo"])
