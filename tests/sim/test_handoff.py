# SPDX-License-Identifier: BSD-2-Clause
"""Guests behind an Ethernet host converse with hosts of a terrible network, through restarts and hours."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from ipoibu.base.addr import Mac
from ipoibu.base.limits import ETHERNET_CHECK_S, ETHERNET_MEMBERSHIP_S
from ipoibu.proto.ethernet.macs import hashed
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.wire import arp, ethernet, ethernet_arp, ip
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame
from ipoibu.wire.ethernet_arp import EthernetArp
from tests.doubles.ethernet_host import EthernetHost
from tests.doubles.network import TERRIBLE
from tests.doubles.simulation import TEMPLATE, Host, Simulation, packet

FAR, FAR_IP = "10.0.0.2", IPv4Address("10.0.0.2")


class Guest:
    """A machine on the host's bridge, with an ARP cache that forgets nothing and asks while it waits."""

    def __init__(self, bridge: Bridge, number: int) -> None:
        self.mac = Mac(b"\x52\x54\0\0\0" + bytes((number,)))
        self.ip = IPv4Address(0x0A000064 + number)
        self.cache: dict[IPv4Address, Mac] = {}
        self.received: list[bytes] = []
        self._bridge = bridge
        bridge.guests.append(self)

    def send(self, target: IPv4Address, payload: bytes) -> None:
        mac = self.cache.get(target)
        if mac is None:
            question = EthernetArp(arp.REQUEST, self.mac, self.ip, ethernet_arp.NOBODY, target)
            self._emit(BROADCAST, EtherType.ARP, question.pack())
        else:
            self._emit(mac, EtherType.IPV4, packet(str(self.ip), str(target), payload))

    def take(self, raw: bytes) -> None:
        frame = ethernet.parse_untrusted(raw)
        if frame.destination not in (BROADCAST, self.mac):
            return
        if frame.ethertype == EtherType.ARP:
            self._take_arp(ethernet_arp.parse_untrusted(frame.payload))
        elif frame.ethertype == EtherType.IPV4 and frame.destination == self.mac:
            self.received.append(ip.parse_untrusted(frame.payload).payload)

    def _take_arp(self, message: EthernetArp) -> None:
        if (
            message.target_ip == self.ip and not message.is_probe
        ) or message.sender_ip in self.cache:
            self.cache[message.sender_ip] = message.sender_mac
        if message.operation == arp.REQUEST and message.target_ip == self.ip:
            reply = EthernetArp(arp.REPLY, self.mac, self.ip, message.sender_mac, message.sender_ip)
            self._emit(message.sender_mac, EtherType.ARP, reply.pack())

    def _emit(self, destination: Mac, kind: EtherType, payload: bytes) -> None:
        self._bridge.send(Frame(destination, self.mac, kind, payload).pack())


class Bridge:
    """The guests of one Ethernet host; every frame takes another turn of the clock."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.guests: list[Guest] = []
        self.host = self.start()

    def start(self) -> EthernetHost:
        template = replace(TEMPLATE, ethernet=EthernetConfig())
        host = self.simulation.plug(EthernetHost, template)
        host.open(self.flood)
        host.start()
        self.host = host
        return host

    def send(self, raw: bytes) -> None:
        clock = self.simulation.clock
        clock.at(clock.now, lambda: self.host.guest(raw))

    def flood(self, raw: bytes) -> None:
        clock = self.simulation.clock
        for guest in self.guests:
            clock.at(clock.now, lambda guest=guest: guest.take(raw))  # type: ignore[misc]


def world(seed: int, guests: int = 3) -> tuple[Simulation, Bridge, Host]:
    simulation = Simulation(seed, TERRIBLE)
    bridge = Bridge(simulation)
    for number in range(1, guests + 1):
        Guest(bridge, number)
    far = simulation.host(f"{FAR}/24")
    simulation.run(5)
    return simulation, bridge, far


def converse(simulation: Simulation, bridge: Bridge, far: Host) -> bool:
    """Send between the far host and each guest until all has arrived, or for a minute."""
    for guest in bridge.guests:
        guest.received.clear()
    far.received.clear()
    for _ in range(240):
        for guest in bridge.guests:
            guest.send(FAR_IP, b"from " + guest.mac.raw)
            far.send(packet(FAR, str(guest.ip), b"to " + guest.mac.raw))
        simulation.run(0.25)
        to_all = all(b"to " + it.mac.raw in it.received for it in bridge.guests)
        if to_all and all(far.got(b"from " + it.mac.raw) for it in bridge.guests):
            return True
    return False


@pytest.mark.parametrize("seed", range(5))
def test_guests_and_a_host_converse_on_a_terrible_network(seed: int) -> None:
    simulation, bridge, far = world(seed)
    assert converse(simulation, bridge, far)
    assert {it.cache[FAR_IP] for it in bridge.guests} == {hashed(far.hwaddr)}


@pytest.mark.parametrize("seed", range(5))
def test_they_go_on_after_a_restart_on_either_side(seed: int) -> None:
    simulation, bridge, far = world(seed)
    assert converse(simulation, bridge, far)
    bridge.host.kill()
    bridge.start()
    assert converse(simulation, bridge, far)
    far = simulation.restart(far, f"{FAR}/24")
    simulation.run(5)
    assert converse(simulation, bridge, far)


def test_an_hour_leaves_nothing_behind_a_guest_that_has_gone() -> None:
    simulation, bridge, far = world(1)
    assert converse(simulation, bridge, far)
    gone = bridge.guests.pop()
    simulation.run(2 * ETHERNET_CHECK_S + ETHERNET_MEMBERSHIP_S)
    assert gone.ip not in bridge.host.guests
    assert {it.ip for it in bridge.guests} <= set(bridge.host.guests)
    assert converse(simulation, bridge, far)
    assert bridge.host.engine.ethernet is not None
    assert len(bridge.host.engine.ethernet.neighbours(simulation.now)) <= 1
