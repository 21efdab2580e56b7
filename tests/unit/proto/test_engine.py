# SPDX-License-Identifier: BSD-2-Clause
"""Inputs of the engine that no single machine handles: ICMP errors, IPv6 on small links, odd next hops."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_interface

import pytest

from ipoibu.base.addr import HwAddr, IpAddress, PKey, Qpn
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import ICMP_ERRORS_BURST
from ipoibu.proto.effects import Count
from ipoibu.proto.engine import FrameSource, LinkConfig
from ipoibu.wire import arp, ip
from ipoibu.wire.encap import Encap, EtherType
from ipoibu.wire.ndisc import NeighbourSolicitation
from tests.doubles.engine_bench import OUR_V4, OUR_V6, PEER, PEER_V4, PEER_V6, Bench
from tests.doubles.simulation import TEMPLATE, packet

SMALL = replace(TEMPLATE, params=replace(TEMPLATE.params, mtu_bytes=1024), mtu_bytes=0)
V4_PACKET = packet(str(OUR_V4), str(PEER_V4), b"x" * 100)
V6_PACKET = packet(str(OUR_V6), str(PEER_V6), b"x" * 100)


# -- ICMP errors ---------------------------------------------------------------------------------


def test_unreachable_notifies_the_local_stack_in_the_name_of_the_destination() -> None:
    bench = Bench()
    bench.host.carry_out(bench.host.engine.unreachable(bench.now, PEER_V4, V4_PACKET))
    bench.host.carry_out(bench.host.engine.unreachable(bench.now, PEER_V6, V6_PACKET))
    first, second = (ip.parse_untrusted(data) for data in bench.host.delivered)
    assert (first.source, first.destination, first.payload[:2]) == (PEER_V4, OUR_V4, b"\x03\x01")
    assert (second.source, second.destination, second.payload[:2]) == (PEER_V6, OUR_V6, b"\x01\x03")
    assert V4_PACKET in first.payload
    assert V6_PACKET in second.payload


def test_too_big_announces_the_mtu() -> None:
    """C13: ICMPv4 3/4, ICMPv6 type 2."""
    bench = Bench()
    for next_hop, data in ((PEER_V4, V4_PACKET), (PEER_V6, V6_PACKET)):
        bench.host.carry_out(bench.host.engine.too_big(bench.now, next_hop, data, 1300))
    first, second = (ip.parse_untrusted(data) for data in bench.host.delivered)
    assert first.payload[:2] + first.payload[4:8] == b"\x03\x04\0\0\x05\x14"
    assert second.payload[:2] + second.payload[4:8] == b"\x02\0\0\0\x05\x14"


def test_too_big_for_a_group_speaks_from_our_own_address() -> None:
    """RFC 4443 §2.4 (e.3): the one error about IPv6 multicast. IPv4 has none (RFC 1122 §3.2.2)."""
    bench = Bench()
    group = ip_address("ff05::5")
    about = packet("fd00::9", str(group), b"x" * 100)
    bench.host.carry_out(bench.host.engine.too_big(bench.now, group, about, 1300))
    [error] = map(ip.parse_untrusted, bench.host.delivered)
    assert (error.source, error.destination) == (OUR_V6, ip_address("fd00::9"))
    assert error.payload[:2] + error.payload[4:8] == b"\x02\0\0\0\x05\x14"
    group = ip_address("239.1.1.1")
    about = packet(str(OUR_V4), str(group), b"x" * 100)
    assert bench.host.engine.too_big(bench.now, group, about, 1300) == [
        Count("icmp_error_forbidden")
    ]


def test_errors_are_rate_limited() -> None:
    bench = Bench()
    for _ in range(500):
        bench.host.carry_out(bench.host.engine.unreachable(bench.now, PEER_V4, V4_PACKET))
    assert len(bench.host.delivered) == ICMP_ERRORS_BURST
    assert bench.host.counts["icmp_error_limited"] == 500 - ICMP_ERRORS_BURST


@pytest.mark.parametrize(
    "data",
    [
        packet(str(OUR_V4), "239.1.1.1", b"to a group"),
        packet("0.0.0.0", str(PEER_V4), b"from nobody"),
        ip.Ipv4(OUR_V4, PEER_V4, ip.ICMP, b"\x03\x01" + bytes(30)).pack(),
        ip.Ipv4(OUR_V4, PEER_V4, 17, b"tail", fragment_offset_bytes=64).pack(),
        packet(str(OUR_V6), "ff02::1", b"to a group"),
        ip.Ipv6(OUR_V6, PEER_V6, ip.ICMPV6, b"\x01\x00" + bytes(30)).pack(),
    ],
)
def test_what_must_not_be_answered_is_not_answered(data: bytes) -> None:
    bench = Bench()
    assert bench.host.engine.unreachable(bench.now, PEER_V4, data) == [
        Count("icmp_error_forbidden")
    ]


def test_a_packet_that_is_none_is_counted() -> None:
    bench = Bench()
    assert bench.host.engine.unreachable(bench.now, PEER_V4, b"\x45") == [Count("ip_short")]
    assert bench.host.engine.too_big(bench.now, PEER_V4, b"", 1280) == [Count("ip_short")]


def test_a_packet_that_is_none_may_wait_for_an_answer_all_the_same() -> None:
    bench = Bench()
    assert len(bench.host.engine.miss(bench.now, PEER_V4, b"\x45")) == 1
    assert len(bench.host.engine.neighbours(bench.now)) == 1


# -- IPv6 needs 1280 bytes (T3) ------------------------------------------------------------------


def test_a_small_link_carries_ipv4_and_refuses_ipv6_with_a_word() -> None:
    bench = Bench("10.0.0.1/24", "fe80::1/64", template=SMALL, ready=False)
    assert bench.host.log == ["cannot use fe80::1: IPv6 needs MTU 1280, this link has 1020"]
    bench.run(10)
    assert bench.host.verdicts == {OUR_V4: False}
    bench.clear()
    bench.send(str(PEER_V6))
    bench.host.join("ff02::fb")
    bench.nd(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6, PEER))
    assert bench.host.counts == {"ipv6_refused": 3}
    assert bench.sent == []
    bench.send(str(PEER_V4))
    assert len(bench.sent_arp()) == 1


def test_the_mtu_is_the_link_s_unless_a_smaller_one_is_asked_for() -> None:
    assert TEMPLATE.mtu_bytes == 2044
    assert replace(TEMPLATE, mtu_bytes=1500).mtu_bytes == 1500
    with pytest.raises(UsageError, match="MTU 2045 does not fit"):
        replace(TEMPLATE, mtu_bytes=2045)
    with pytest.raises(UsageError, match="MTU -1 does not fit"):
        LinkConfig(TEMPLATE.params, PEER, mtu_bytes=-1)


def test_published_neighbours_carry_the_interface_s_mtu() -> None:
    bench = Bench(template=replace(TEMPLATE, mtu_bytes=1500))
    bench.arp(arp.request(PEER, PEER_V4, OUR_V4))
    assert bench.host.table[PEER_V4].mtu_bytes == 1500


# -- a mesh --------------------------------------------------------------------------------------


def test_a_host_that_says_its_addresses_becomes_a_neighbour() -> None:
    bench = Bench()
    engine = bench.host.engine
    addresses: list[IpAddress] = [PEER_V4, PEER_V6, IPv4Address("224.0.0.1")]
    bench.host.carry_out(engine.note_learned(bench.now, PEER, addresses))
    for address in (str(PEER_V4), str(PEER_V6)):
        neighbour = bench.neighbour(address)
        assert neighbour is not None
        assert neighbour.hwaddr == PEER
        assert bench.action(address) is not None  # a packet goes out at once
    assert bench.neighbour("224.0.0.1") is None
    assert bench.sent == []  # the engine asked no host


def test_a_host_that_says_our_address_is_a_duplicate() -> None:
    bench = Bench()
    bench.host.carry_out(bench.host.engine.note_learned(bench.now, PEER, [OUR_V4]))
    assert bench.host.counts["address_conflict"] == 1
    assert bench.neighbour(str(OUR_V4)) is None


# -- odd inputs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("next_hop", ["10.0.0.1", "fe80::1", "0.0.0.0", "127.0.0.1", "::1", "::"])
def test_a_next_hop_that_is_ours_or_nobody_s_is_counted_and_dropped(next_hop: str) -> None:
    bench = Bench()
    effects = bench.host.engine.miss(bench.now, ip_address(next_hop), V4_PACKET)
    assert effects == [Count("next_hop_invalid")]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "encap_short"),
        (b"\x12\x34\0\0", "encap_type"),
        (b"\x08\x00\0\0" + V4_PACKET, "frame_unexpected"),
        (b"\x80\x35\0\0" + bytes(56), "frame_unexpected"),
        (b"\x08\x06\0\0" + bytes(10), "arp_hardware"),
        (b"\x86\xdd\0\0", "ip_short"),
    ],
)
def test_frames_that_are_not_for_the_engine_are_counted(frame: bytes, reason: str) -> None:
    bench = Bench()
    bench.raw(frame)
    assert bench.host.counts == {reason: 1}


def test_reserved_bits_of_the_encapsulation_header_are_ignored() -> None:
    """E2."""
    bench = Bench()
    frame = Encap(EtherType.ARP, arp.request(PEER, PEER_V4, OUR_V4).pack()).pack()
    bench.raw(frame[:2] + b"\xff\xff" + frame[4:])
    assert len(bench.sent_arp()) == 1


def test_a_peer_whose_queue_pair_has_our_number_is_heard() -> None:
    """E8: without a GRH only the number is known, and each port has its own numbers."""
    bench = Bench()
    peer = HwAddr(bench.host.hwaddr.qpn, PEER.gid)
    frame = Encap(EtherType.ARP, arp.request(peer, PEER_V4, OUR_V4).pack()).pack()
    for sgid in (None, PEER.gid):
        source = FrameSource(bench.host.hwaddr.qpn, sgid, None)
        bench.host.carry_out(bench.host.engine.frame(bench.now, source, frame))
    assert len(bench.sent_arp()) == 2


def test_timer_at_a_quiet_moment_does_nothing() -> None:
    bench = Bench()
    assert bench.host.engine.deadline() is None
    assert bench.host.engine.timer(bench.now + 1e6) == []


def test_hardware_address_flags_of_the_link_are_zero_on_send() -> None:
    """A2."""
    bench = Bench()
    bench.arp(arp.request(HwAddr(Qpn(5), PEER.gid, flags=0x80), PEER_V4, OUR_V4))
    [(_, message)] = bench.sent_arp()
    assert message.sender_hwaddr.pack()[0] == 0
    assert bench.neighbour(str(PEER_V4)).hwaddr.flags == 0x80  # type: ignore[union-attr]


def test_two_partitions_have_groups_of_their_own() -> None:
    params = replace(TEMPLATE.params, pkey=PKey(0x8001), scope=5)
    bench = Bench("10.0.0.1/24", template=replace(TEMPLATE, params=params))
    bench.host.add(ip_interface("10.0.0.2/24"))
    bench.run(0.1)
    assert str(bench.sent[0][0].gid) == "ff15:401b:8001::ffff:ffff"
