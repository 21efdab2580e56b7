# SPDX-License-Identifier: BSD-2-Clause
"""Links whose wire drops multicast: hosts that `--peer` has told of each other (docs/unicast.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]

# What the wire of such a network does to RoCE datagrams to groups.
NO_MULTICAST: Final = """nft -f - << END
table inet wire {
    chain out {
        type filter hook output priority 0
        oifname eth0 udp dport 4791 ip6 daddr ff00::/8 counter drop
    }
}
END"""


def _underlay(host: Host) -> str:
    return f"192.0.2.{host.number}"


def _peers(host: Host) -> set[str]:
    return {row["peer"] for row in host.ask("conn") if row["state"] == "live"}


def _hwaddrs(hosts: list[Host], but: Host) -> set[str]:
    return {host.ask("show")["hwaddr"] for host in hosts if host is not but}


def _met(hosts: list[Host]) -> bool:
    return all(_peers(host) == _hwaddrs(hosts, host) for host in hosts)


def _reaches(host: Host, target: str, *options: str) -> bool:
    return host.run(["ping", "-c", "1", "-W", "2", *options, target]).returncode == 0


@pytest.fixture
def three(sh: Sh) -> Iterator[Lab]:
    """Three hosts without interfaces; the second and the third know the first."""
    with Lab(3, start=False) as lab:
        for host in lab.hosts:
            sh(host, f"ip address add {_underlay(host)}/24 dev eth0")
            sh(host, NO_MULTICAST)
            host.options += ["--peer", _underlay(lab.hosts[0])]
        yield lab


def test_without_peers_such_a_wire_carries_nothing(sh: Sh) -> None:
    with Lab(start=False) as lab:
        for host in lab.hosts:
            sh(host, NO_MULTICAST)
        lab.start()
        first, second = lab.hosts
        assert not _reaches(first, str(second.ipv4.ip))


def test_every_host_reaches_every_other_in_both_families(three: Lab, until: Until) -> None:
    three.start()
    until(lambda: _met(three.hosts), 20)
    for host in three.hosts:
        for other in three.hosts:
            if other is not host:
                for ip in (other.ipv4.ip, other.ipv6.ip):
                    until(lambda host=host, ip=ip: _reaches(host, str(ip)), 10)
                    assert _reaches(host, str(ip), "-s", "1900", "-M", "do")
    assert all(host.ask("stats")["fabric.unicast_rx_stranger"] == 0 for host in three.hosts)


def test_multicast_reaches_the_members_of_a_group_only(three: Lab, sh: Sh, until: Until) -> None:
    three.start()
    until(lambda: _met(three.hosts), 20)
    first, second, third = three.hosts
    group = "239.7.7.7"
    listen = f"exec socat -u UDP4-RECV:7777,ip-add-membership={group}:ib0 STDOUT"
    listener = second.namespace.popen(["sh", "-c", listen + " > /dev/null"])
    try:
        until(lambda: group in sh(second, "ip maddress show dev ib0"))
        sh(first, f"ip route add {group}/32 dev ib0")

        def copies() -> int:
            before = int(first.ask("stats")["fabric.unicast_tx_copies"])
            sh(first, f"echo hello | socat -u STDIN UDP4-SENDTO:{group}:7777")
            return int(first.ask("stats")["fabric.unicast_tx_copies"]) - before

        # Other messages to groups may fall into the time between; one member is one copy.
        until(lambda: copies() == 1, 20)
        until(lambda: second.ask("stats")["rx_packets"] > 0)
    finally:
        listener.kill()
        listener.wait()
    assert third.ask("stats")["fabric.unicast_rx_stranger"] == 0


def test_connected_mode_meets_by_peers_too(three: Lab, until: Until) -> None:
    for host in three.hosts:
        host.options += ["--mode", "connected"]
    three.start()
    first, second, _ = three.hosts
    target = str(second.ipv4.ip)
    # The kernel remembers the datagram MTU of a packet that was too big, so a small one goes first.
    until(lambda: _reaches(first, target) and first.ask("conn"), 30)
    until(lambda: all(row["state"] == "live" for row in first.ask("conn")), 30)
    assert _reaches(first, target, "-s", "60000", "-M", "do")


def test_a_host_that_was_killed_comes_back(three: Lab, until: Until) -> None:
    three.start()
    until(lambda: _met(three.hosts), 20)
    first, second, third = three.hosts
    second.kill()
    until(lambda: len(_peers(first)) == len(_peers(third)) == 1, 30)
    second.start()
    until(lambda: _met(three.hosts), 30)
    until(lambda: _reaches(third, str(second.ipv4.ip)), 20)


def test_a_port_that_is_taken_is_one_line(three: Lab, sh: Sh) -> None:
    first = three.hosts[0]
    taken = first.namespace.popen(["socat", "-u", "TCP6-LISTEN:4792,ipv6only=0", "STDOUT"])
    try:
        done = first.run(
            ["sh", "-c", "until ss -ltn | grep -q :4792; do sleep 0.05; done"], timeout_s=10
        )
        assert done.returncode == 0
        with pytest.raises(Exception, match=r"TCP port 4792 for the peers: .*--mesh-port"):
            first.start()
    finally:
        taken.kill()
        taken.wait()
