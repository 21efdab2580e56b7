# SPDX-License-Identifier: BSD-2-Clause
"""The interface receives the groups that programs join, whether or not the kernel's reports reach it."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ipoibu.host.netlink import Netlink
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.conftest import Until

# linux/if_packet.h
SOL_PACKET, PACKET_ADD_MEMBERSHIP = 263, 1
PACKET_MR_MULTICAST, PACKET_MR_ALLMULTI = 0, 2

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]


def state(host: Host, group: str) -> str | None:
    found = [one["state"] for one in host.ask("mcast") if group in one["groups"]]
    return found[0] if found else None


@contextmanager
def receiver(host: Host, group: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run socat as a member of the group; it ends after one packet."""
    process = host.namespace.popen(
        ["socat", "-u", f"UDP4-RECV:{port},ip-add-membership={group}:ib0,reuseaddr", "STDOUT"],
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def assert_received(sender: Host, process: subprocess.Popen[bytes], group: str, port: int) -> None:
    done = sender.run(
        [
            "sh",
            "-c",
            f"echo hello | socat -u - UDP4-DATAGRAM:{group}:{port},ip-multicast-if={sender.ipv4.ip}",
        ]
    )
    assert done.returncode == 0, done.stderr
    assert process.stdout is not None
    assert process.stdout.readline() == b"hello\n"


def test_a_link_local_group_that_the_kernel_does_not_report_is_received(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    """Without reports for 224.0.0.x, as hosts with VRRP or OSPF often are."""
    first, second = lab.hosts
    sh(second, "sysctl -qw net.ipv4.igmp_link_local_mcast_reports=0")
    try:
        with receiver(second, "224.0.0.118", 5118) as process:
            until(lambda: state(second, "224.0.0.118") == "member")
            assert_received(first, process, "224.0.0.118", 5118)
        until(lambda: state(second, "224.0.0.118") is None)
    finally:
        sh(second, "sysctl -qw net.ipv4.igmp_link_local_mcast_reports=1")


def test_a_group_is_joined_and_left_while_every_report_is_lost(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, second = lab.hosts
    sh(second, "tc qdisc replace dev ib0 root pfifo limit 0")  # drops every packet of the host
    try:
        with receiver(second, "239.4.5.6", 5119) as process:
            until(lambda: state(second, "239.4.5.6") == "member")
            assert_received(first, process, "239.4.5.6", 5119)
        until(lambda: state(second, "239.4.5.6") is None)
    finally:
        sh(second, "tc qdisc del dev ib0 root")


def test_the_kernel_says_when_a_packet_socket_wants_all_groups(lab: NamespaceLab) -> None:
    """A multicast router's mode has the same counter (IFLA_ALLMULTI)."""
    host = lab.hosts[1]

    def wants_all() -> bool:
        with Netlink() as netlink:
            link = netlink.link("ib0")
            return link is not None and link.receives_all

    assert not host.namespace.inside(wants_all)
    with host.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as packets:
        request = struct.pack("=iHH8s", host.interface_index(), PACKET_MR_ALLMULTI, 0, bytes(8))
        packets.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, request)
        assert host.namespace.inside(wants_all)
    assert not host.namespace.inside(wants_all)


def test_a_packet_socket_cannot_name_a_group_of_a_tun(lab: NamespaceLab) -> None:
    """A TUN has no hardware addresses, so PACKET_MR_MULTICAST has nothing that a membership could say."""
    host = lab.hosts[1]
    with host.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as packets:
        request = struct.pack("=iHH8s", host.interface_index(), PACKET_MR_MULTICAST, 8, bytes(8))
        with pytest.raises(OSError, match="Invalid argument"):
            packets.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, request)
