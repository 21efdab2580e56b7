# SPDX-License-Identifier: BSD-2-Clause
"""What guests of a TAP do beside sending packets: DHCP, duplicate detection, groups, take-over."""

from __future__ import annotations

import ipaddress
import json
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.netns.behind import inside, reaches
from tests.netns.conftest import Until
from tests.netns.detection import long_detection
from tests.netns.test_dhcp_clients import running
from tests.netns.test_ethernet import GUESTS, MACS, Bridged, bridged
from tests.netns.test_handoff import join, udhcpc

__all__ = ["bridged"]  # pytest finds it here

pytestmark = pytest.mark.netns

SERVER = [
    *["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root", "--log-dhcp"],
    *["--interface=ib0", "--dhcp-range=10.77.0.100,10.77.0.200,255.255.255.0,120"],
    *["--dhcp-leasefile=/run/leases", "--dhcp-authoritative", "--no-ping"],
]


def holder(bridged: Bridged, address: str) -> str | None:
    """Return the MAC of the guest that has an address."""
    listed = bridged.host.ask("guests")
    return next((it["mac"] for it in listed if it["kind"] == "guest" and it["ip"] == address), None)


def test_a_guest_has_a_lease_of_a_server_of_the_link(
    bridged: Bridged, tmp_path: Path, until: Until
) -> None:
    guest, far = bridged.guests[0], str(bridged.far.ipv4.ip)
    until(lambda: reaches(guest, far))
    inside(guest, "ip -4 address flush dev eth0")
    with running(bridged.far, tmp_path, SERVER) as server:
        until(lambda: "DHCP, IP range" in server.log)
        with running(guest, tmp_path, udhcpc(tmp_path, "eth0")) as client:
            until((tmp_path / "bound").exists)
            until(lambda: reaches(guest, far))
            assert MACS[0] in server.log, "the client identifier"
            before = bridged.counter("engine.dhcp_restored")
            client.process.send_signal(signal.SIGUSR1)  # renew: this goes to the server alone
            until((tmp_path / "renew").exists)
            assert bridged.counter("engine.dhcp_restored") > before
    inside(guest, "ip -4 address flush dev eth0", f"ip address add {GUESTS[0][0]}/24 dev eth0")


def dhcpd(work: Path) -> list[str]:
    config, leases = work / "dhcpd.conf", work / "dhcpd.leases"
    config.write_text(
        "authoritative;\n"
        "subnet 10.77.0.0 netmask 255.255.255.0 { range 10.77.0.100 10.77.0.200; }\n"
    )
    leases.touch()
    command = ["dhcpd", "-4", "-f", "-d", "-cf", str(config), "-lf", str(leases), "--no-pid"]
    return [*command, "eth0"]


def kea(work: Path) -> list[str]:
    logger = {
        "name": "kea-dhcp4",
        "severity": "INFO",
        "output_options": [{"output": "stdout"}],
    }
    config = {
        "interfaces-config": {"interfaces": ["eth0"]},
        "lease-database": {"type": "memfile", "persist": False},
        "subnet4": [
            {"id": 1, "subnet": "10.77.0.0/24", "pools": [{"pool": "10.77.0.100 - 10.77.0.200"}]}
        ],
        "loggers": [logger],
    }
    path = work / "kea.json"
    path.write_text(json.dumps({"Dhcp4": config}))
    return ["kea-dhcp4", "-c", str(path)]


@pytest.mark.parametrize(
    ("server", "started"),
    [(dhcpd, "Server starting service"), (kea, "DHCP4_STARTED")],
    ids=["dhcpd", "kea"],
)
def test_a_server_behind_the_bridge_serves_guests_and_hosts_of_the_link(
    bridged: Bridged,
    server: Callable[[Path], list[str]],
    started: str,
    tmp_path: Path,
    until: Until,
) -> None:
    """Both take the request of the host from Ethernet by a raw socket, and answer there."""
    guest, place = bridged.guests
    until(lambda: reaches(place, str(bridged.far.ipv4.ip)))
    inside(guest, "ip -4 address flush dev eth0")
    works = tmp_path / "guest", tmp_path / "host"
    for work in works:
        work.mkdir()
    with running(place, tmp_path, server(tmp_path)) as served:
        until(lambda: started in served.log)
        with running(guest, works[0], udhcpc(works[0], "eth0")):
            until((works[0] / "bound").exists)
        with running(bridged.far, works[1], udhcpc(works[1], "ib0")):
            until((works[1] / "bound").exists)
    leases = [
        dict(
            line.split("=", 1) for line in (work / "bound").read_text().splitlines() if "=" in line
        )
        for work in works
    ]
    assert leases[0]["ip"] != leases[1]["ip"]
    assert {it["serverid"] for it in leases} == {GUESTS[1][0]}
    bridged.far.run(["ip", "address", "del", f"{leases[1]['ip']}/24", "dev", "ib0"])
    inside(guest, "ip -4 address flush dev eth0", f"ip address add {GUESTS[0][0]}/24 dev eth0")


def test_a_duplicate_address_is_found_across_the_link(bridged: Bridged, until: Until) -> None:
    guest, address = bridged.guests[0], str(bridged.far.ipv6.ip)
    until(lambda: reaches(bridged.guests[1], address))
    with long_detection(guest):
        inside(guest, f"ip address add {address}/64 dev eth0")
        try:
            until(lambda: "dadfailed" in guest.run(["ip", "-6", "address", "show", "eth0"]).stdout)
        finally:
            inside(guest, f"ip address del {address}/64 dev eth0")
    until(lambda: reaches(bridged.guests[1], address))


@pytest.mark.parametrize("group", ["239.1.2.3", "ff15::123"])
def test_a_guest_receives_the_group_that_it_joins_and_the_interface_leaves_it(
    bridged: Bridged, group: str, until: Until
) -> None:
    guest, far = bridged.guests[1], bridged.far
    family = socket.AF_INET if ":" not in group else socket.AF_INET6

    def joined() -> bool:
        groups = bridged.host.ask("mcast")
        return any(group in it["groups"] and it["state"] == "member" for it in groups)

    receiver = guest.socket(family, socket.SOCK_DGRAM)
    sender = far.namespace.socket(family, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.settimeout(0.2)
        receiver.bind(("", 7000))
        join(guest, receiver, group)
        until(joined)
        index = far.namespace.inside(lambda: socket.if_nametoindex("ib0"))
        if ipaddress.ip_address(group).version == 4:
            choice = struct.pack("4s4si", bytes(4), bytes(4), index)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, choice)
        else:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        until(lambda: _arrives(sender, receiver, group))
    until(lambda: not joined())


def _arrives(sender: socket.socket, receiver: socket.socket, group: str) -> bool:
    sender.sendto(b"hello", (group, 7000))
    try:
        return receiver.recv(100) == b"hello"
    except TimeoutError:
        return False


@pytest.mark.parametrize("number", [0, 1])
def test_an_address_that_another_guest_announces_moves_to_it(
    bridged: Bridged, number: int, until: Until
) -> None:
    first, second = bridged.guests
    address, bits = GUESTS[0][number], (24, 64)[number]
    until(lambda: reaches(bridged.far, address))
    until(lambda: holder(bridged, address) == MACS[0])
    inside(first, f"ip address del {address}/{bits} dev eth0")
    inside(
        second,
        "sysctl -qw net.ipv4.conf.eth0.arp_notify=1 net.ipv6.conf.eth0.ndisc_notify=1",
        f"ip address add {address}/{bits} dev eth0 {'nodad' if number else ''}".strip(),
        f"ip link set eth0 address {MACS[1]}",  # the kernel announces its addresses then
    )
    try:
        until(lambda: holder(bridged, address) == MACS[1])
        until(lambda: reaches(bridged.far, address))
    finally:
        inside(second, f"ip address del {address}/{bits} dev eth0")
        inside(
            first, f"ip address add {address}/{bits} dev eth0 {'nodad' if number else ''}".strip()
        )
