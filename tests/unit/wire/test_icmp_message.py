# SPDX-License-Identifier: BSD-2-Clause
"""Echo, and errors about packets of a host, both of whose IP versions have a form."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, IPv6
from scapy.packet import Raw

from ipoibu.base.errors import BadFrame
from ipoibu.wire import icmp, icmp_message, ip, udp
from ipoibu.wire.icmp_message import Report, Trouble

A4, B4 = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
A6, B6 = IPv6Address("fd00::1"), IPv6Address("fd00::2")
SENT4 = ip.Ipv4(A4, B4, 17, udp.Datagram(A4, 5000, B4, 7000, bytes(900)).pack())
SENT6 = ip.Ipv6(A6, B6, 17, udp.Datagram(A6, 5000, B6, 7000, bytes(1300)).pack())
BOTH = pytest.mark.parametrize("sent", [SENT4, SENT6], ids=["IPv4", "IPv6"])


@BOTH
def test_a_closed_port_is_reported_about_the_datagram(sent: ip.Packet) -> None:
    answer = icmp_message.port_unreachable_untrusted(sent.pack())
    assert answer is not None
    report = icmp_message.report_untrusted(ip.parse_untrusted(answer))
    assert report == Report(
        Trouble.PORT, sent.destination, sent.source, sent.destination, 17, 5000, 7000
    )


@BOTH
def test_the_link_reports_an_mtu_and_a_dead_host(sent: ip.Packet) -> None:
    big = icmp.too_big_untrusted(sent.pack(), 1280)
    dead = icmp.unreachable_untrusted(sent.pack())
    assert big is not None
    assert dead is not None
    told = icmp_message.report_untrusted(ip.parse_untrusted(big))
    assert told is not None
    assert (told.trouble, told.mtu_bytes) == (Trouble.TOO_BIG, 1280)
    told = icmp_message.report_untrusted(ip.parse_untrusted(dead))
    assert told is not None
    assert told.trouble is Trouble.HOST


def test_scapy_reads_our_answers() -> None:
    request = bytes(IP(src=str(A4), dst=str(B4)) / ICMP(id=7, seq=3) / Raw(b"ping"))
    reply = icmp_message.echo_reply_untrusted(ip.parse_untrusted(request))
    assert reply is not None
    seen = IP(reply.pack())
    assert (seen.src, seen[ICMP].type, seen[ICMP].seq, bytes(seen[Raw])) == (str(B4), 0, 3, b"ping")
    seen[ICMP].chksum, ours = None, seen[ICMP].chksum
    assert IP(bytes(seen))[ICMP].chksum == ours
    request6 = bytes(IPv6(src=str(A6), dst=str(B6)) / ICMPv6EchoRequest(id=7, seq=3, data=b"ping"))
    reply6 = icmp_message.echo_reply_untrusted(ip.parse_untrusted(request6))
    assert reply6 is not None
    seen6 = IPv6(reply6.pack())
    assert (seen6.src, seen6[ICMPv6EchoReply].data) == (str(B6), b"ping")
    refused = icmp_message.port_unreachable_untrusted(SENT6.pack())
    assert refused is not None
    assert IPv6(refused)[ICMPv6DestUnreach].code == 4
    refused = icmp_message.port_unreachable_untrusted(SENT4.pack())
    assert refused is not None
    assert (IP(refused)[ICMP].type, IP(refused)[ICMP].code) == (3, 3)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [(b"\x03\x03", "icmp_short"), (bytes([3, 3, 0, 0]) + bytes(4), "icmp_checksum")],
)
def test_damage_is_refused_by_name(payload: bytes, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        icmp_message.report_untrusted(ip.Ipv4(B4, A4, ip.ICMP, payload))


def test_a_quote_that_is_too_short_is_refused() -> None:
    short = bytes(IP(src=str(B4), dst=str(A4)) / ICMP(type=3, code=3) / Raw(SENT4.pack()[:27]))
    with pytest.raises(BadFrame, match="icmp_quote"):
        icmp_message.report_untrusted(ip.parse_untrusted(short))


def test_nobody_is_told_about_a_group_or_an_error() -> None:
    group = ip.Ipv4(A4, IPv4Address("239.1.2.3"), 17, bytes(8))
    assert icmp_message.port_unreachable_untrusted(group.pack()) is None
    assert icmp_message.report_untrusted(SENT4) is None
