# SPDX-License-Identifier: BSD-2-Clause
"""Each guest has a hardware address of its own on the link, as far as there are queue pairs."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from ipoibu.base.addr import HwAddr, Mac, Qpn
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import GUEST_QUEUE_PAIRS_MAX
from ipoibu.proto.context import FrameSource
from ipoibu.proto.effects import SetQueuePair
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.wire import arp
from ipoibu.wire.encap import Encap, EtherType
from ipoibu.wire.mgid import solicited_node
from ipoibu.wire.ndisc import (
    ALL_NODES,
    NeighbourAdvertisement,
    NeighbourSolicitation,
    Redirect,
)
from tests.doubles.ethernet_bench import (
    BROADCAST_GID,
    GUEST,
    GUEST2,
    GUEST2_IP,
    GUEST_IP,
    GUEST_V6,
    NOBODY,
    OUR,
    PEER,
    PEER_IP,
    PEER_V6,
    Lan,
    with_option,
)
from tests.doubles.simulation import PARAMS

POOL = (Qpn(0x49), Qpn(0x4A), Qpn(0x4B))


@pytest.fixture
def lan() -> Lan:
    lan = Lan(guest_qpns=POOL)
    lan.clear()
    return lan


def hwaddr(lan: Lan, mac: Mac) -> HwAddr:
    return HwAddr(lan.queue_pairs[mac], OUR.gid)


def test_guests_ask_and_answer_each_from_a_queue_pair_of_its_own(lan: Lan) -> None:
    """H1."""
    lan.asks(PEER_IP)
    lan.asks(PEER_IP, GUEST2, GUEST2_IP)
    assert set(lan.queue_pairs) == {GUEST, GUEST2}
    assert set(lan.queue_pairs.values()) <= set(POOL)
    first, second = (it for _, it in lan.sent_arp())
    assert (first.sender_hwaddr, second.sender_hwaddr) == (hwaddr(lan, GUEST), hwaddr(lan, GUEST2))
    assert lan.senders == [lan.queue_pairs[GUEST], lan.queue_pairs[GUEST2]]
    listed = {it.ip: it.hwaddr for it in lan.ethernet.guests(lan.now)}
    assert listed == {GUEST_IP: hwaddr(lan, GUEST), GUEST2_IP: hwaddr(lan, GUEST2)}


def test_the_same_for_neighbour_discovery(lan: Lan) -> None:
    group = solicited_node(PEER_V6)
    options = with_option(GUEST)
    lan.guest_nd(NeighbourSolicitation(GUEST_V6, group, PEER_V6, options=options))
    [(_, message)] = lan.sent_nd()
    assert isinstance(message, NeighbourSolicitation)
    assert message.lladdr == hwaddr(lan, GUEST)
    assert lan.senders == [lan.queue_pairs[GUEST]]


def test_a_guest_that_holds_no_address_shares_ours(lan: Lan) -> None:
    """It probes, or its packets come from an address that may be another host's."""
    lan.asks(GUEST_IP, GUEST, NOBODY)
    lan.guest_packet(lan.meet(), GUEST2_IP, PEER_IP, GUEST2)
    assert not lan.queue_pairs
    assert [it.sender_hwaddr for _, it in lan.sent_arp()] == [OUR]
    assert lan.senders == [None]


def test_those_who_come_when_all_are_taken_share_until_one_is_free() -> None:
    lan = Lan(guest_qpns=POOL[:1])
    lan.asks(PEER_IP)
    lan.clear()
    lan.asks(PEER_IP, GUEST2, GUEST2_IP)
    assert lan.counts["ethernet_queue_pairs_full"] == 1
    assert [it.sender_hwaddr for _, it in lan.sent_arp()] == [OUR]
    lan.link_arp(arp.request(PEER, GUEST_IP, GUEST_IP), multicast=True)
    assert not lan.queue_pairs, "the first guest has left"
    lan.clear()
    lan.asks(PEER_IP, GUEST2, GUEST2_IP)
    assert lan.queue_pairs == {GUEST2: POOL[0]}
    assert [it.sender_hwaddr for _, it in lan.sent_arp()] == [hwaddr(lan, GUEST2)]


def test_hosts_hear_the_new_hardware_address_of_all_addresses() -> None:
    """The guest shared our queue pair before: hosts have that for its other addresses."""
    lan = Lan(guest_qpns=POOL[:1])
    other = IPv4Address("10.0.0.99")
    lan.asks(PEER_IP)
    lan.asks(PEER_IP, GUEST2, GUEST2_IP)
    lan.link_arp(arp.request(PEER, GUEST_IP, GUEST_IP), multicast=True)
    lan.clear()
    lan.asks(PEER_IP, GUEST2, other)
    lan.run(1)
    announced = {
        it.sender_ip: it.sender_hwaddr for _, it in lan.sent_arp() if it.sender_ip == it.target_ip
    }
    assert announced[GUEST2_IP] == hwaddr(lan, GUEST2)


def test_an_address_that_moves_has_the_hardware_address_of_its_new_guest(lan: Lan) -> None:
    lan.asks(PEER_IP)
    former = hwaddr(lan, GUEST)
    lan.clear()
    lan.asks(GUEST_IP, GUEST2, GUEST_IP)
    assert set(lan.queue_pairs) == {GUEST2}
    [(_, announced)] = lan.sent_arp()
    assert announced.sender_hwaddr == hwaddr(lan, GUEST2) != former


def test_a_bound_guest_has_its_queue_pair_from_the_start_and_keeps_it() -> None:
    lan = Lan({GUEST: frozenset({GUEST_IP})}, guest_qpns=POOL[:1])
    assert lan.queue_pairs == {GUEST: POOL[0]}
    lan.asks(PEER_IP, GUEST2, GUEST2_IP)
    assert set(lan.queue_pairs) == {GUEST}


def test_our_own_messages_come_back_and_are_no_news(lan: Lan) -> None:
    lan.asks(PEER_IP)
    own = hwaddr(lan, GUEST)
    lan.clear()
    source = FrameSource(own.qpn, own.gid, BROADCAST_GID)
    frame = Encap(EtherType.ARP, arp.request(own, GUEST_IP, GUEST_IP).pack()).pack()
    lan.carry_out(lan.engine.frame(lan.now, source, frame))
    lan.link_arp(arp.request(own, GUEST_IP, PEER_IP), multicast=True, sender=PEER)
    assert lan.counts == {"echo": 2}
    assert not lan.frames
    assert lan.guests == {GUEST_IP: (GUEST, True)}


def test_a_redirect_of_the_link_names_a_guest_by_its_queue_pair(lan: Lan) -> None:
    lan.asks(PEER_IP)
    lan.guest_nd(NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, override=True), GUEST2)
    lan.clear()
    target = IPv6Address("fe80::77")
    lan.link_nd(Redirect(PEER_V6, GUEST_V6, target, target, hwaddr(lan, GUEST)))
    assert [named for _, _, named in lan.nd_frames()] == [GUEST]


def test_another_queue_pair_of_the_interface_brings_others_for_guests(lan: Lan) -> None:
    lan.asks(PEER_IP)
    lan.asks(PEER_IP, GUEST2, GUEST2_IP)
    lan.carry_out(lan.engine.port_event(lan.now, "down"))
    ours = replace(OUR, qpn=Qpn(0x100))
    lan.engine.note_renewed(PARAMS, ours, PARAMS.mtu_bytes - 4, (Qpn(0x101),))
    given = [it for it in lan.engine.handed_off() if isinstance(it, SetQueuePair)]
    [(mac, qpn)] = [(it.mac, it.qpn) for it in given]
    assert qpn == Qpn(0x101)
    lan.clear()
    lan.carry_out(lan.engine.port_event(lan.now, "up", ours))
    other = GUEST2 if mac == GUEST else GUEST
    announced = {it.sender_ip: it.sender_hwaddr.qpn for _, it in lan.sent_arp()}
    ips = {GUEST: GUEST_IP, GUEST2: GUEST2_IP}
    assert announced == {ips[mac]: Qpn(0x101), ips[other]: Qpn(0x100)}


def test_a_guest_has_the_same_queue_pair_after_a_restart() -> None:
    pool = tuple(Qpn(0x200 + number) for number in range(64))
    given = []
    for order in ((GUEST, GUEST2), (GUEST2, GUEST)):
        lan = Lan(guest_qpns=pool)
        for mac in order:
            lan.asks(PEER_IP, mac, GUEST_IP if mac == GUEST else GUEST2_IP)
        given.append(lan.queue_pairs)
    assert given[0] == given[1]


def test_the_number_of_queue_pairs_has_bounds() -> None:
    for count in (-1, GUEST_QUEUE_PAIRS_MAX + 1):
        with pytest.raises(UsageError, match=f"choose 0 to {GUEST_QUEUE_PAIRS_MAX}"):
            EthernetConfig(queue_pairs=count)
