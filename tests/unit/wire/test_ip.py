# SPDX-License-Identifier: BSD-2-Clause
"""IPv4 and IPv6 headers, the walk to the upper layer, and the checksums."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import pytest

from ipoibu.base.errors import BadFrame
from ipoibu.wire import ip
from ipoibu.wire.ip import Ipv4, Ipv6, Upper

V4: Final = Ipv4(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, b"payload")
V6: Final = Ipv6(IPv6Address("fe80::1"), IPv6Address("fe80::2"), 17, b"payload")


def reason(packet: bytes) -> str:
    with pytest.raises(BadFrame) as caught:
        ip.parse_untrusted(packet)
    return caught.value.reason


def upper_reason(packet: Ipv6) -> str:
    with pytest.raises(BadFrame) as caught:
        packet.upper_untrusted()
    return caught.value.reason


def test_an_ipv4_header_with_options_is_read_as_linux_wrote_it(
    golden: Callable[[str], bytes],
) -> None:
    packet = Ipv4(
        IPv4Address("10.0.0.1"),
        IPv4Address("239.1.2.3"),
        ip.IGMP,
        bytes.fromhex("1600f8faef010203"),
        ttl=1,
        tos=0xC0,
        dont_fragment=True,
        options=bytes.fromhex("94040000"),
    )
    assert ip.parse_untrusted(golden("ip.v4-options")) == packet
    assert packet.pack() == golden("ip.v4-options")


def test_an_ipv4_fragment_knows_its_place(golden: Callable[[str], bytes]) -> None:
    packet = ip.parse_untrusted(golden("ip.v4-fragment"))
    assert isinstance(packet, Ipv4)
    assert (packet.more_fragments, packet.fragment_offset_bytes) == (True, 1480)
    assert packet.upper_untrusted() == Upper(17, b"ipoib" * 8, 0, True, 1480)
    assert packet.pack() == golden("ip.v4-fragment")


def test_the_last_fragment_of_an_ipv4_packet_is_one_too() -> None:
    assert replace(V4, fragment_offset_bytes=8).upper_untrusted().is_fragment
    assert not V4.upper_untrusted().is_fragment


def test_an_ipv6_header_has_its_class_and_label(golden: Callable[[str], bytes]) -> None:
    packet = ip.parse_untrusted(golden("ip.v6-plain"))
    assert isinstance(packet, Ipv6)
    assert (packet.traffic_class, packet.flow_label, packet.hop_limit) == (0xB8, 0xABCDE, 3)
    assert packet.upper_untrusted() == Upper(17, packet.payload)
    assert packet.pack() == golden("ip.v6-plain")


def test_the_walk_finds_icmpv6_behind_hop_by_hop(golden: Callable[[str], bytes]) -> None:
    packet = ip.parse_untrusted(golden("ip.v6-hop-by-hop"))
    assert packet.upper_untrusted() == Upper(
        ip.ICMPV6, bytes.fromhex("8300399300000000ff050000000000000000000000012345"), 8
    )


def test_the_walk_ends_in_a_fragment_from_the_middle(golden: Callable[[str], bytes]) -> None:
    upper = ip.parse_untrusted(golden("ip.v6-fragment")).upper_untrusted()
    assert upper == Upper(17, b"ipoib" * 8, 16, True, 16)


def test_a_fragment_offset_has_13_bits() -> None:
    # RFC 8200 §4.5: 0xabc8 bytes, two reserved bits, M
    packet = replace(V6, next_header=44, payload=bytes.fromhex("1100abcf00000001") + b"data")
    assert packet.upper_untrusted() == Upper(17, b"data", 8, True, 0xABC8)


def test_the_walk_goes_on_behind_a_first_fragment(golden: Callable[[str], bytes]) -> None:
    # hop-by-hop 8, destination options 8, routing 24, fragment 8
    upper = ip.parse_untrusted(golden("ip.v6-chain")).upper_untrusted()
    assert upper == Upper(ip.ICMPV6, bytes.fromhex("80008f3200000000") + b"ipoib", 48, True, 0)


def test_the_walk_measures_an_authentication_header_in_words() -> None:
    # RFC 4302 §2.2: payload length 4 is 24 bytes
    packet = replace(V6, next_header=51, payload=b"\x3a\x04" + bytes(22) + b"rest")
    assert packet.upper_untrusted() == Upper(ip.ICMPV6, b"rest", 24)


@pytest.mark.parametrize("protocol", [6, 17, 50, 58, 59, 135, 255])
def test_the_walk_stops_at_what_is_no_extension_header(protocol: int) -> None:
    assert replace(V6, next_header=protocol).upper_untrusted() == Upper(protocol, b"payload")


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        (ip.HOP_BY_HOP, ""),
        (ip.HOP_BY_HOP, "3a000502000001"),
        (ip.HOP_BY_HOP, "3a01050200000100"),  # its length is 16 bytes
        (ip.DESTINATION_OPTIONS, "3aff050200000100"),
        (ip.ROUTING, "3a02000000000000"),
        (ip.FRAGMENT, "3a000000"),
        (ip.AUTHENTICATION, "3a04000000000000"),
        (ip.HOP_BY_HOP, "0000050200000100" * 3 + "00"),  # a chain that ends in the middle of one
    ],
)
def test_an_extension_header_that_is_cut_off_is_refused(header: int, payload: str) -> None:
    packet = replace(V6, next_header=header, payload=bytes.fromhex(payload))
    assert upper_reason(packet) == "ip_extension"


def test_a_long_chain_of_extension_headers_ends() -> None:
    chain = bytes.fromhex("3c00010400000000") * 8000 + bytes.fromhex("3a00010400000000")
    packet = replace(V6, next_header=ip.DESTINATION_OPTIONS, payload=chain)
    assert packet.upper_untrusted() == Upper(ip.ICMPV6, b"", 64008)


@pytest.mark.parametrize("first", [0x00, 0x10, 0x55, 0x75, 0xF5])
def test_another_version_is_refused(first: int) -> None:
    assert reason(bytes((first,)) + bytes(59)) == "ip_version"


def test_a_header_length_outside_the_packet_is_refused() -> None:
    assert reason(b"\x44" + V4.pack()[1:]) == "ip_header"
    assert reason(b"\x4f" + V4.pack()[1:]) == "ip_header"


def test_a_total_length_outside_the_packet_is_refused() -> None:
    raw = V4.pack()
    assert reason(raw[:2] + b"\x00\x13" + raw[4:]) == "ip_length"
    assert reason(raw[:2] + b"\x00\x1c" + raw[4:]) == "ip_length"
    assert reason(V6.pack()[:-1]) == "ip_length"


def test_a_wrong_ipv4_checksum_is_refused() -> None:
    raw = bytearray(V4.pack())
    raw[8] -= 1
    assert reason(bytes(raw)) == "ip_checksum"


@pytest.mark.parametrize("packet", [V4, V6])
def test_bytes_behind_the_stated_length_are_cut_off(packet: ip.Packet) -> None:
    assert ip.parse_untrusted(packet.pack() + b"padding") == packet


def test_what_does_not_fit_a_header_is_not_packed() -> None:
    bad: tuple[ip.Packet, ...] = (
        replace(V4, payload=bytes(0xFFFF - 19)),
        replace(V4, options=b"\x01"),
        replace(V4, options=b"\x01" * 44),
        replace(V4, fragment_offset_bytes=4),
        replace(V4, fragment_offset_bytes=1 << 16),
        replace(V4, fragment_offset_bytes=-8),
        replace(V6, payload=bytes(0x10000)),
        replace(V6, traffic_class=256),
        replace(V6, flow_label=-1),
    )
    for packet in bad:
        with pytest.raises(ValueError, match=r"fit|options|offset|bits"):
            packet.pack()
    with pytest.raises(struct.error):
        replace(V4, ttl=256).pack()


@pytest.mark.parametrize(
    "packet",
    [
        replace(V4, payload=bytes(0xFFFF - 60), options=b"\x01" * 40),
        replace(V4, fragment_offset_bytes=0xFFF8),
        replace(V6, payload=bytes(0xFFFF)),
        replace(V6, traffic_class=0xFF, flow_label=0xFFFFF),
    ],
)
def test_the_largest_values_that_fit_are_packed(packet: ip.Packet) -> None:
    assert ip.parse_untrusted(packet.pack()) == packet


def test_the_checksum_of_rfc_1071() -> None:
    # RFC 1071 §3: the sum of 0001 f203 f4f5 f6f7 is ddf2
    assert ip.checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("", 0xFFFF),
        ("00", 0xFFFF),
        ("0000", 0xFFFF),
        ("ffff", 0x0000),
        ("ffffffff", 0x0000),
        ("00000001", 0xFFFE),
        ("ff", 0x00FF),  # an odd byte is the high half of a word
        ("0001ff", 0x00FE),
        ("fffe0001", 0x0000),
    ],
)
def test_the_checksum_at_its_edges(data: str, expected: int) -> None:
    assert ip.checksum(bytes.fromhex(data)) == expected


def test_a_transport_checksum_covers_the_pseudo_header() -> None:
    source, destination = IPv6Address("fe80::1"), IPv6Address("ff02::2")
    # the router solicitation of vector ndisc.rs-kernel
    segment = bytes.fromhex("8500000000000000")
    assert ip.transport_checksum(source, destination, ip.ICMPV6, segment) == 0x7D36
    sealed = bytes.fromhex("85007d3600000000")
    assert ip.transport_checksum(source, destination, ip.ICMPV6, sealed) == 0


def test_pseudo_headers_have_the_layout_of_each_version() -> None:
    one, two = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
    assert ip.pseudo_header(one, two, 17, 0x0123).hex() == "0a0000010a00000200110123"
    three, four = IPv6Address("::1"), IPv6Address("::2")
    expected = "00" * 15 + "01" + "00" * 15 + "02" + "00012345" + "0000003a"
    assert ip.pseudo_header(three, four, 58, 0x12345).hex() == expected
    with pytest.raises(ValueError, match="different IP versions"):
        ip.pseudo_header(one, four, 17, 0)
