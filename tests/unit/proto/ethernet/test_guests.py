# SPDX-License-Identifier: BSD-2-Clause
"""The addresses of the guests: learning, rivals, moves, static bindings, full tables."""

from __future__ import annotations

import logging
import random
from ipaddress import IPv4Address, IPv6Address
from typing import TypeGuard

import pytest

from ipoibu.base.addr import IpAddress, Mac
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import (
    ETHERNET_ANNOUNCED_AT_ONCE,
    ETHERNET_ANSWER_S,
    ETHERNET_ASKS_BURST,
    ETHERNET_CHECK_S,
    ETHERNET_CHECKS,
    ETHERNET_PROBE_S,
    ETHERNET_STATIC_MAX,
)
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Count, Log, SetGuest
from ipoibu.proto.ethernet.binding import State
from ipoibu.proto.ethernet.guests import Guests
from ipoibu.proto.ethernet.macs import hashed
from ipoibu.proto.ethernet.queue_pairs import QueuePairs
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.groups.groups import Groups
from ipoibu.wire import arp, ethernet_arp
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame
from ipoibu.wire.ethernet_arp import EthernetArp
from ipoibu.wire.mgid import solicited_node
from ipoibu.wire.ndisc import ALL_NODES, Message, NeighbourAdvertisement, NeighbourSolicitation
from ipoibu.wire.ndopt import LinkLayer
from tests.doubles.ethernet_bench import (
    GUEST,
    GUEST2,
    GUEST2_IP,
    GUEST_IP,
    GUEST_V6,
    NOBODY,
    OUR,
    PEER,
    PEER_IP,
    Lan,
    with_option,
)
from tests.doubles.simulation import TEMPLATE

FOREIGN = IPv4Address("198.51.100.9")  # a host behind a guest that is a router


@pytest.fixture
def lan() -> Lan:
    lan = Lan()
    lan.clear()
    return lan


def state(lan: Lan, ip: IpAddress) -> State | None:
    return next((it.state for it in lan.ethernet.guests(lan.now) if it.ip == ip), None)


def answer(lan: Lan, ip: IPv4Address = GUEST_IP, mac: Mac = GUEST) -> None:
    """A guest answers our question."""
    lan.guest_arp(EthernetArp(arp.REPLY, mac, ip, lan.mac, NOBODY), lan.mac)


def test_the_source_of_a_packet_is_asked_and_announced(lan: Lan) -> None:
    """After our restart peers have our old hardware address for a guest that talks on."""
    mac = lan.meet()
    lan.clear()
    lan.guest_packet(mac, GUEST_IP, PEER_IP)
    assert lan.guests == {GUEST_IP: (GUEST, False)}
    [(frame, question)] = lan.arp_frames()
    assert frame.destination == GUEST
    assert (question.sender_ip, question.target_ip) == (NOBODY, GUEST_IP)
    assert not lan.sent
    answer(lan)
    assert lan.guests == {GUEST_IP: (GUEST, True)}
    assert [it for _, it in lan.sent_arp()] == [arp.request(OUR, GUEST_IP, GUEST_IP)]


def test_a_guest_may_route_for_others(lan: Lan) -> None:
    """Two guests are gateways, and a foreign host's packets come by both: nobody holds its address."""
    mac = lan.meet()
    lan.clear()
    lan.guest_packet(mac, FOREIGN, PEER_IP)
    lan.guest_packet(mac, FOREIGN, PEER_IP, GUEST2)
    assert len(lan.packets) == 2
    assert lan.guests == {FOREIGN: (GUEST, False)}
    assert not lan.counts["ethernet_spoofed"]
    lan.run(ETHERNET_CHECK_S + 1)
    assert FOREIGN not in lan.guests
    assert not lan.sent_arp(), "nobody announces a foreign host"


def test_a_live_guest_keeps_its_address(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.clear()
    lan.asks(PEER_IP, GUEST2, GUEST_IP)
    assert lan.counts == {"ethernet_spoofed": 1}
    assert not lan.sent
    assert state(lan, GUEST_IP) is State.CHECKING
    answer(lan)
    assert state(lan, GUEST_IP) is State.CLAIMED
    lan.guest_packet(lan.meet(), GUEST_IP, PEER_IP, GUEST2)
    assert lan.counts["ethernet_spoofed"] == 2
    assert lan.guests == {GUEST_IP: (GUEST, True)}


def test_a_silent_guest_loses_its_address_to_another(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.clear()
    lan.asks(PEER_IP, GUEST2, GUEST_IP)
    lan.run(ETHERNET_CHECKS * ETHERNET_ANSWER_S - 0.5)
    assert lan.guests
    lan.run(1)
    assert not lan.guests
    assert [it.destination for it, _ in lan.arp_frames()] == [GUEST] * ETHERNET_CHECKS
    lan.asks(PEER_IP, GUEST2, GUEST_IP)
    assert lan.guests == {GUEST_IP: (GUEST2, True)}


def test_an_announcement_moves_an_address_at_once(lan: Lan) -> None:
    """A virtual machine that migrated keeps its MAC; one that took an address over has another."""
    lan.asks(GUEST_IP)
    lan.clear()
    lan.asks(GUEST_IP, GUEST2, GUEST_IP)
    assert lan.guests == {GUEST_IP: (GUEST2, True)}
    assert lan.counts == {"ethernet_guest_moved": 1}
    assert [it for _, it in lan.sent_arp()] == [arp.request(OUR, GUEST_IP, GUEST_IP)]


def test_a_guest_that_moved_to_another_host_of_the_link_leaves(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.link_arp(arp.request(PEER, GUEST_IP, GUEST_IP), multicast=True)
    assert not lan.guests
    assert lan.arp_frames()[-1][1].sender_mac == hashed(PEER), "the other guests hear of it"


def test_an_ipv6_guest_that_moved_leaves_its_group(lan: Lan) -> None:
    announcement = NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, override=True)
    lan.guest_nd(announcement)
    groups = len(lan.groups)
    lan.link_nd(NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, PEER, override=True))
    lan.run(5)
    assert not lan.guests
    assert len(lan.groups) == groups - 1


def test_a_host_that_uses_a_guests_address_has_the_guest_asked(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.clear()
    lan.link_arp(arp.request(PEER, GUEST_IP, GUEST2_IP), multicast=True)
    assert state(lan, GUEST_IP) is State.CHECKING
    assert any(it.target_ip == GUEST_IP for _, it in lan.arp_frames())
    answer(lan)
    assert lan.guests == {GUEST_IP: (GUEST, True)}


def test_guests_are_asked_from_time_to_time_and_forgotten(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.run(ETHERNET_CHECK_S + 0.5)
    answer(lan)
    lan.run(ETHERNET_CHECK_S - 1)
    assert lan.guests
    lan.run(10)
    assert not lan.guests


def test_our_questions_never_look_like_a_conflict(lan: Lan) -> None:
    """RFC 5227 §2.1.1: a guest that probes takes another's probe for its address as a conflict."""
    for _ in range(3):
        lan.guest_arp(EthernetArp(arp.REQUEST, GUEST, NOBODY, ethernet_arp.NOBODY, GUEST_IP))
        lan.run(2)
    lan.link_packet(PEER_IP, GUEST_IP)
    lan.run(ETHERNET_PROBE_S - 2.5)
    assert not [it for _, it in lan.arp_frames() if it.target_ip == GUEST_IP]
    lan.asks(GUEST_IP)
    assert state(lan, GUEST_IP) is State.CLAIMED


def test_a_rivals_probe_changes_nothing(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.asks(PEER_IP, GUEST2, GUEST_IP)
    assert state(lan, GUEST_IP) is State.CHECKING
    lan.guest_arp(EthernetArp(arp.REQUEST, GUEST2, NOBODY, ethernet_arp.NOBODY, GUEST_IP))
    assert state(lan, GUEST_IP) is State.CHECKING


def test_a_guest_without_addresses_is_a_guest_no_more(lan: Lan) -> None:
    lan.asks(GUEST2_IP, GUEST2, GUEST2_IP)
    lan.link_arp(arp.request(PEER, GUEST2_IP, GUEST2_IP), multicast=True)
    lan.clear()
    lan.guest_packet(GUEST2, GUEST_IP, GUEST2_IP)
    assert lan.counts == {"ethernet_unknown_mac": 1}


def test_an_ipv4_address_has_no_solicited_node_group(lan: Lan) -> None:
    before = set(lan.groups)
    lan.asks(GUEST_IP)
    assert lan.groups == before


def test_questions_to_guests_have_a_limit() -> None:
    asked: list[IpAddress] = []
    table, context = guests(10_000, 10_000, asked)
    for number in range(int(ETHERNET_ASKS_BURST) + 10):
        table.note_seen(0, address(number), owner(1))
    assert len(asked) == ETHERNET_ASKS_BURST
    assert context.take().count(Count("ethernet_ask_limited")) == 10


def test_a_move_is_logged(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.asks(GUEST_IP, GUEST2, GUEST_IP)
    text = f"{GUEST_IP} moved from guest {GUEST} to guest {GUEST2}"
    assert Log(logging.INFO, text) in lan.effects


# -- bindings of an administrator ----------------------------------------------------------------


def test_a_static_binding_is_never_overridden() -> None:
    lan = Lan({GUEST: frozenset({GUEST_IP, GUEST_V6})})
    assert lan.guests == {GUEST_IP: (GUEST, True), GUEST_V6: (GUEST, True)}
    mac = lan.meet()
    lan.clear()
    lan.asks(GUEST_IP, GUEST2, GUEST_IP)
    lan.guest_packet(mac, GUEST_IP, PEER_IP, GUEST2)
    lan.guest_nd(NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, override=True), GUEST2)
    lan.link_arp(arp.request(PEER, GUEST_IP, GUEST_IP), multicast=True)
    assert lan.counts == {"ethernet_spoofed": 4}
    assert not lan.sent
    assert not lan.packets
    assert not lan.frames
    assert lan.guests == {GUEST_IP: (GUEST, True), GUEST_V6: (GUEST, True)}


def test_a_bound_guest_has_no_other_address_of_that_family() -> None:
    lan = Lan({GUEST: frozenset({GUEST_IP})})
    mac = lan.meet()
    lan.clear()
    lan.guest_packet(mac, GUEST2_IP, PEER_IP)
    lan.asks(PEER_IP, GUEST, GUEST2_IP)
    assert lan.counts == {"ethernet_spoofed": 2}
    lan.guest_nd(NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, override=True))
    lan.asks(PEER_IP)
    assert lan.counts == {"ethernet_spoofed": 2}, "IPv6, and its own address"
    assert lan.guests[GUEST_V6] == (GUEST, True)


def test_a_guest_bound_to_global_ipv6_keeps_its_link_local_address() -> None:
    bound = IPv6Address("fd77::11")
    lan = Lan({GUEST: frozenset({bound})})
    lan.clear()
    for address in (GUEST_V6, bound, IPv6Address("fd77::12")):
        lan.guest_nd(NeighbourAdvertisement(address, ALL_NODES, address, override=True))
    assert lan.counts == {"ethernet_spoofed": 1}
    assert set(lan.guests) == {GUEST_V6, bound}


def test_other_bindings_replace_the_old_ones() -> None:
    lan = Lan({GUEST: frozenset({GUEST_IP})})
    lan.asks(GUEST2_IP, GUEST2, GUEST2_IP)
    config = EthernetConfig({GUEST: frozenset({GUEST2_IP})})
    lan.carry_out(lan.ethernet.bind(lan.now, config))
    assert lan.guests == {GUEST2_IP: (GUEST, True)}
    lan.carry_out(lan.ethernet.bind(lan.now, EthernetConfig()))
    assert not lan.guests


def test_impossible_bindings_are_refused_in_words() -> None:
    group = Mac.parse("01:00:5e:00:00:01")
    many = frozenset(IPv4Address(it + 0x0A000001) for it in range(ETHERNET_STATIC_MAX + 1))
    for static, text in (
        ({group: frozenset({GUEST_IP})}, "not the MAC of one guest"),
        ({GUEST: frozenset({IPv4Address("224.0.0.1")})}, "not an address that a guest can have"),
        ({GUEST: frozenset({GUEST_IP}), GUEST2: frozenset({GUEST_IP})}, "is bound to"),
        ({GUEST: many}, "too many"),
    ):
        with pytest.raises(UsageError, match=text):
            EthernetConfig(static)


# -- another queue pair --------------------------------------------------------------------------


def test_all_addresses_are_announced_when_the_link_comes_back(lan: Lan) -> None:
    addresses = [IPv4Address(0x0A000100 + it) for it in range(ETHERNET_ANNOUNCED_AT_ONCE + 5)]
    for index, ip in enumerate(addresses):
        lan.asks(ip, Mac(b"\x52\x54\0\0\1" + bytes((index,))), ip)
    lan.carry_out(lan.engine.port_event(lan.now, "down"))
    lan.clear()
    lan.carry_out(lan.engine.port_event(lan.now, "up", PEER))
    assert len(lan.sent_arp()) == ETHERNET_ANNOUNCED_AT_ONCE
    lan.run(1)
    assert {it.target_ip for _, it in lan.sent_arp()} == set(addresses)
    assert {it.sender_hwaddr for _, it in lan.sent_arp()} == {PEER}


def test_the_announcement_of_an_ipv6_router_says_that_it_is_one(lan: Lan) -> None:
    """RFC 4861 §7.2.5: without the flag the hosts of the link would take another router."""
    mac = lan.meet()
    lan.clear()
    lan.guest_packet(mac, GUEST_V6, IPv6Address("fe80::2"))  # after our restart
    lan.guest_nd(advertisement(lan, is_router=True), destination=lan.mac)
    [(_, announced)] = lan.sent_nd()
    assert isinstance(announced, NeighbourAdvertisement)
    assert announced.router


def test_a_guest_that_never_advertised_is_asked_before_it_is_announced(lan: Lan) -> None:
    options = with_option(GUEST)
    target = IPv6Address("fe80::2")
    lan.guest_nd(NeighbourSolicitation(GUEST_V6, solicited_node(target), target, options=options))
    lan.carry_out(lan.engine.port_event(lan.now, "down"))
    lan.clear()
    lan.carry_out(lan.engine.port_event(lan.now, "up"))
    assert not lan.sent_nd()
    assert [message.target for _, message, _ in lan.nd_frames() if has_target(message)] == [
        GUEST_V6
    ]
    lan.guest_nd(advertisement(lan, is_router=True), destination=lan.mac)
    [(_, announced)] = lan.sent_nd()
    assert isinstance(announced, NeighbourAdvertisement)
    assert (announced.target, announced.router, announced.override) == (GUEST_V6, True, True)
    lan.sent.clear()
    lan.guest_nd(advertisement(lan, is_router=True), destination=lan.mac)
    assert not lan.sent_nd(), "once"


def advertisement(lan: Lan, *, is_router: bool) -> NeighbourAdvertisement:
    """The answer of a guest to our question."""
    asking = next(it.source for _, it, _ in lan.nd_frames() if has_target(it))
    options = with_option(GUEST, LinkLayer.TARGET)
    return NeighbourAdvertisement(
        GUEST_V6, asking, GUEST_V6, options=options, router=is_router, solicited=True
    )


def has_target(message: Message) -> TypeGuard[NeighbourSolicitation]:
    return isinstance(message, NeighbourSolicitation)


def test_a_hypervisors_notice_of_a_migration_announces_the_guest(lan: Lan) -> None:
    """QEMU sends RARP in the name of the guest."""
    lan.asks(GUEST_IP)
    lan.asks(GUEST2_IP, GUEST2, GUEST2_IP)
    lan.clear()
    for _ in range(5):
        lan.guest(Frame(BROADCAST, GUEST, EtherType.RARP, bytes(28)))
    lan.run(1)
    assert [it for _, it in lan.sent_arp()] == [arp.request(OUR, GUEST_IP, GUEST_IP)]
    lan.guest(Frame(BROADCAST, Mac.parse("52:54:00:00:00:99"), EtherType.RARP, bytes(28)))
    lan.run(1)
    assert len(lan.sent_arp()) == 1


def test_another_pump_learns_all_from_the_engine(lan: Lan) -> None:
    mac = lan.meet()
    lan.asks(GUEST_IP)
    published = lan.engine.handed_off()
    assert SetGuest(GUEST_IP, GUEST, is_firm=True) in published
    assert len(published) == 2
    assert mac in lan.sources


# -- full tables ---------------------------------------------------------------------------------


def guests(
    cap: int, cap_of_guest: int = 100, asked: list[IpAddress] | None = None
) -> tuple[Guests, EngineContext]:
    context = EngineContext(TEMPLATE, random.Random(1))
    return (
        Guests(
            context,
            Groups(context),
            {},
            ask=lambda ip, mac: None if asked is None else asked.append(ip),
            announce=lambda ip, is_router: None,
            queue_pairs=QueuePairs(context),
            cap=cap,
            cap_of_guest=cap_of_guest,
        ),
        context,
    )


def address(number: int) -> IPv4Address:
    return IPv4Address(0x0A000000 + number)


def owner(number: int) -> Mac:
    return Mac(b"\x52\x54" + number.to_bytes(4, "big"))


def known(table: Guests) -> list[IpAddress]:
    return [it.ip for it in table.snapshot(0.0)]


def test_addresses_that_nobody_claims_make_room_first() -> None:
    table, context = guests(3)
    table.note_claimed(0, address(1), owner(1), announces=False)
    table.note_seen(0, address(2), owner(2))
    table.note_seen(0, address(3), owner(3))
    table.note_seen(1, address(2), owner(2))
    table.note_claimed(2, address(4), owner(4), announces=False)
    assert known(table) == [address(1), address(2), address(4)]
    table.note_claimed(3, address(5), owner(5), announces=False)
    assert known(table) == [address(1), address(4), address(5)]
    table.note_claimed(4, address(1), owner(1), announces=False)
    table.note_claimed(5, address(6), owner(6), announces=False)
    assert known(table) == [address(1), address(5), address(6)], "silent for longest"
    assert context.take().count(Count("ethernet_guest_evicted")) == 3


def test_a_source_alone_takes_no_claimed_place() -> None:
    table, context = guests(1)
    table.note_claimed(0, address(1), owner(1), announces=False)
    assert table.note_seen(0, address(2), owner(2)), "its packets pass"
    assert known(table) == [address(1)]
    assert Count("ethernet_guests_full") in context.take()


def test_a_probe_takes_no_claimed_place() -> None:
    table, _ = guests(1)
    table.note_claimed(0, address(1), owner(1), announces=False)
    assert table.note_probed(0, address(2), owner(2))
    assert known(table) == [address(1)]


def test_static_bindings_are_never_evicted() -> None:
    table, context = guests(2)
    table.bind(0, {owner(1): frozenset({address(1), address(2)})})
    assert table.note_claimed(0, address(3), owner(3), announces=True)
    assert known(table) == [address(1), address(2)]
    assert Count("ethernet_guests_full") in context.take()


def test_one_guest_cannot_fill_the_table() -> None:
    table, _ = guests(100, cap_of_guest=4)
    table.note_claimed(0, address(1), owner(9), announces=False)
    for number in range(2, 60):
        table.note_claimed(0, address(number), owner(1), announces=False)
    assert len(table) == 5
    assert table.mac(address(1)) == owner(9)
    assert table.mac(address(59)) == owner(1)
