# SPDX-License-Identifier: BSD-2-Clause
"""ARP between guests behind a TAP and hosts of the link."""

from __future__ import annotations

import pytest

from ipoibu.base.addr import Mac
from ipoibu.proto.effects import NeighAction
from ipoibu.proto.ethernet.macs import hashed, next_hop_of
from ipoibu.wire import arp, ethernet_arp
from ipoibu.wire.ethernet import BROADCAST
from ipoibu.wire.ethernet_arp import EthernetArp
from tests.doubles.ethernet_bench import (
    BROADCAST_GID,
    GUEST,
    GUEST2,
    GUEST2_IP,
    GUEST_IP,
    NOBODY,
    OTHER,
    OUR,
    PEER,
    PEER_IP,
    Lan,
)


@pytest.fixture
def lan() -> Lan:
    lan = Lan()
    lan.clear()
    return lan


def test_a_guests_request_asks_the_link_in_the_name_of_the_interface(lan: Lan) -> None:
    """H1."""
    lan.asks(PEER_IP)
    [(destination, message)] = lan.sent_arp()
    assert destination.gid == BROADCAST_GID
    assert message == arp.request(OUR, GUEST_IP, PEER_IP)
    assert lan.guests == {GUEST_IP: (GUEST, True)}


def test_the_answer_reaches_the_guest_with_the_mac_of_the_neighbour(lan: Lan) -> None:
    """H2."""
    lan.asks(PEER_IP)
    lan.link_arp(arp.Arp(arp.REPLY, PEER, PEER_IP, OUR, GUEST_IP))
    [(frame, message)] = lan.arp_frames()
    mac = hashed(PEER)
    assert (frame.destination, frame.source) == (GUEST, mac)
    assert message == EthernetArp(arp.REPLY, mac, PEER_IP, GUEST, GUEST_IP)
    assert lan.sources == {mac: PEER}
    assert mac.is_host
    assert mac.raw[0] & 2, "locally administered"


def test_a_host_of_the_link_gets_our_address_from_the_guest_itself(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.clear()
    mac = lan.meet()
    [(frame, question)] = lan.arp_frames()
    assert (frame.destination, question.target_ip) == (BROADCAST, GUEST_IP)
    assert question.target_mac == ethernet_arp.NOBODY
    lan.guest_arp(EthernetArp(arp.REPLY, GUEST, GUEST_IP, mac, PEER_IP), mac)
    [(destination, answer)] = lan.sent_arp()
    assert (destination.gid, destination.qpn) == (PEER.gid, PEER.qpn)
    assert answer == arp.Arp(arp.REPLY, OUR, GUEST_IP, PEER, PEER_IP)


def test_an_announcement_stays_one(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    assert [it for _, it in lan.sent_arp()] == [arp.request(OUR, GUEST_IP, GUEST_IP)]
    lan.link_arp(arp.request(PEER, PEER_IP, PEER_IP), multicast=True)
    [(frame, message)] = lan.arp_frames()
    assert frame.destination == BROADCAST
    assert (message.sender_mac, message.sender_ip, message.target_ip) == (
        hashed(PEER),
        PEER_IP,
        PEER_IP,
    )


def test_a_probe_holds_nothing_and_its_answer_reaches_the_guest_that_asked(lan: Lan) -> None:
    """PyTCP sees a conflict only in an answer to its own MAC, in the frame and in the message."""
    probe = EthernetArp(arp.REQUEST, GUEST, NOBODY, ethernet_arp.NOBODY, PEER_IP)
    lan.guest_arp(probe)
    assert [it for _, it in lan.sent_arp()] == [arp.request(OUR, NOBODY, PEER_IP)]
    assert not lan.guests
    lan.link_arp(arp.Arp(arp.REPLY, PEER, PEER_IP, OUR, NOBODY))
    [(frame, answer)] = lan.arp_frames()
    assert (frame.destination, frame.source) == (GUEST, hashed(PEER))
    assert answer == EthernetArp(arp.REPLY, hashed(PEER), PEER_IP, GUEST, NOBODY)
    assert not lan.ethernet.guests(lan.now), "the owner answered"


def test_an_answer_to_a_probe_of_nobody_reaches_all_guests(lan: Lan) -> None:
    lan.link_arp(arp.Arp(arp.REPLY, PEER, PEER_IP, OUR, NOBODY))
    [(frame, answer)] = lan.arp_frames()
    assert (frame.destination, answer.target_mac) == (BROADCAST, ethernet_arp.NOBODY)


def test_a_probe_of_the_link_reaches_the_guest_that_defends(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.clear()
    lan.link_arp(arp.request(PEER, NOBODY, GUEST_IP), multicast=True)
    [(_, probe)] = lan.arp_frames()
    assert (probe.sender_ip, probe.target_ip) == (NOBODY, GUEST_IP)
    assert lan.guests == {GUEST_IP: (GUEST, True)}


def test_unicast_requests_verify_a_neighbour(lan: Lan) -> None:
    mac = lan.meet()
    lan.clear()
    question = EthernetArp(arp.REQUEST, GUEST, GUEST_IP, mac, PEER_IP)
    lan.guest_arp(question, mac)
    [(destination, message)] = lan.sent_arp()
    assert destination.qpn == PEER.qpn
    assert message.target_hwaddr == PEER


def test_a_request_to_a_mac_from_before_our_restart_asks_all(lan: Lan) -> None:
    old = hashed(PEER)
    lan.guest_arp(EthernetArp(arp.REQUEST, GUEST, GUEST_IP, old, PEER_IP), old)
    [(destination, _)] = lan.sent_arp()
    assert destination.gid == BROADCAST_GID
    lan.link_arp(arp.Arp(arp.REPLY, PEER, PEER_IP, OUR, GUEST_IP))
    assert lan.arp_frames()[0][1].sender_mac == old, "the cache of the guest stays valid"


def test_a_reply_to_an_unknown_mac_is_a_counted_drop(lan: Lan) -> None:
    unknown = Mac.parse("02:00:00:00:00:99")
    lan.guest_arp(EthernetArp(arp.REPLY, GUEST, GUEST_IP, unknown, PEER_IP), unknown)
    assert not lan.sent
    assert lan.counts == {"ethernet_unknown_mac": 1}


def test_a_question_among_guests_stays_on_the_bridge(lan: Lan) -> None:
    lan.asks(GUEST2_IP, GUEST2, GUEST2_IP)
    lan.clear()
    lan.asks(GUEST2_IP)
    assert not lan.sent_arp()


def test_a_message_that_names_another_sender_is_dropped(lan: Lan) -> None:
    question = EthernetArp(arp.REQUEST, GUEST2, GUEST_IP, ethernet_arp.NOBODY, PEER_IP)
    lan.guest_arp(question, source=GUEST)
    assert not lan.sent
    assert lan.counts == {"ethernet_spoofed": 1}
    lan.clear()
    lan.link_arp(arp.request(PEER, PEER_IP, GUEST_IP), multicast=True, sender=OTHER)
    assert not lan.frames
    assert lan.counts == {"neigh_contradiction": 1}


def test_a_guest_cannot_use_the_mac_of_a_neighbour_or_ours(lan: Lan) -> None:
    for mac in (lan.meet(), lan.mac):
        lan.clear()
        lan.asks(PEER_IP, mac)
        assert not lan.sent
        assert lan.counts == {"ethernet_spoofed": 1}


def test_a_probe_for_another_guests_address_reaches_the_link_too(lan: Lan) -> None:
    """RFC 5227 §2.1.1: the link may have another owner yet."""
    lan.asks(GUEST_IP)
    lan.clear()
    probe = EthernetArp(arp.REQUEST, GUEST2, NOBODY, ethernet_arp.NOBODY, GUEST_IP)
    lan.guest_arp(probe)
    assert [it for _, it in lan.sent_arp()] == [arp.request(OUR, NOBODY, GUEST_IP)]


def test_nobody_probes_for_a_bound_address() -> None:
    lan = Lan({GUEST: frozenset({GUEST_IP})})
    lan.clear()
    lan.guest_arp(EthernetArp(arp.REQUEST, GUEST2, NOBODY, ethernet_arp.NOBODY, GUEST_IP))
    assert not lan.sent
    assert lan.counts == {"ethernet_spoofed": 1}


def test_only_an_answer_may_name_a_host_other_than_its_sender(lan: Lan) -> None:
    """A proxy of the link answers so."""
    lan.asks(PEER_IP)
    lan.clear()
    lan.link_arp(arp.Arp(arp.REPLY, PEER, PEER_IP, OUR, GUEST_IP), sender=OTHER)
    assert lan.arp_frames()[0][1].sender_mac == hashed(PEER)
    lan.clear()
    lan.link_arp(arp.request(PEER, PEER_IP, GUEST_IP), sender=OTHER)
    lan.link_arp(arp.Arp(arp.REPLY, PEER, PEER_IP, OUR, GUEST_IP), sender=OTHER, multicast=True)
    assert not lan.frames
    assert lan.counts == {"neigh_contradiction": 2}


def test_a_host_that_claims_our_hardware_address_is_ignored(lan: Lan) -> None:
    """E8."""
    lan.link_arp(arp.Arp(arp.REPLY, OUR, PEER_IP, OUR, GUEST_IP), sender=PEER)
    assert not lan.frames
    assert lan.counts == {"echo": 1}


def test_our_own_multicast_is_an_echo(lan: Lan) -> None:
    lan.link_arp(arp.request(OUR, GUEST_IP, PEER_IP), multicast=True)
    assert not lan.frames
    assert lan.counts == {"echo": 1}


def test_a_packet_to_a_neighbour_publishes_it(lan: Lan) -> None:
    mac = lan.meet()
    lan.asks(GUEST_IP)
    lan.clear()
    frame = lan.guest_packet(mac, GUEST_IP, PEER_IP)
    entry = lan.table[next_hop_of(mac)]
    assert entry.action is NeighAction.SEND
    assert entry.hwaddr == PEER
    assert entry.destination is not None
    assert entry.destination.qpn == PEER.qpn
    assert lan.packets == [(frame, next_hop_of(mac))]
    del lan.table[next_hop_of(mac)]  # the SA's table of paths has evicted it
    lan.guest_packet(mac, GUEST_IP, PEER_IP)
    assert next_hop_of(mac) in lan.table
    assert len(lan.packets) == 2
