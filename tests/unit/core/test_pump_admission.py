# SPDX-License-Identifier: BSD-2-Clause
"""The pump passes on the ARP and ND messages that the engine needs, and bounds the others."""

from __future__ import annotations

import itertools
import time
from ipaddress import IPv4Address, IPv6Address

import pytest

from ipoibu import _core
from ipoibu.base import c_limits, limits
from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of
from ipoibu.proto.neigh.host_addresses import ALL_IPV4
from ipoibu.proto.neigh.proxy_networks import ALL_IPV6
from ipoibu.wire import arp
from ipoibu.wire.encap import Encap, EtherType
from ipoibu.wire.ndisc import ALL_NODES, NeighbourAdvertisement, NeighbourSolicitation

MTU = 2044
OURS, OTHER, PEER = (IPv4Address(f"10.0.0.{i}") for i in (1, 2, 3))
OURS6, OTHER6, PEER6 = (IPv6Address(f"fe80::{i}") for i in (1, 2, 3))
SEND = 0


class World:
    """A host with two addresses, and a peer that sends to it."""

    def __init__(self, event_bytes: int = 1 << 20) -> None:
        switch = _core.MemorySwitch(1)
        gids = [Gid.parse(f"fe80::{name}") for name in "ab"]
        self.ports = [_core.MemoryPort(switch, gid.raw) for gid in gids]
        self.pump, self.peer = (
            _core.Pump(port, _core.QueueDevice(), mtu=MTU, event_bytes=event_bytes)
            for port in self.ports
        )
        self.hwaddr, self.sender = (
            HwAddr(Qpn(port.qpn), gid) for port, gid in zip(self.ports, gids, strict=True)
        )
        for address in (OURS, OURS6):
            self.pump.own_set(key_of(address), True)

    def send(self, message: arp.Arp | NeighbourSolicitation | NeighbourAdvertisement) -> None:
        """The peer sends a message, and the host gets it."""
        kind = EtherType.ARP if isinstance(message, arp.Arp) else EtherType.IPV6
        to = Destination(self.hwaddr.gid, self.hwaddr.qpn)
        self.peer.send_frame(to, Encap(kind, message.pack()).pack())
        self.run()

    def ask(self, sender: IPv4Address, target: IPv4Address) -> None:
        self.send(arp.request(self.sender, sender, target))

    def answer(self, sender: IPv4Address) -> None:
        self.send(arp.Arp(arp.REPLY, self.sender, sender, self.hwaddr, OURS))

    def seek(self, target: IPv4Address) -> None:
        """The host's engine asks for an address."""
        request = arp.request(self.hwaddr, OURS, target)
        to = Destination(self.sender.gid, self.sender.qpn)
        self.pump.send_frame(to, Encap(EtherType.ARP, request.pack()).pack())
        self.run()

    def run(self) -> None:
        while self.peer.step() + self.pump.step():
            pass
        self.peer.events()

    def know(self, ip: IPv4Address | IPv6Address) -> None:
        to = Destination(self.sender.gid, self.sender.qpn)
        self.pump.neigh_set(key_of(ip), SEND, to, MTU)
        self.run()

    def take(self, kind: int) -> list[_core.Event]:
        """Return the events of that kind, and discard the others."""
        taken = []
        while events := self.pump.events():
            taken += [event for event in events if event.type == kind]
        return taken

    def counted(self, name: str) -> int:
        return self.pump.counters()[name]


@pytest.fixture
def world() -> World:
    world = World()
    world.run()
    return world


def test_all_of_our_addresses_fit() -> None:
    singles = limits.ADDRESSES_MAX + limits.HOST_ADDRESSES_MAX + limits.PROXIES_MAX
    assert singles + len((ALL_IPV4, ALL_IPV6)) == c_limits.ADMISSION_OWN_MAX


def test_a_request_of_a_stranger_to_another_host_does_not_reach_the_engine(world: World) -> None:
    world.ask(OTHER, PEER)
    world.send(NeighbourSolicitation(OTHER6, PEER6, PEER6, world.sender))
    world.send(NeighbourAdvertisement(OTHER6, ALL_NODES, OTHER6, world.sender, override=True))
    assert world.pump.events() == []
    assert world.counted("rx_unconcerned") == 3


def test_messages_that_concern_us_reach_the_engine(world: World) -> None:
    world.ask(OTHER, OURS)
    world.ask(OURS, OURS)  # a claim
    world.send(NeighbourSolicitation(OTHER6, OURS6, OURS6, world.sender))
    world.send(NeighbourAdvertisement(OTHER6, OURS6, OTHER6, world.sender, solicited=True))
    world.know(PEER)
    world.know(PEER6)
    world.ask(PEER, PEER)  # an announcement
    world.ask(IPv4Address(0), PEER)  # a probe
    world.send(NeighbourAdvertisement(PEER6, ALL_NODES, PEER6, world.sender, override=True))
    assert len(world.pump.events()) == 7
    assert world.counted("rx_unconcerned") == 0


def test_an_address_that_is_no_longer_ours_is_another_hosts(world: World) -> None:
    world.pump.own_set(key_of(OURS), False)
    world.ask(OTHER, OURS)
    assert world.counted("rx_unconcerned") == 1


def test_a_host_without_addresses_hears_everything(world: World) -> None:
    for address in (OURS, OURS6):
        world.pump.own_set(key_of(address), False)
    world.ask(OTHER, PEER)
    assert len(world.pump.events()) == 1


def test_one_sender_is_bounded_and_an_answer_to_us_is_not(world: World) -> None:
    began = time.monotonic()
    for i in itertools.count():  # a slow test spans several seconds
        world.ask(OTHER + i % 200, OURS)
        if world.counted("rx_control_limited"):
            break
    frames = world.take(_core.EVENT_FRAME)
    world.seek(PEER)
    world.answer(PEER)
    assert len(world.pump.events()) == 1
    assert len(frames) <= c_limits.ADMISSION_PER_SENDER * (2 + time.monotonic() - began)


def test_the_engine_learns_once_a_second_that_the_pump_refuses_messages(world: World) -> None:
    for i in itertools.count():
        world.ask(OTHER + i % 200, OURS)
        if world.counted("rx_control_limited") >= 2 * c_limits.ADMISSION_PER_SENDER:
            break
    reports = world.take(_core.EVENT_CONTROL_LIMITED)
    assert 1 <= len(reports) < world.counted("rx_control_limited") / 10
    assert (reports[0].src_qpn, reports[0].sgid) == (world.sender.qpn, world.sender.gid.raw)


def test_answers_find_room_in_a_ring_that_strangers_have_filled() -> None:
    world = World(event_bytes=4096)
    world.run()
    for i in range(100):
        world.ask(OTHER + i, OURS)
    assert world.counted("rx_control_limited") > 0
    world.seek(PEER)
    world.answer(PEER)
    assert PEER.packed in world.pump.events()[-1].data
    assert world.counted("rx_event_ring_full") == 0


def test_false_answers_to_one_question_are_bounded(world: World) -> None:
    world.seek(PEER)
    for _ in range(40 * c_limits.ADMISSION_PER_SENDER):
        world.answer(PEER)
        if world.counted("rx_control_limited"):
            break
    assert world.counted("rx_control_limited") > 0


def test_a_proxy_gets_the_arp_requests_for_all_addresses() -> None:
    world = World()
    world.ask(PEER, OTHER)
    assert world.take(_core.EVENT_FRAME) == []
    world.pump.own_set(key_of(IPv4Address(0)), True)
    world.ask(PEER, OTHER)
    assert len(world.take(_core.EVENT_FRAME)) == 1
    world.send(NeighbourSolicitation(PEER6, OTHER6, OTHER6, world.sender))
    assert world.take(_core.EVENT_FRAME) == []
    world.pump.own_set(key_of(IPv4Address(0)), False)
    world.ask(PEER, OTHER)
    assert world.take(_core.EVENT_FRAME) == []


def test_a_proxy_gets_the_solicitations_for_all_addresses() -> None:
    world = World()
    world.pump.own_set(key_of(ALL_IPV6), True)
    world.send(NeighbourSolicitation(PEER6, OTHER6, OTHER6, world.sender))
    assert len(world.take(_core.EVENT_FRAME)) == 1
    world.ask(PEER, OTHER)
    assert world.take(_core.EVENT_FRAME) == []
    world.pump.own_set(key_of(ALL_IPV6), False)
    world.send(NeighbourSolicitation(PEER6, OTHER6, OTHER6, world.sender))
    assert world.take(_core.EVENT_FRAME) == []
