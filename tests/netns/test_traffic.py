# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs over the interfaces: ping, iperf3, senders and receivers of multicast."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]


@pytest.mark.parametrize("size", [0, 56, 1000, 2044 - 28, 2044 - 27, 8000, 60000])
def test_pings_of_every_size_come_back_over_ipv4(lab: NamespaceLab, sh: Sh, size: int) -> None:
    sh(lab.hosts[0], f"ping -c3 -i0.05 -W10 -s{size} {lab.hosts[1].ipv4.ip}")


@pytest.mark.parametrize("size", [0, 56, 1000, 2044 - 48, 2044 - 47, 8000, 60000])
def test_pings_of_every_size_come_back_over_ipv6(lab: NamespaceLab, sh: Sh, size: int) -> None:
    sh(lab.hosts[0], f"ping -6 -c3 -i0.05 -W10 -s{size} {lab.hosts[1].ipv6.ip}")


def test_the_largest_packet_passes_unfragmented_and_one_byte_more_does_not(
    lab: NamespaceLab, sh: Sh
) -> None:
    first, second = lab.hosts
    sh(first, f"ping -c1 -W10 -M do -s{2044 - 28} {second.ipv4.ip}")
    done = first.run(["ping", "-c1", "-W1", "-M", "do", f"-s{2044 - 27}", str(second.ipv4.ip)])
    assert done.returncode != 0


def test_link_local_addresses_reach_each_other(lab: NamespaceLab, sh: Sh) -> None:
    sh(lab.hosts[0], "ping -6 -c2 -i0.05 -W10 fe80::200:ff:fe00:2%ib0")


def test_pinging_all_nodes_is_answered_by_the_other_host(lab: NamespaceLab, until: Until) -> None:
    # Without -L, the sender's own kernel answers, too, and ping ends at its second answer.
    ping = ["ping", "-6", "-L", "-c2", "-i0.2", "-W2", "ff02::1%ib0"]
    until(lambda: "from fe80::200:ff:fe00:2%ib0" in lab.hosts[0].run(ping).stdout)


@contextmanager
def _iperf_server(host: Host) -> Iterator[None]:
    server = host.namespace.popen(
        ["iperf3", "-s", "-1", "--forceflush"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with server:
        assert server.stdout is not None
        for line in server.stdout:
            if b"listening" in line:
                break
        try:
            yield
        finally:
            server.kill()


@pytest.mark.parametrize("target", ["10.77.0.2", "fd77::2"])
@pytest.mark.parametrize("direction", [[], ["-R"]], ids=["send", "receive"])
def test_tcp_carries_data(lab: NamespaceLab, target: str, direction: list[str]) -> None:
    with _iperf_server(lab.hosts[1]):
        done = lab.hosts[0].run(["iperf3", "-J", "-n20M", "-c", target, *direction])
    assert done.returncode == 0, done.stdout
    received = json.loads(done.stdout)["end"]["sum_received"]
    assert received["bytes"] > 1_000_000


def test_udp_that_waits_for_its_receiver_loses_nothing(lab: NamespaceLab, sh: Sh) -> None:
    """Each burst fits into the TUN's queue and the receiver's socket, however slow the machine is.

    The ping resolves the neighbour: fewer packets than a burst wait for that.
    """
    first, second = lab.hosts
    sh(first, f"ping -c1 -W5 {second.ipv4.ip}")
    with (
        second.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        first.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("10.77.0.2", 5006))
        receiver.settimeout(10)
        for burst in range(60):
            datagrams = [struct.pack("!II", burst, number).ljust(1400) for number in range(32)]
            for datagram in datagrams:
                sender.sendto(datagram, ("10.77.0.2", 5006))
            assert [receiver.recv(2000) for _ in datagrams] == datagrams


# Multicast and broadcast


def _receiver(host: Host, group: str, port: int = 5007) -> socket.socket:
    index = host.interface_index()
    if ":" in group:
        member = host.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        request = socket.inet_pton(socket.AF_INET6, group) + struct.pack("=I", index)
        member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
        member.bind(("::", port))
    else:
        member = host.socket(socket.AF_INET, socket.SOCK_DGRAM)
        request = struct.pack("=4s4si", socket.inet_aton(group), bytes(4), index)
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        member.bind(("", port))
    member.settimeout(0.2)
    return member


def _groups(host: Host) -> dict[str, Any]:
    return {ip: entry for entry in host.ask("mcast") for ip in entry["groups"]}


@pytest.mark.parametrize(
    ("group", "mgid"),
    [
        ("239.1.2.3", "ff12:401b:ffff::f01:203"),  # CONFORMANCE, vector of G3
        ("ff15::1234", "ff12:601b:ffff::1234"),
    ],
)
def test_a_join_of_an_application_is_seen_and_so_is_its_end(
    lab: NamespaceLab, until: Until, group: str, mgid: str
) -> None:
    host = lab.hosts[1]
    assert group not in _groups(host)
    with _receiver(host, group):
        entry = until(lambda: _groups(host).get(group))
        assert entry["mgid"] == mgid
        until(lambda: _groups(host)[group]["state"] == "member")
    until(lambda: group not in _groups(host))


@pytest.mark.parametrize(
    ("group", "sender"),
    [
        ("239.1.2.3", "UDP4-DATAGRAM:239.1.2.3:5007,ip-multicast-if=10.77.0.1"),
        ("ff15::1234", "UDP6-DATAGRAM:[ff15::1234]:5007,so-bindtodevice=ib0"),
    ],
)
def test_a_multicast_sender_reaches_a_receiver(
    lab: NamespaceLab, sh: Sh, until: Until, group: str, sender: str
) -> None:
    first, second = lab.hosts
    with _receiver(second, group) as receiver:
        until(lambda: _groups(second).get(group, {}).get("state") == "member")

        def sent_and_received() -> bool:
            sh(first, f"echo hello | socat -u - {sender}")
            try:
                return receiver.recv(100) == b"hello\n"
            except TimeoutError:
                return False

        until(sent_and_received)


@pytest.mark.parametrize("target", ["10.77.0.255", "255.255.255.255"])
def test_broadcasts_reach_the_other_host(lab: NamespaceLab, until: Until, target: str) -> None:
    first, second = lab.hosts
    with (
        second.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        first.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("", 5008))
        receiver.settimeout(0.2)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"ib0")

        def sent_and_received() -> Any:
            sender.sendto(b"all", (target, 5008))
            try:
                return receiver.recvfrom(100)
            except TimeoutError:
                return None

        data, source = until(sent_and_received)
        assert (data, source[0]) == (b"all", "10.77.0.1")


def test_a_host_that_is_not_there_is_unreachable_and_counted(
    lab: NamespaceLab, until: Until
) -> None:
    first = lab.hosts[0]
    done = first.run(["ping", "-c3", "-W1", "-i0.2", "10.77.0.99"])
    assert done.returncode == 1
    assert "0 received" in done.stdout
    states = {entry["ip"]: entry["state"] for entry in first.ask("neigh")}
    assert states.get("10.77.0.99") in (None, "incomplete", "failed", "unreachable")
