# SPDX-License-Identifier: BSD-2-Clause
"""Ethernet frames, ARP and neighbour discovery on Ethernet, and our queries; scapy is the judge."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Final

import pytest
from scapy.layers import igmp as scapy_igmp
from scapy.layers import inet, inet6, l2

from ipoibu.base.addr import Mac
from ipoibu.base.errors import BadFrame, UsageError
from ipoibu.wire import arp, ethernet, ethernet_arp, igmp, mld, ndisc
from ipoibu.wire.encap import EtherType
from ipoibu.wire.ethernet import BROADCAST, Frame, group_mac
from ipoibu.wire.ethernet_arp import EthernetArp
from ipoibu.wire.membership import Query
from ipoibu.wire.mgid import LIMITED_BROADCAST

A: Final = Mac.parse("52:54:00:00:00:01")
B: Final = Mac.parse("52:54:00:00:00:02")
A_IP, B_IP = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
A_V6, B_V6 = IPv6Address("fe80::1"), IPv6Address("fe80::2")


def test_a_mac_is_read_and_written() -> None:
    assert str(A) == "52:54:00:00:00:01"
    assert A.is_host
    assert not BROADCAST.is_host
    assert BROADCAST.is_group
    assert not Mac(bytes(6)).is_host
    for text in ("", "52:54:00:00:00", "52:54:00:00:00:01:02", "52-54-00-00-00-01", "x" * 17):
        with pytest.raises(UsageError, match="is not a MAC"):
            Mac.parse(text)
    with pytest.raises(ValueError, match="6 bytes"):
        Mac(bytes(5))


def test_scapy_reads_our_frames_and_we_read_scapys() -> None:
    frame = Frame(BROADCAST, A, EtherType.ARP, b"payload")
    judge = l2.Ether(frame.pack())
    assert (judge.dst, judge.src, judge.type) == ("ff:ff:ff:ff:ff:ff", str(A), 0x806)
    written = bytes(l2.Ether(dst=str(B), src=str(A), type=0x9999) / b"data")
    assert ethernet.parse_untrusted(written) == Frame(B, A, 0x9999, b"data")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (bytes(13), "ethernet_short"),
        (A.raw + bytes(6) + b"\x08\x00", "ethernet_source"),
        (A.raw + BROADCAST.raw + b"\x08\x00", "ethernet_source"),
        (A.raw + B.raw + b"\x81\x00" + bytes(4), "ethernet_vlan"),
        (A.raw + B.raw + b"\x05\xff", "ethernet_no_ethertype"),
    ],
)
def test_a_bad_frame_has_its_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(BadFrame) as caught:
        ethernet.parse_untrusted(raw)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("group", "mac"),
    [
        ("224.0.0.251", "01:00:5e:00:00:fb"),  # RFC 1112 §6.4: 23 bits
        ("239.129.2.3", "01:00:5e:01:02:03"),
        ("ff02::1:ff00:1234", "33:33:ff:00:12:34"),  # RFC 2464 §7
        ("255.255.255.255", "ff:ff:ff:ff:ff:ff"),
    ],
)
def test_a_group_has_the_mac_of_its_rfc(group: str, mac: str) -> None:
    address = IPv6Address(group) if ":" in group else IPv4Address(group)
    assert str(group_mac(address)) == mac


def test_a_host_has_no_mac_of_a_group() -> None:
    assert group_mac(LIMITED_BROADCAST) == BROADCAST
    with pytest.raises(ValueError, match="not a multicast group"):
        group_mac(A_IP)


def test_scapy_reads_our_arp_and_we_read_scapys() -> None:
    message = EthernetArp(arp.REPLY, A, A_IP, B, B_IP)
    judge = l2.ARP(message.pack())
    assert (judge.hwtype, judge.ptype, judge.hwlen, judge.plen, judge.op) == (1, 0x800, 6, 4, 2)
    assert (judge.hwsrc, judge.psrc, judge.hwdst, judge.pdst) == (
        str(A),
        str(A_IP),
        str(B),
        str(B_IP),
    )
    written = bytes(l2.ARP(op=1, hwsrc=str(A), psrc="10.0.0.1", pdst="10.0.0.1")) + bytes(18)
    read = ethernet_arp.parse_untrusted(written)
    assert read == EthernetArp(arp.REQUEST, A, A_IP, ethernet_arp.NOBODY, A_IP)
    assert read.is_announcement
    assert not read.is_probe


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ((1, 32), "arp_hardware"),
        ((2, 9), "arp_protocol"),
        ((4, 20), "arp_length"),
        ((5, 16), "arp_length"),
    ],
)
def test_a_bad_arp_message_has_its_reason(change: tuple[int, int], reason: str) -> None:
    raw = bytearray(EthernetArp(arp.REPLY, A, A_IP, B, B_IP).pack())
    for cut in range(len(raw)):
        with pytest.raises(BadFrame):
            ethernet_arp.parse_untrusted(raw[:cut])
    raw[change[0]] = change[1]
    with pytest.raises(BadFrame) as caught:
        ethernet_arp.parse_untrusted(raw)
    assert caught.value.reason == reason


def test_we_read_scapys_neighbour_discovery_and_scapy_reads_what_we_make_of_it() -> None:
    """N1: an option of Ethernet has 8 bytes."""
    solicitation = (
        inet6.IPv6(src=str(A_V6), dst=str(B_V6), hlim=255)
        / inet6.ICMPv6ND_NS(tgt=str(B_V6))
        / inet6.ICMPv6NDOptSrcLLAddr(lladdr=str(A))
        / inet6.ICMPv6NDOptMTU(mtu=1500)
    )
    relinked = ndisc.relinked_untrusted(bytes(solicitation))
    assert relinked.address == A.raw
    judge = inet6.IPv6(relinked.pack(B.raw))
    assert judge[inet6.ICMPv6NDOptSrcLLAddr].lladdr == str(B)
    assert judge[inet6.ICMPv6NDOptMTU].mtu == 1500
    check = judge[inet6.ICMPv6ND_NS].cksum
    del judge[inet6.ICMPv6ND_NS].cksum
    assert inet6.IPv6(bytes(judge))[inet6.ICMPv6ND_NS].cksum == check


@pytest.mark.parametrize("group", [None, IPv4Address("239.1.2.3")])
def test_scapy_reads_our_igmp_query(group: IPv4Address | None) -> None:
    raw = igmp.query(group, 10.0, 125.0).pack()
    judge = inet.IP(raw)
    assert (judge.src, judge.ttl, judge.proto) == ("0.0.0.0", 1, 2)
    assert judge.dst == str(group or "224.0.0.1")
    assert bytes(judge.options[0]) == igmp.ROUTER_ALERT
    query = scapy_igmp.IGMPv3_MQ(bytes(judge.payload))
    assert (query.type, query.mrcode, query.numsrc) == (0x11, 100, 0)
    assert (query.gaddr, query.qrv, query.qqic) == (str(group or "0.0.0.0"), 2, 125)
    assert igmp.parse_untrusted(raw) == Query(group), "the checksum is right"


@pytest.mark.parametrize("group", [None, IPv6Address("ff15::7")])
def test_scapy_reads_our_mld_query(group: IPv6Address | None) -> None:
    raw = mld.query(A_V6, group, 10.0, 125.0).pack()
    judge = inet6.IPv6(raw)
    assert (judge.src, judge.hlim, judge.dst) == (str(A_V6), 1, str(group or "ff02::1"))
    body = judge[inet6.ICMPv6MLQuery2]
    assert (body.type, body.mrd, body.mladdr) == (130, 10000, str(group or "::"))
    assert (body.QRV, body.QQIC) == (2, 125)
    assert mld.parse_untrusted(raw) == Query(group), "the checksum is right"
