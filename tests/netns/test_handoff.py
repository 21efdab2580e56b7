# SPDX-License-Identifier: BSD-2-Clause
"""Guests behind a bridge, and hosts of the link: Linux and Debian's DHCP judge what the engine makes of
their ARP, neighbour discovery, DHCP, IGMP and MLD."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

import pytest

from ipoibu.base.addr import Mac
from ipoibu.lab.namespace import LabNamespace
from ipoibu.proto.ethernet.macs import hashed
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.neigh.dad import State
from ipoibu.wire.mgid import of_group
from tests.doubles.ethernet_host import EthernetHost
from tests.doubles.simulation import PARAMS, Host
from tests.netns.conftest import Until
from tests.netns.detection import long_detection
from tests.netns.slow_link import MTU, SlowLink
from tests.netns.test_dhcp_clients import running

pytestmark = pytest.mark.netns

GUEST, GUEST6 = "10.0.0.11", "fd77::11"
GUEST2, GUEST26 = "10.0.0.12", "fd77::12"
BRIDGE, BRIDGE_MAC = "10.0.0.10", "52:54:00:00:00:10"  # without one it changes with the ports
FAR, FAR6 = "10.0.0.2", "fd77::2"
BEYOND = "192.0.2.9"  # of the far host, behind its interface
MAC, MAC2 = Mac.parse("52:54:00:00:00:01"), Mac.parse("52:54:00:00:00:02")
GROUP, GROUP6 = "239.1.2.3", "ff15::123"
_SERIAL = itertools.count()


def sh(namespace: LabNamespace, *commands: str) -> str:
    out = ""
    for command in commands:
        done = namespace.run(["sh", "-c", command])
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        out += done.stdout
    return out


def reaches(namespace: LabNamespace, target: str, count: int = 1, wait_s: int = 2) -> bool:
    """Return whether one of five attempts gets answers: the slow link belongs to the test's process,
    which a busy machine may stop."""
    words = ["ping", "-c", str(count), "-i", "0.2", "-W", str(wait_s), target]
    return any(namespace.run(words).returncode == 0 for _ in range(5))


@dataclass
class World:
    """A host whose bridge has a TAP and two guests, and a far host of the link with a TUN."""

    link: SlowLink
    bridge: LabNamespace
    guest: LabNamespace
    guest2: LabNamespace
    far: LabNamespace
    tap: EthernetHost
    tun: Host

    def settle(self) -> None:
        """Wait for the end of everybody's duplicate detection."""
        deadline = time.monotonic() + 20
        while not self._is_settled():
            assert time.monotonic() < deadline, "duplicate detection has not ended"
            time.sleep(0.1)

    def _is_settled(self) -> bool:
        far = self.link.call(self.tun.engine.addresses)
        guests = (sh(place, "ip -6 address show") for place in (self.guest, self.guest2))
        return all(it.state is State.PREFERRED for it in far) and not any(
            "tentative" in it for it in guests
        )

    def holds(self, address: str, mac: Mac) -> bool:
        known = self.link.call(lambda: self.tap.guests.get(ip_address(address)))
        return bool(known == (mac, True))

    def is_joined(self, group: str) -> bool:
        mgid = of_group(ip_address(group), PARAMS.pkey, PARAMS.scope)
        return bool(self.link.call(lambda: mgid in self.tap.groups))


@contextmanager
def world(config: EthernetConfig | None = None) -> Iterator[World]:
    number = next(_SERIAL)
    with ExitStack() as stack:
        places = []
        for name in ("bridge", "guest", "guest2", "far"):
            place = LabNamespace.create(f"ipoibu-{os.getpid()}-{name}{number}")
            stack.callback(place.remove)
            places.append(place)
        bridge, guest, guest2, far = places
        link = stack.enter_context(SlowLink())
        sh(bridge, f"ip link add br0 address {BRIDGE_MAC} mtu {MTU} type bridge")
        sh(bridge, "ip link set br0 up")
        tap = link.tap(bridge, config)
        sh(
            bridge,
            f"ip link set ib0 mtu {MTU} master br0 up",
            f"ip address add {BRIDGE}/24 dev br0",
        )
        for number, (place, mac) in enumerate(((guest, MAC), (guest2, MAC2))):
            addresses = ((GUEST, GUEST6), (GUEST2, GUEST26))[number]
            sh(
                bridge,
                f"ip link add v{number} mtu {MTU} type veth"
                f" peer name eth0 mtu {MTU} address {mac} netns {place.name}",
                f"ip link set v{number} master br0 up",
            )
            sh(place, "ip link set lo up", "ip link set eth0 up")
            for address, bits in zip(addresses, (24, 64), strict=True):
                sh(place, f"ip address add {address}/{bits} dev eth0")
        tun = link.tun(far, f"{FAR}/24", f"{FAR6}/64")
        sh(
            far,
            f"ip link set lo up; ip link set ib0 mtu {MTU} up",
            f"ip address add {FAR}/24 dev ib0; ip address add {FAR6}/64 dev ib0 nodad",
            f"ip address add {BEYOND}/32 dev lo",
        )
        made = World(link, bridge, guest, guest2, far, tap, tun)
        made.settle()
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture
def fresh() -> Iterator[World]:
    with world() as made:
        yield made


def test_guests_and_hosts_of_the_link_reach_each_other(shared: World) -> None:
    """Duplicate detection of the guests' kernels runs across the link meanwhile."""
    for here, target in (
        (shared.guest, FAR),
        (shared.far, GUEST),
        (shared.far, GUEST26),
        (shared.guest2, FAR6),
        (shared.guest2, FAR),
        (shared.guest, GUEST2),
        (shared.bridge, FAR),
        (shared.far, BRIDGE),
    ):
        assert reaches(here, target), f"{here.name} to {target}"
    assert shared.holds(GUEST, MAC)
    assert shared.holds(GUEST26, MAC2)
    cache = sh(shared.guest, f"ip neigh show {FAR}")
    assert str(hashed(shared.tun.hwaddr)) in cache
    assert not shared.tap.counts["ethernet_spoofed"]


def test_packets_of_the_link_find_a_guest_that_has_said_nothing(fresh: World) -> None:
    assert reaches(fresh.far, GUEST)
    assert reaches(fresh.far, GUEST6, count=3)


def test_a_route_by_a_host_of_the_link_works(shared: World) -> None:
    """The guest chose the next hop: no host of the link has the destination."""
    sh(shared.guest, f"ip route replace {BEYOND} via {FAR}")
    assert reaches(shared.guest, BEYOND)


def test_a_full_packet_passes_and_the_guest_learns_a_smaller_mtu(shared: World) -> None:
    done = shared.guest.run(["ping", "-c1", "-M", "do", "-s", str(MTU - 28), FAR])
    assert done.returncode == 0
    sh(shared.guest, "ip link set eth0 mtu 3000")
    try:
        for name in ("v0", "br0"):
            shared.bridge.run(["ip", "link", "set", name, "mtu", "3000"])
        shared.bridge.run(["ip", "link", "set", "ib0", "mtu", "3000"])
        done = shared.guest.run(["ping", "-c1", "-W10", "-M", "do", "-s", str(MTU), FAR])
        assert f"mtu = {MTU}" in done.stdout
    finally:
        sh(shared.guest, "ip link set eth0 mtu 2044", "ip route flush cache")
        for name in ("v0", "ib0", "br0"):
            sh(shared.bridge, f"ip link set {name} mtu {MTU}")


def test_a_duplicate_address_of_a_guest_is_found_across_the_link(
    shared: World, until: Until
) -> None:
    with long_detection(shared.guest):
        sh(shared.guest, f"ip address add {FAR6}/64 dev eth0")
        try:
            until(lambda: "dadfailed" in sh(shared.guest, "ip -6 address show dev eth0"))
        finally:
            sh(shared.guest, f"ip address del {FAR6}/64 dev eth0")
    assert reaches(shared.guest2, FAR6)


def dnsmasq(device: str) -> list[str]:
    return [
        *[
            "dnsmasq",
            "--no-daemon",
            "--conf-file=/dev/null",
            "--port=0",
            "--user=root",
            "--log-dhcp",
        ],
        *f"--interface={device} --dhcp-range=10.0.0.100,10.0.0.200,255.255.255.0,120".split(),
        *["--dhcp-leasefile=/run/leases", "--dhcp-authoritative", "--no-ping"],
    ]


def udhcpc(work: Path, device: str) -> list[str]:
    """Its script writes a file for each event, and sets the address."""
    script = work / "lease.sh"
    script.write_text(
        f"#!/bin/sh\nenv > {work}/$1\n"
        "case $1 in bound) ip address add $ip/$mask dev $interface;; esac\n"
    )
    script.chmod(0o755)
    return ["udhcpc", "-i", device, "-f", "-T", "1", "-A", "1", "-s", str(script)]


def test_a_guest_has_a_lease_of_a_server_of_the_link(
    fresh: World, tmp_path: Path, until: Until
) -> None:
    sh(fresh.guest, "ip -4 address flush dev eth0")
    with running(fresh.far, tmp_path, dnsmasq("ib0")) as server:
        until(lambda: "DHCP, IP range" in server.log)
        with running(fresh.guest, tmp_path, udhcpc(tmp_path, "eth0")) as client:
            until((tmp_path / "bound").exists)
            until(lambda: reaches(fresh.guest, FAR))
            assert str(MAC) in server.log, "it names the guest by its MAC"
            counts = fresh.tap.counts
            restored = counts["dhcp_restored"]
            client.process.send_signal(signal.SIGUSR1)  # renew: this goes to the server alone
            until((tmp_path / "renew").exists)
            assert counts["dhcp_restored"] > restored


def test_a_host_of_the_link_has_a_lease_of_a_server_among_the_guests(
    fresh: World, tmp_path: Path, until: Until
) -> None:
    sh(fresh.far, "ip -4 address flush dev ib0")
    with running(fresh.guest, tmp_path, dnsmasq("eth0")) as server:
        until(lambda: "DHCP, IP range" in server.log)
        with running(fresh.far, tmp_path, udhcpc(tmp_path, "ib0")):
            until((tmp_path / "bound").exists)
            assert "DHCPACK" in server.log
    assert fresh.tap.counts["dhcp_rewritten"] == 0, "the request was that of an IPoIB host"


@pytest.mark.parametrize("group", [GROUP, GROUP6])
def test_a_guest_receives_the_group_that_it_joins(shared: World, group: str, until: Until) -> None:
    """The bridge snoops, too."""
    family = socket.AF_INET if ":" not in group else socket.AF_INET6
    receiver = shared.guest.socket(family, socket.SOCK_DGRAM)
    sender = shared.far.socket(family, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.settimeout(30)
        receiver.bind(("", 7000))
        join(shared.guest, receiver, group)
        until(lambda: shared.is_joined(group))
        index = shared.far.inside(lambda: socket.if_nametoindex("ib0"))
        if family == socket.AF_INET:
            choice = struct.pack("4s4si", bytes(4), bytes(4), index)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, choice)
        else:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        sender.sendto(b"hello", (group, 7000))
        assert receiver.recv(100) == b"hello"
    until(lambda: not shared.is_joined(group))


def join(place: LabNamespace, receiver: socket.socket, group: str) -> None:
    index = place.inside(lambda: socket.if_nametoindex("eth0"))
    address = ip_address(group)
    if isinstance(address, IPv4Address):
        request = struct.pack("4s4si", address.packed, bytes(4), index)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    else:
        assert isinstance(address, IPv6Address)
        request = struct.pack("16si", address.packed, index)
        receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)


@pytest.mark.parametrize("address", [GUEST, GUEST6])
def test_an_address_that_another_guest_takes_over_moves(
    fresh: World, address: str, until: Until
) -> None:
    assert reaches(fresh.far, address)
    until(lambda: fresh.holds(address, MAC))
    sh(fresh.guest, "ip link set eth0 down")
    bits = 24 if address == GUEST else 64
    sh(
        fresh.guest2,
        "sysctl -qw net.ipv4.conf.eth0.arp_notify=1 net.ipv6.conf.eth0.ndisc_notify=1",
        f"ip address add {address}/{bits} dev eth0",
        f"ip link set eth0 address {MAC2}",  # the kernel announces its addresses then
    )
    until(lambda: fresh.holds(address, MAC2))
    until(lambda: reaches(fresh.far, address))


def test_guests_go_on_when_the_engine_restarts(fresh: World, until: Until) -> None:
    """Their caches have the same MAC for the far host; the far host hears of our new queue pair."""
    for here, target in ((fresh.guest, FAR), (fresh.guest2, FAR6)):
        assert reaches(here, target)
    before = sh(fresh.guest, f"ip neigh show {FAR}").split()[4]
    fresh.tap = fresh.link.restart(fresh.tap)
    assert reaches(fresh.guest, FAR, count=4)
    assert reaches(fresh.guest2, FAR6, count=4)
    until(lambda: reaches(fresh.far, GUEST))
    assert sh(fresh.guest, f"ip neigh show {FAR}").split()[4] == before


def test_a_guest_cannot_take_a_bound_address(until: Until) -> None:
    config = EthernetConfig({MAC: frozenset({ip_address(GUEST), ip_address(GUEST6)})})
    with world(config) as made:
        assert reaches(made.far, GUEST)
        sh(made.guest, "ip link set eth0 down")
        sh(made.guest2, f"ip address add {GUEST}/24 dev eth0")
        assert made.guest2.run(["ping", "-c1", "-W1", "-I", GUEST, FAR]).returncode == 1
        until(lambda: made.tap.counts["ethernet_spoofed"])
        assert reaches(made.guest2, FAR), "with its own address"
        assert made.holds(GUEST, MAC)
