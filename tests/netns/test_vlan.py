# SPDX-License-Identifier: BSD-2-Clause
"""VLANs in a TAP are partitions: a guest that tags its frames, as a virtual machine or a bridge does.

The kernel of a test machine may have no VLAN interfaces, so the guest is this program: it speaks ARP and
ICMP by a packet socket on the TAP.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

import pytest

from ipoibu.base.addr import Mac
from ipoibu.daemon.control.client import Client
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.wire import arp, ethernet_arp
from ipoibu.wire.ethernet import BROADCAST
from ipoibu.wire.ethernet_arp import EthernetArp
from ipoibu.wire.ip import Ipv4, checksum
from tests.netns.conftest import Cli, Until

pytestmark = pytest.mark.netns

MAC = Mac.parse("52:54:00:00:00:01")
FAR = {0: IPv4Address("10.77.0.2"), 10: IPv4Address("10.88.0.2"), 20: IPv4Address("10.99.0.2")}
OWN = {0: IPv4Address("10.77.0.11"), 10: IPv4Address("10.88.0.11"), 20: IPv4Address("10.99.0.11")}
ARP, IPV4, VLAN = 0x0806, 0x0800, 0x8100
SOL_PACKET, PACKET_AUXDATA = 263, 8
VLAN_VALID = 0x10  # TP_STATUS_VLAN_VALID
PRIORITY = 5 << 13  # in a tag, beside the VLAN


@dataclass
class Guest:
    """Sends with a tag and hears frames with their VLAN, 0 without one.

    `priority` goes into the tags, and gives frames without a VLAN a tag, too.
    """

    socket: socket.socket
    priority: int = 0

    def send(self, vlan: int, to: Mac, kind: int, payload: bytes) -> None:
        number = vlan | self.priority
        tag = struct.pack(">HH", VLAN, number) if number else b""
        self.socket.send(to.raw + MAC.raw + tag + struct.pack(">H", kind) + payload)

    def hear(self, vlan: int, kind: int) -> bytes | None:
        """Return the payload of the next frame of this kind in the VLAN, None if none comes soon."""
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            try:
                frame, notes, *_ = self.socket.recvmsg(70000, 256)
            except TimeoutError:
                continue
            [aux] = [data for _, _, data in notes]
            status, _, _, _, _, tci = struct.unpack_from("=IIIHHH", aux)
            tagged = tci & 0xFFF if status & VLAN_VALID else 0
            if frame[:6] == MAC.raw and (tagged, frame[12:14]) == (vlan, kind.to_bytes(2, "big")):
                return bytes(frame[14:])
        return None

    def resolve(self, vlan: int) -> Mac | None:
        question = EthernetArp(arp.REQUEST, MAC, OWN[vlan], ethernet_arp.NOBODY, FAR[vlan])
        self.send(vlan, BROADCAST, ARP, question.pack())
        answer = self.hear(vlan, ARP)
        return None if answer is None else ethernet_arp.parse_untrusted(answer).sender_mac

    def reaches(self, vlan: int, size: int = 56) -> bool:
        """Ping the far host."""
        mac = self.resolve(vlan)
        if mac is None:
            return False
        echo = struct.pack(">BBHHH", 8, 0, 0, 7, 1) + bytes(size)
        echo = echo[:2] + checksum(echo).to_bytes(2, "big") + echo[4:]
        self.send(vlan, mac, IPV4, Ipv4(OWN[vlan], FAR[vlan], 1, echo).pack())
        answer = self.hear(vlan, IPV4)
        return answer is not None and answer[20] == 0 and len(answer) == 20 + len(echo)


@dataclass
class Trunk:
    lab: NamespaceLab
    guest: Guest

    @property
    def host(self) -> Host:
        return self.lab.hosts[0]


@pytest.fixture(scope="module", params=["on", "off"])
def trunk(request: pytest.FixtureRequest) -> Iterator[Trunk]:
    """The first host has a TAP with the VLANs 10 and 20, with and without offloads."""
    with NamespaceLab(start=False) as lab:
        host, far = lab.hosts
        host.addresses = []
        host.options += ["--ethernet", "--vlan", "10=0x8001", "--vlan", "20=0x8002"]
        host.options += ["--offload", request.param]
        for each in lab.hosts:
            each.start()
        for pkey, vlan in (("0x8001", 10), ("0x8002", 20)):
            far.ask("child-add", pkey=pkey, address=[f"{FAR[vlan]}/24"])
        with host.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.settimeout(0.2)
            raw.bind(("ib0", 3))  # ETH_P_ALL
            raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            yield Trunk(lab, Guest(raw))


@pytest.mark.parametrize("vlan", [0, 10, 20])
def test_frames_of_a_vlan_are_those_of_its_partition(trunk: Trunk, vlan: int, until: Until) -> None:
    until(lambda: trunk.guest.reaches(vlan))
    until(lambda: trunk.guest.reaches(vlan, 2044 - 28))
    name = {0: "ib0", 10: "ib0.8001", 20: "ib0.8002"}[vlan]
    with Client(name, trunk.host.namespace.path) as client:
        listed = client.request("guests")
    held = {it["ip"] for it in listed if it["kind"] == "guest" and it["mac"] == str(MAC)}
    assert str(OWN[vlan]) in held
    assert not held & ({str(it) for it in OWN.values()} - {str(OWN[vlan])})


@pytest.mark.parametrize("vlan", [0, 10])
def test_priorities_end_at_the_tap(trunk: Trunk, vlan: int, until: Until) -> None:
    """A tag with a priority alone (VLAN 0) is none."""
    before = trunk.host.ask("stats")["tx_vlan"]
    urgent = Guest(trunk.guest.socket, PRIORITY)
    until(lambda: urgent.reaches(vlan))
    until(lambda: urgent.reaches(vlan, 2044 - 28))
    assert trunk.host.ask("stats")["tx_vlan"] == before


def test_a_vlan_without_a_partition_is_a_counted_drop_that_the_doctor_explains(
    trunk: Trunk, cli: Cli
) -> None:
    before = trunk.host.ask("stats")["tx_vlan"]
    trunk.guest.send(30, BROADCAST, ARP, bytes(28))
    deadline = time.monotonic() + 5
    while trunk.host.ask("stats")["tx_vlan"] == before:
        assert time.monotonic() < deadline
    findings = json.loads(cli(trunk.host, "doctor", "-j").stdout)
    [found] = [it for it in findings if it["check"] == "guest_vlan"]
    assert found["remedy"] == "start ib0 with --vlan VLAN=P_KEY"
    assert {it["name"]: it["vlan"] for it in trunk.host.ask("child-list")} == {
        "ib0.8001": 10,
        "ib0.8002": 20,
    }


def test_a_vlan_that_ends_and_comes_back_works_again(trunk: Trunk, until: Until) -> None:
    trunk.host.ask("child-del", pkey="0x8001")
    before = trunk.host.ask("stats")["tx_vlan"]
    assert not trunk.guest.reaches(10)
    until(lambda: trunk.host.ask("stats")["tx_vlan"] > before)
    trunk.host.ask("child-add", pkey="0x8001")
    until(lambda: trunk.guest.reaches(10))
    until(lambda: trunk.guest.reaches(0))
