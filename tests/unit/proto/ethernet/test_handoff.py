# SPDX-License-Identifier: BSD-2-Clause
"""What passes between guests and the link beside ARP and neighbour discovery, and hostile input."""

from __future__ import annotations

import random
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipoibu.base.addr import Mac
from ipoibu.base.errors import UsageError
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    ETHERNET_ANSWER_S,
    ETHERNET_CHECKS,
    ETHERNET_QUERY_S,
    ETHERNET_SEARCHES_BURST,
    ETHERNET_WAITING_MAX,
)
from ipoibu.proto.effects import Count, FindPath
from ipoibu.proto.engine import Engine
from ipoibu.proto.ethernet.macs import hashed, next_hop_of
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.paths import SaPath
from ipoibu.wire import arp, ip
from ipoibu.wire.encap import Encap, EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame, group_mac
from ipoibu.wire.ethernet_arp import EthernetArp
from ipoibu.wire.mgid import LIMITED_BROADCAST, solicited_node
from ipoibu.wire.ndisc import NeighbourAdvertisement, NeighbourSolicitation
from ipoibu.wire.ndopt import LinkLayer
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
from tests.doubles.simulation import TEMPLATE, packet

GROUP = IPv4Address("239.1.2.3")
GROUP6 = IPv6Address("ff15::7")


@pytest.fixture
def lan() -> Lan:
    lan = Lan()
    lan.clear()
    return lan


# -- from guests ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "group"), [(GUEST_IP, GROUP), (GUEST_V6, GROUP6)])
def test_a_packet_to_a_group_publishes_the_group(
    lan: Lan, source: IPv4Address | IPv6Address, group: IPv4Address | IPv6Address
) -> None:
    frame = lan.guest_packet(group_mac(group), source, group)
    assert lan.packets == [(frame, group)]
    assert group in lan.table


def test_broadcasts_of_every_subnet_go_to_the_broadcast_group(lan: Lan) -> None:
    for target in (IPv4Address("10.0.0.255"), LIMITED_BROADCAST):
        lan.packets.clear()
        frame = lan.guest_packet(BROADCAST, GUEST_IP, target)
        assert lan.packets == [(frame, LIMITED_BROADCAST)]


def test_a_unicast_packet_in_a_multicast_frame_is_dropped(lan: Lan) -> None:
    lan.guest_packet(group_mac(GROUP), GUEST_IP, PEER_IP)
    assert not lan.packets
    assert lan.counts == {"ethernet_destination": 1}


@pytest.mark.parametrize(
    ("ethertype", "reason"),
    [
        (0x8100, "ethernet_vlan"),
        (0x88A8, "ethernet_vlan"),
        (0x88CC, "ethernet_type"),
        (0x0026, "ethernet_no_ethertype"),
    ],
)
def test_what_is_neither_ip_nor_arp_is_a_counted_drop(
    lan: Lan, ethertype: int, reason: str
) -> None:
    lan.guest(Frame(BROADCAST, GUEST, ethertype, bytes(46)))
    assert lan.counts == {reason: 1}
    assert not lan.sent


def test_frames_of_no_host_are_dropped(lan: Lan) -> None:
    for source in (BROADCAST, group_mac(GROUP), Mac(bytes(6))):
        lan.guest(Frame(BROADCAST, source, EtherType.IPV4, packet("10.0.0.11", "10.0.0.2", b"")))
    lan.carry_out(lan.engine.host_packet(lan.now, bytes(13)))
    assert lan.counts == {"ethernet_source": 3, "ethernet_short": 1}


def test_the_version_of_a_packet_is_that_of_its_type(lan: Lan) -> None:
    lan.guest(Frame(BROADCAST, GUEST, EtherType.IPV6, packet("10.0.0.11", "10.0.0.2", b"")))
    assert lan.counts == {"ip_version": 1}


def test_impossible_sources_are_spoofed(lan: Lan) -> None:
    for source in ("224.0.0.5", "127.0.0.1", "255.255.255.255"):
        lan.guest(Frame(BROADCAST, GUEST, EtherType.IPV4, packet(source, "10.0.0.2", b"")))
    assert lan.counts == {"ethernet_spoofed": 3}
    assert not lan.packets


def test_frames_among_guests_are_not_for_us(lan: Lan) -> None:
    lan.asks(GUEST2_IP, GUEST2, GUEST2_IP)
    lan.clear()
    lan.guest_packet(GUEST2, GUEST_IP, GUEST2_IP)
    lan.guest_packet(lan.mac, GUEST_IP, PEER_IP)
    assert not lan.packets
    assert lan.counts == {"ethernet_foreign": 2}


def test_a_packet_to_a_mac_from_before_our_restart_has_its_host_found(lan: Lan) -> None:
    lan.guest_packet(hashed(PEER), GUEST_IP, PEER_IP)
    assert lan.counts == {"ethernet_unknown_mac": 1}
    assert [it for _, it in lan.sent_arp()] == [arp.request(OUR, GUEST_IP, PEER_IP)]
    lan.link_arp(arp.Arp(arp.REPLY, PEER, PEER_IP, OUR, GUEST_IP))
    lan.guest_packet(hashed(PEER), GUEST_IP, PEER_IP)
    assert next_hop_of(hashed(PEER)) in lan.table
    lan.clear()
    lan.guest_packet(Mac.parse("02:00:00:00:00:77"), GUEST_V6, PEER_V6)
    assert [it for _, it in lan.sent_nd()] == [
        NeighbourSolicitation(GUEST_V6, solicited_node(PEER_V6), PEER_V6, OUR)
    ]


def test_searches_have_a_limit(lan: Lan) -> None:
    for number in range(int(ETHERNET_SEARCHES_BURST) + 20):
        lan.guest_packet(Mac(b"\x02\0\0\0\0" + bytes((number,))), GUEST_IP, PEER_IP)
    assert len(lan.sent_arp()) == ETHERNET_SEARCHES_BURST


def test_a_guest_hears_that_its_packet_is_too_big(lan: Lan) -> None:
    frame = Frame(hashed(PEER), GUEST, EtherType.IPV4, packet("10.0.0.11", "10.0.0.2", b"x" * 99))
    lan.carry_out(lan.engine.too_big(lan.now, next_hop_of(hashed(PEER)), frame.pack(), 2044))
    [error] = lan.frames
    assert error.destination == GUEST
    parsed = ip.parse_untrusted(error.payload)
    assert (parsed.destination, parsed.payload[:2]) == (GUEST_IP, bytes((3, 4)))
    assert lan.counts == {"ethernet_too_long": 1}
    lan.carry_out(lan.engine.too_big(lan.now, next_hop_of(hashed(PEER)), b"short", 2044))
    assert lan.counts["ethernet_short"] == 1


def test_under_a_subnet_administrator_only_neighbours_of_guests_have_a_path() -> None:
    lan = Lan(has_sa=True)
    mac = lan.meet()
    lan.asks(GUEST_IP)
    assert FindPath(PEER.gid) not in lan.effects, "a stranger"
    lan.clear()
    frame = lan.guest_packet(mac, GUEST_IP, PEER_IP)
    assert FindPath(PEER.gid) in lan.effects
    assert not lan.packets
    by = SaPath(Destination(PEER.gid, PEER.qpn, dlid=7, hop_limit=0))
    lan.carry_out(lan.engine.sa.note_path_resolved(lan.now, PEER.gid, by))
    assert lan.table[next_hop_of(mac)].destination == by.destination
    assert lan.packets == [(frame, next_hop_of(mac))]


# -- from the link -------------------------------------------------------------------------------


def test_a_burst_for_a_silent_guest_waits_for_its_answer(lan: Lan) -> None:
    lan.run(ETHERNET_QUERY_S + 5)  # the queries of the start
    lan.clear()
    waiting = [lan.link_packet(PEER_IP, GUEST_IP) for _ in range(100)]
    [(frame, question)] = lan.arp_frames()
    assert frame.destination == BROADCAST
    assert (question.sender_ip, question.target_ip) == (NOBODY, GUEST_IP)
    assert lan.counts == {}
    lan.clear()
    lan.guest_arp(EthernetArp(arp.REPLY, GUEST, GUEST_IP, lan.mac, NOBODY), lan.mac)
    expected = [Frame(GUEST, hashed(PEER), EtherType.IPV4, it) for it in waiting]
    assert lan.frames == expected
    assert lan.guests[GUEST_IP] == (GUEST, True)
    assert not lan.sent, "the answer was ours"
    lan.clear()
    lan.run(ETHERNET_CHECKS * ETHERNET_ANSWER_S)
    assert not lan.frames, "the search is over"


def test_an_ipv6_guest_is_found_likewise(lan: Lan) -> None:
    waiting = lan.link_packet(PEER_V6, GUEST_V6)
    [(frame, question, named)] = lan.nd_frames()
    assert (frame.destination, named) == (group_mac(solicited_node(GUEST_V6)), lan.mac)
    assert isinstance(question, NeighbourSolicitation)
    lan.clear()
    answer = NeighbourAdvertisement(
        GUEST_V6,
        question.source,
        GUEST_V6,
        options=with_option(GUEST, LinkLayer.TARGET),
        solicited=True,
        override=True,
    )
    lan.guest_nd(answer, destination=lan.mac)
    assert lan.frames == [Frame(GUEST, hashed(PEER), EtherType.IPV6, waiting)]


def test_a_packet_for_nobody_is_given_up(lan: Lan) -> None:
    lan.link_packet(PEER_IP, GUEST_IP)
    lan.run(ETHERNET_CHECKS * ETHERNET_ANSWER_S + 0.5)
    assert len(lan.arp_frames()) == ETHERNET_CHECKS
    assert lan.counts == {"ethernet_unknown_guest": 1}


def test_a_link_that_goes_down_ends_the_wait(lan: Lan) -> None:
    lan.link_packet(PEER_IP, GUEST_IP)
    lan.carry_out(lan.engine.port_event(lan.now, "down"))
    assert lan.counts == {"ethernet_unknown_guest": 1}
    lan.clear()
    lan.run(10)
    lan.link_packet(PEER_IP, GUEST_IP)
    lan.guest_packet(BROADCAST, GUEST_IP, LIMITED_BROADCAST)
    assert lan.counts == {"link_down": 2}
    assert not lan.frames


def test_before_the_link_is_up_all_frames_are_dropped() -> None:
    config = replace(TEMPLATE, hwaddr=OUR, ethernet=EthernetConfig())
    engine = Engine(config, random.Random(1))
    frame = Frame(BROADCAST, GUEST, EtherType.IPV4, packet("10.0.0.11", "10.0.0.2", b""))
    assert engine.host_packet(0.0, frame.pack())[-1] == Count("link_down")
    assert engine.ethernet is not None
    assert engine.ethernet.link_packet(0.0, None, frame.payload) == [Count("link_down")]


def test_searches_for_guests_have_a_limit(lan: Lan) -> None:
    count = ETHERNET_WAITING_MAX + 100
    for number in range(count):
        lan.link_packet(PEER_IP, IPv4Address(0x0A010000 + number))
        lan.now += 0.1
    assert len(lan.arp_frames()) == ETHERNET_WAITING_MAX
    assert lan.counts == {"ethernet_unknown_guest": count - ETHERNET_WAITING_MAX}


def test_a_known_guest_and_a_group_get_their_packets_at_once(lan: Lan) -> None:
    lan.asks(GUEST_IP)
    lan.clear()
    unicast = lan.link_packet(PEER_IP, GUEST_IP)
    multicast = lan.link_packet(PEER_IP, GROUP)
    assert lan.frames == [
        Frame(GUEST, hashed(PEER), EtherType.IPV4, unicast),
        Frame(group_mac(GROUP), hashed(PEER), EtherType.IPV4, multicast),
    ]


def test_packets_to_addresses_of_nobody_are_dropped(lan: Lan) -> None:
    lan.link_packet(PEER_IP, IPv4Address("127.0.0.1"))
    lan.carry_out(lan.ethernet.link_packet(lan.now, None, b"\x45"))
    assert lan.counts == {"ethernet_destination": 1, "ip_short": 1}


def test_what_no_engine_reads_is_counted(lan: Lan) -> None:
    frame = Encap(EtherType.RARP, bytes(20)).pack()
    lan.carry_out(lan.engine.frame(lan.now, lan.source(PEER), frame))
    assert lan.counts == {"frame_unexpected": 1}


def test_an_administrator_adds_no_neighbours(lan: Lan) -> None:
    with pytest.raises(UsageError, match="guests"):
        lan.engine.permanent.set(lan.now, PEER_IP, PEER, False)


# -- hostile input -------------------------------------------------------------------------------

macs = st.sampled_from([GUEST, GUEST2, hashed(PEER), BROADCAST, group_mac(GROUP), Mac(bytes(6))])
ips = st.sampled_from([GUEST_IP, GUEST2_IP, PEER_IP, NOBODY, LIMITED_BROADCAST, GROUP])
ips6 = st.sampled_from([GUEST_V6, PEER_V6, IPv6Address(0), GROUP6, solicited_node(GUEST_V6)])
arps = st.builds(EthernetArp, st.integers(0, 65535), macs, ips, macs, ips).map(EthernetArp.pack)
link_arps = st.builds(
    arp.Arp, st.integers(0, 65535), st.sampled_from([PEER, OUR]), ips, st.just(OUR), ips
).map(arp.Arp.pack)
options = st.lists(macs, max_size=2).map(
    lambda it: tuple(option for mac in it for option in with_option(mac))
)
solicitations = st.builds(
    lambda source, destination, target, extra: NeighbourSolicitation(
        source, destination, target, options=extra
    ).pack(),
    ips6,
    ips6,
    ips6,
    options,
)
ip_packets = st.one_of(
    st.builds(
        lambda source, destination, kind, data: ip.Ipv4(source, destination, kind, data).pack(),
        ips,
        ips,
        st.sampled_from([1, 2, 17]),
        st.binary(max_size=60),
    ),
    st.builds(
        lambda source, destination, kind, data: ip.Ipv6(source, destination, kind, data).pack(),
        ips6,
        ips6,
        st.sampled_from([0, 17, 44, 58]),
        st.binary(max_size=60),
    ),
)
payloads = st.one_of(st.binary(max_size=80), arps, link_arps, solicitations, ip_packets)
kinds = st.sampled_from([0x0800, 0x0806, 0x86DD, 0x8035, 0x8100, 0x0010])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("guest"), macs, macs, kinds, payloads),
        st.tuples(st.just("link"), st.booleans(), payloads, st.sampled_from(list(EtherType))),
        st.tuples(st.just("packet"), payloads),
        st.tuples(st.just("reply"), payloads),
        st.tuples(st.just("raw"), st.binary(max_size=90)),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 1.5, 5.0, 301.0])),
        st.tuples(st.just("port"), st.sampled_from(["up", "down"])),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(steps)
def test_nothing_that_guests_or_hosts_send_breaks_an_invariant(drawn: list[tuple]) -> None:  # type: ignore[type-arg]
    lan = Lan({GUEST2: frozenset({GUEST2_IP})})
    engine = lan.engine
    for step in drawn:
        match step:
            case ("guest", destination, source, kind, payload):
                lan.guest(Frame(destination, source, kind, payload))
            case ("link", is_multicast, payload, kind):
                group = BROADCAST_GID if is_multicast else None
                raw = Encap(kind, payload).pack()
                lan.carry_out(engine.frame(lan.now, lan.source(PEER, group), raw))
            case ("packet", payload):
                lan.carry_out(lan.ethernet.link_packet(lan.now, lan.source(PEER), payload))
            case ("reply", payload):
                lan.carry_out(engine.dhcp_reply(lan.now, payload))
            case ("raw", payload):
                lan.carry_out(engine.host_packet(lan.now, payload))
            case ("wait", duration_s):
                lan.run(duration_s)
            case ("port", event):
                lan.carry_out(engine.port_event(lan.now, event))
        check(lan)


def check(lan: Lan) -> None:
    """The pump knows what the engine knows; a static binding stays; nobody has a neighbour's MAC."""
    known = {it.ip: it for it in lan.ethernet.guests(lan.now)}
    assert set(lan.guests) <= set(known)
    assert all(known[ip].mac == mac for ip, (mac, _) in lan.guests.items())
    assert lan.guests[GUEST2_IP] == (GUEST2, True)
    assert {it.mac: it.hwaddr for it in lan.ethernet.neighbours(lan.now)} == lan.sources
    assert not any(info.mac in lan.sources for info in known.values())
    destinations = {next_hop_of(mac) for mac in lan.sources}
    assert {key for key in lan.table if key.packed[:1] == b"\x01"} <= destinations
    for destination, message in lan.sent:
        if message.type is EtherType.ARP:
            assert arp.parse_untrusted(message.payload).sender_hwaddr == OUR
        assert destination.gid != OUR.gid
