# SPDX-License-Identifier: BSD-2-Clause
"""An independent judge where it knows the format: scapy reads what we write, we read what it writes.

scapy knows ARP with any address length, ICMPv6 with its checksums, IGMP and MLD; it does not know
the 24-byte link-layer option, of which it sees the type and the length only.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import pytest
from scapy.layers import igmp as scapy_igmp
from scapy.layers import inet, inet6, l2
from scapy.packet import Raw
from scapy.utils import checksum as scapy_checksum

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.wire import arp, icmp, igmp, ip, mgid, mld, ndisc
from ipoibu.wire.membership import Filter, Query, Record, Report
from ipoibu.wire.ndopt import Option
from tests.doubles.membership_changes import Change, changes

scapy_in6_checksum: Final[Callable[[int, object, bytes], int]] = inet6.in6_chksum

A: Final = HwAddr(Qpn(0x48), Gid.parse("fe80::215:5dff:fd33:ff0b"))
B: Final = HwAddr(Qpn(0x49), Gid.parse("fe80::215:5dff:fd33:ff0c"), flags=0x80)
A_IP: Final = IPv6Address("fe80::215:5dff:fd33:ff0b")
B_IP: Final = IPv6Address("fe80::215:5dff:fd33:ff0c")
GROUP4: Final = IPv4Address("239.1.2.3")
GROUP6: Final = IPv6Address("ff05::1:2345")


def test_r1_scapy_reads_our_arp() -> None:
    """R1."""
    raw = arp.request(A, IPv4Address("192.168.0.1"), IPv4Address("192.168.0.2")).answer(B).pack()
    judge = l2.ARP(raw)
    assert (judge.hwtype, judge.ptype, judge.hwlen, judge.plen, judge.op) == (32, 0x800, 20, 4, 2)
    assert (judge.psrc, judge.pdst) == ("192.168.0.2", "192.168.0.1")
    assert (judge.hwsrc, judge.hwdst) == (B.pack(), A.pack())
    assert not judge.payload


def test_r1_we_read_scapys_arp() -> None:
    """R1."""
    judge = l2.ARP(hwtype=32, hwlen=20, plen=4, op=1, psrc="10.0.0.1", pdst="10.0.0.2")
    judge.hwsrc, judge.hwdst = A.pack(), bytes(20)
    expected = arp.request(A, IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"))
    assert arp.parse_untrusted(bytes(judge)) == expected


@pytest.mark.parametrize(
    ("message", "judge_type", "judged"),
    [
        (
            ndisc.NeighbourSolicitation(A_IP, mgid.solicited_node(B_IP), B_IP, A),
            inet6.ICMPv6ND_NS,
            {"tgt": str(B_IP)},
        ),
        (
            ndisc.NeighbourAdvertisement(
                B_IP, A_IP, B_IP, B, router=True, solicited=True, override=True
            ),
            inet6.ICMPv6ND_NA,
            {"tgt": str(B_IP), "R": 1, "S": 1, "O": 1},
        ),
        (
            ndisc.NeighbourAdvertisement(B_IP, A_IP, B_IP, B, override=True),
            inet6.ICMPv6ND_NA,
            {"tgt": str(B_IP), "R": 0, "S": 0, "O": 1},
        ),
        (ndisc.RouterSolicitation(A_IP, ndisc.ALL_ROUTERS, A), inet6.ICMPv6ND_RS, {}),
        (
            ndisc.RouterAdvertisement(A_IP, ndisc.ALL_NODES, A, (), 64, 0x80, 1800, 30_000, 1000),
            inet6.ICMPv6ND_RA,
            {
                "chlim": 64,
                "M": 1,
                "O": 0,
                "routerlifetime": 1800,
                "reachabletime": 30_000,
                "retranstimer": 1000,
            },
        ),
        (
            ndisc.Redirect(B_IP, A_IP, B_IP, IPv6Address("2001:db8::7"), B),
            inet6.ICMPv6ND_Redirect,
            {"tgt": str(B_IP), "dst": "2001:db8::7"},
        ),
    ],
)
def test_n1_n2_scapy_reads_our_neighbour_discovery(
    message: ndisc.Message, judge_type: type[object], judged: dict[str, object]
) -> None:
    """N1, N2."""
    raw = message.pack()
    judge = inet6.IPv6(raw)
    assert (judge.src, judge.dst) == (str(message.source), str(message.destination))
    assert (judge.hlim, judge.nh, judge.plen) == (255, 58, len(raw) - 40)
    layer = judge.payload
    assert type(layer) is judge_type
    assert {name: layer.getfieldval(name) for name in judged} == judged
    unsealed = raw[40:42] + bytes(2) + raw[44:]
    assert layer.cksum == scapy_in6_checksum(58, inet6.IPv6(raw[:40]), unsealed)
    assert layer.payload.len == 3  # in units of 8 bytes: N1


def test_n1_we_read_what_scapy_seals() -> None:
    """N1."""
    option = bytes.fromhex("01030000") + A.pack()
    mtu = bytes(inet6.ICMPv6NDOptMTU(mtu=2044))
    packet = (
        inet6.IPv6(src=str(A_IP), dst="ff02::1", hlim=255)
        / inet6.ICMPv6ND_RA(chlim=7, routerlifetime=9)
        / Raw(mtu + option)
    )
    message = ndisc.parse_untrusted(bytes(packet))
    assert isinstance(message, ndisc.RouterAdvertisement)
    assert (message.lladdr, message.hop_limit, message.lifetime_s) == (A, 7, 9)
    assert message.options == (Option(5, mtu[2:]),)


def test_scapy_reads_our_stripped_router_advertisement() -> None:
    mtu = Option(5, bytes.fromhex("0000000007fc"))
    message = ndisc.RouterAdvertisement(A_IP, ndisc.ALL_NODES, A, (mtu,), lifetime_s=1800)
    raw, _ = ndisc.strip_untrusted(message.pack())
    judge = inet6.IPv6(raw)
    assert judge[inet6.ICMPv6NDOptMTU].mtu == 2044
    assert not judge.haslayer(inet6.ICMPv6NDOptSrcLLAddr)
    del judge.plen, judge[inet6.ICMPv6ND_RA].cksum
    assert bytes(judge) == raw


def test_m3_scapy_reads_our_igmp_report() -> None:
    """M3."""
    source = IPv4Address("192.0.2.7")
    records = [Record(GROUP4, Filter.TO_EXCLUDE), Record(GROUP4, Filter.BLOCK, (source,))]
    raw = igmp.report(IPv4Address("10.0.0.1"), records).pack()
    judge = inet.IP(raw)
    assert (judge.ttl, judge.dst, judge.options[0].option) == (1, "224.0.0.22", 20)
    seen = [(each.rtype, each.maddr, each.srcaddrs) for each in judge.payload.records]
    assert seen == [(4, "239.1.2.3", []), (6, "239.1.2.3", ["192.0.2.7"])]
    assert scapy_checksum(raw[24:]) == 0
    del judge.chksum, judge.len
    assert bytes(judge) == raw


@pytest.mark.parametrize(("kind", "join"), [(0x12, True), (0x16, True), (0x17, False)])
def test_m3_we_read_scapys_igmp(kind: int, join: bool) -> None:
    """M3."""
    packet = inet.IP(src="10.0.0.1", dst="239.1.2.3", ttl=1) / scapy_igmp.IGMP(
        type=kind, gaddr="239.1.2.3"
    )
    report = igmp.parse_untrusted(bytes(packet))
    assert isinstance(report, Report)
    assert changes(report) == (Change(GROUP4, join),)


def test_m3_scapy_reads_our_mld_report() -> None:
    """M3."""
    source = IPv6Address("2001:db8::7")
    records = [Record(GROUP6, Filter.TO_EXCLUDE), Record(GROUP6, Filter.ALLOW, (source,))]
    raw = mld.report(A_IP, records).pack()
    judge = inet6.IPv6(raw)
    assert (judge.hlim, judge.dst) == (1, "ff02::16")
    assert judge[inet6.IPv6ExtHdrHopByHop].options[0].otype == 5
    report = judge[inet6.ICMPv6MLReport2]
    first = report.records[0]
    second = first.payload  # scapy chains the records of MLD
    assert (first.rtype, first.dst, first.sources) == (4, str(GROUP6), [])
    assert (second.rtype, second.dst, second.sources) == (5, str(GROUP6), [str(source)])
    assert (report.records_number, bytes(second.payload)) == (2, b"")
    del judge.plen, report.cksum
    assert bytes(judge) == raw


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (inet6.ICMPv6MLReport(mladdr=str(GROUP6)), Report((Record(GROUP6, Filter.IS_EXCLUDE),))),
        (inet6.ICMPv6MLDone(mladdr=str(GROUP6)), Report((Record(GROUP6, Filter.TO_INCLUDE),))),
        (inet6.ICMPv6MLQuery(mladdr=str(GROUP6)), Query(GROUP6)),
        (inet6.ICMPv6MLQuery2(), Query(None)),
    ],
)
def test_m3_we_read_scapys_mld(message: object, expected: Report | Query) -> None:
    """M3."""
    hop_by_hop = inet6.IPv6ExtHdrHopByHop(options=[inet6.RouterAlert()])
    packet = inet6.IPv6(src=str(A_IP), dst=str(GROUP6), hlim=1) / hop_by_hop / message
    assert mld.parse_untrusted(bytes(packet)) == expected


def test_c13_scapy_reads_our_icmp_errors() -> None:
    """C13."""
    packet = inet.IP(src="10.0.0.1", dst="10.0.0.2", flags="DF") / inet.UDP(dport=9) / Raw(b"x")
    raw = icmp.too_big_untrusted(bytes(packet), 1020)
    assert raw is not None
    judge = inet.IP(raw)
    error = judge[inet.ICMP]
    assert (error.type, error.code, error.nexthopmtu) == (3, 4, 1020)
    assert bytes(error.payload) == bytes(packet)
    del judge.chksum, judge.len, error.chksum
    assert bytes(judge) == raw


def test_c13_scapy_reads_our_icmpv6_errors() -> None:
    """C13."""
    packet = inet6.IPv6(src=str(A_IP), dst=str(B_IP)) / inet.UDP(dport=9) / Raw(b"x")
    too_big = icmp.too_big_untrusted(bytes(packet), 2044)
    unreachable = icmp.unreachable_untrusted(bytes(packet))
    assert too_big is not None
    assert unreachable is not None
    judge = inet6.IPv6(too_big)
    assert judge[inet6.ICMPv6PacketTooBig].mtu == 2044
    del judge.plen, judge[inet6.ICMPv6PacketTooBig].cksum
    assert bytes(judge) == too_big
    judge = inet6.IPv6(unreachable)
    assert judge[inet6.ICMPv6DestUnreach].code == 3
    del judge.plen, judge[inet6.ICMPv6DestUnreach].cksum
    assert bytes(judge) == unreachable


def test_the_walk_agrees_with_scapy_on_a_chain_of_extension_headers() -> None:
    packet = (
        inet6.IPv6(src=str(A_IP), dst=str(B_IP))
        / inet6.IPv6ExtHdrHopByHop(options=[inet6.RouterAlert()])
        / inet6.IPv6ExtHdrDestOpt(options=[inet6.PadN(optdata=b"\0" * 12)])
        / inet6.IPv6ExtHdrRouting(addresses=["2001:db8::1", "2001:db8::2"])
        / inet.UDP(sport=1, dport=2)
        / Raw(b"payload")
    )
    raw = bytes(packet)
    upper = ip.parse_untrusted(raw).upper_untrusted()
    assert upper.protocol == 17
    assert upper.payload == bytes(inet6.IPv6(raw)[inet.UDP])


@pytest.mark.parametrize("length", [0, 1, 2, 3, 20, 255, 1500])
def test_the_checksum_agrees_with_scapys(length: int) -> None:
    data = bytes((7 * at + length) & 0xFF for at in range(length))
    assert ip.checksum(data) == scapy_checksum(data)
