# SPDX-License-Identifier: BSD-2-Clause
"""DHCP messages and UDP datagrams: what we write scapy reads, and what it writes we read."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers import dhcp as scapy_dhcp
from scapy.layers import inet

from ipoibu.base.errors import BadFrame
from ipoibu.wire import dhcp, ip, udp
from ipoibu.wire.dhcp import Code, Kind, Message, Op, Packet

CLIENT_ID: Final = bytes.fromhex("ff00000001000300200011223344556677")
DISCOVER: Final = Message(
    Op.REQUEST,
    0x12345678,
    ((Code.MESSAGE_TYPE, bytes((Kind.DISCOVER,))), (Code.CLIENT_ID, CLIENT_ID)),
    secs=3,
    flags=dhcp.BROADCAST_FLAG,
)
BROADCAST: Final = IPv4Address("255.255.255.255")
ANY: Final = IPv4Address("0.0.0.0")
SENT: Final = Packet(ANY, dhcp.CLIENT_PORT, BROADCAST, dhcp.SERVER_PORT, DISCOVER)
SERVER: Final = IPv4Address("10.0.0.1")


def reason(raw: bytes) -> str:
    with pytest.raises(BadFrame) as caught:
        dhcp.message_untrusted(raw)
    return caught.value.reason


def test_scapy_reads_what_we_write() -> None:
    raw = SENT.pack()
    judge = inet.IP(raw)
    rebuilt = judge.copy()
    del rebuilt.chksum, rebuilt[inet.UDP].chksum
    assert bytes(rebuilt) == raw  # scapy finds the same checksums
    assert (judge.src, judge.dst) == ("0.0.0.0", "255.255.255.255")
    assert (judge[inet.UDP].sport, judge[inet.UDP].dport) == (68, 67)
    bootp = judge[scapy_dhcp.BOOTP]
    assert (bootp.op, bootp.htype, bootp.hlen, bootp.xid, bootp.secs) == (1, 32, 0, 0x12345678, 3)
    assert (int(bootp.flags), bootp.chaddr) == (0x8000, bytes(16))
    options = judge[scapy_dhcp.DHCP].options
    assert options[:3] == [("message-type", 1), ("client_id", CLIENT_ID), "end"]


def test_we_read_what_scapy_writes() -> None:
    options = [
        ("message-type", "ack"),
        ("server_id", "10.0.0.1"),
        ("lease_time", 600),
        ("subnet_mask", "255.255.255.0"),
        "end",
    ]
    raw = bytes(
        inet.IP(src="10.0.0.1", dst="10.0.0.7")
        / inet.UDP(sport=67, dport=68)
        / scapy_dhcp.BOOTP(op=2, htype=32, hlen=0, xid=7, yiaddr="10.0.0.7", chaddr=b"")
        / scapy_dhcp.DHCP(options=options)
    )
    packet = dhcp.parse_untrusted(raw)
    assert packet is not None
    assert (packet.source, packet.destination_port) == (SERVER, dhcp.CLIENT_PORT)
    message = packet.message
    assert (message.op, message.kind, message.xid) == (Op.REPLY, Kind.ACK, 7)
    assert message.yiaddr == IPv4Address("10.0.0.7")
    assert dhcp.address_untrusted(message.option(Code.SERVER) or b"") == SERVER
    assert dhcp.number_untrusted(message.option(Code.LEASE_TIME) or b"", 4) == 600
    assert dhcp.prefix_len_untrusted(message.option(Code.SUBNET_MASK) or b"") == 24
    assert message.option(Code.ROUTER) is None


codes = st.integers(1, 254).filter(lambda code: code != Code.OVERLOAD)
texts = st.binary(max_size=64).map(lambda raw: raw.rstrip(b"\0"))


@given(
    st.builds(
        Message,
        st.sampled_from(Op),
        st.integers(0, 0xFFFFFFFF),
        st.dictionaries(codes, st.binary(max_size=600), max_size=5).map(lambda d: tuple(d.items())),
        st.integers(0, 255),
        st.integers(0, 255),
        st.integers(0, 255),
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFF),
        st.ip_addresses(v=4),
        st.ip_addresses(v=4),
        st.ip_addresses(v=4),
        st.ip_addresses(v=4),
        st.binary(min_size=16, max_size=16),
        texts,
        texts,
    )
)
def test_messages_survive(message: Message) -> None:
    assert dhcp.message_untrusted(message.pack()) == message
    packet = replace(SENT, message=message)
    assert dhcp.parse_untrusted(packet.pack()) == packet


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6), st.integers(0, 0xFFFF), st.binary(max_size=300))
def test_datagrams_survive(address: IPv4Address | IPv6Address, port: int, payload: bytes) -> None:
    datagram = udp.Datagram(address, port, address, 9, payload)
    packet: ip.Packet
    if isinstance(address, IPv4Address):
        packet = ip.Ipv4(address, address, udp.PROTOCOL, datagram.pack())
    else:
        packet = ip.Ipv6(address, address, udp.PROTOCOL, datagram.pack())
    assert udp.parse_untrusted(packet) == datagram


def test_options_in_the_fields_of_the_names_count_and_stay_in_the_order_of_the_fields() -> None:
    """RFC 2131 §4.1: the options field, then file, then sname; RFC 3396 joins them."""
    raw = bytearray(DISCOVER.pack())
    raw[108:113] = bytes((Code.DOMAIN_NAME, 3)) + b"foo"
    raw[113] = Code.END
    raw[44:49] = bytes((Code.DOMAIN_NAME, 3)) + b"bar"
    raw[49] = Code.END
    raw[240:243] = bytes((Code.OVERLOAD, 1, 3))
    raw[243] = Code.END
    message = dhcp.message_untrusted(raw)
    assert message.options == ((Code.DOMAIN_NAME, b"foobar"),)
    assert (message.sname, message.file) == (b"", b"")


@pytest.mark.parametrize(
    ("damage", "refused"),
    [
        (lambda raw: raw[:239], "dhcp_short"),
        (lambda raw: raw[:236] + bytes(4) + raw[240:], "dhcp_cookie"),
        (lambda raw: b"\3" + raw[1:], "dhcp_cookie"),
        (lambda raw: raw[:240] + bytes((Code.ROUTER, 4, 1, 1, 1)), "dhcp_option"),
        (lambda raw: raw[:240] + bytes((Code.ROUTER,)), "dhcp_option"),
        (lambda raw: raw[:240] + bytes((Code.OVERLOAD, 1, 4)), "dhcp_option"),
    ],
)
def test_a_message_that_contradicts_the_format_is_refused(damage: object, refused: str) -> None:
    assert callable(damage)
    assert reason(damage(DISCOVER.pack())) == refused


def test_a_packet_for_another_port_or_protocol_is_none() -> None:
    assert dhcp.parse_untrusted(replace(SENT, destination_port=69).pack()) is None
    assert dhcp.parse_untrusted(ip.Ipv4(SERVER, SERVER, ip.ICMP, bytes(8)).pack()) is None
    six = IPv6Address("fe80::1")
    datagram = udp.Datagram(six, 67, six, 68, DISCOVER.pack())
    assert dhcp.parse_untrusted(ip.Ipv6(six, six, udp.PROTOCOL, datagram.pack()).pack()) is None


def _parsed(header: ip.Ipv4) -> udp.Datagram | None:
    return udp.parse_untrusted(header)


def test_a_datagram_is_whole_has_its_length_and_a_right_checksum_or_none() -> None:
    whole = udp.Datagram(SERVER, 67, SERVER, 68, b"hello").pack()
    header = ip.Ipv4(SERVER, SERVER, udp.PROTOCOL, whole)
    unsealed = replace(header, payload=whole[:6] + bytes(2) + whole[8:])
    for fine in (header, replace(header, payload=whole + b"padding"), unsealed):
        assert (found := _parsed(fine)) is not None
        assert found.payload == b"hello"
    for bad, refused in (
        (replace(header, more_fragments=True), "udp_fragment"),
        (replace(header, payload=whole[:7]), "udp_short"),
        (replace(header, payload=whole[:-1]), "udp_length"),
        (replace(header, payload=whole[:4] + bytes((0, 7)) + whole[6:]), "udp_length"),
        (replace(header, payload=whole[:-1] + b"!"), "udp_checksum"),
    ):
        with pytest.raises(BadFrame, match=refused):
            _parsed(bad)
    six = ip.Ipv6(IPv6Address("::1"), IPv6Address("::1"), udp.PROTOCOL, unsealed.payload)
    with pytest.raises(BadFrame, match="udp_checksum"):
        udp.parse_untrusted(six)


def test_options_are_put_before_those_of_a_relay_agent_and_replaced_in_place() -> None:
    relayed = replace(DISCOVER, options=(*DISCOVER.options, (Code.RELAY_AGENT, b"\1\1x")))
    more = relayed.with_option(Code.HOST_NAME, b"a")
    assert [code for code, _ in more.options] == [53, 61, 12, 82]
    other = more.with_option(Code.CLIENT_ID, b"\0x")
    assert [code for code, _ in other.options] == [53, 61, 12, 82]
    assert other.option(Code.CLIENT_ID) == b"\0x"
    assert other.without_option(Code.CLIENT_ID).option(Code.CLIENT_ID) is None


def test_classless_routes_are_those_of_the_rfc() -> None:
    """RFC 3442: as many octets of the destination as its prefix needs."""
    raw = bytes.fromhex("00 0a000001  08 0a 0a000002  19 0a1b8180 0a000003  20 0a000009 00000000")
    router = [IPv4Address(f"10.0.0.{n}") for n in (1, 2, 3)]
    expected = (
        (IPv4Network("0.0.0.0/0"), router[0]),
        (IPv4Network("10.0.0.0/8"), router[1]),
        (IPv4Network("10.27.129.128/25"), router[2]),
        (IPv4Network("10.0.0.9/32"), ANY),
    )
    assert dhcp.routes_untrusted(raw) == expected
    assert dhcp.pack_routes(expected) == raw
    for bad in (raw[:-1], bytes((33,)) + bytes(9), b"\x18\x0a"):
        with pytest.raises(BadFrame, match="dhcp_option"):
            dhcp.routes_untrusted(bad)


def test_values_of_other_sizes_are_refused() -> None:
    for read in (
        lambda: dhcp.address_untrusted(bytes(3)),
        lambda: dhcp.addresses_untrusted(b""),
        lambda: dhcp.addresses_untrusted(bytes(5)),
        lambda: dhcp.number_untrusted(bytes(3), 4),
        lambda: dhcp.prefix_len_untrusted(bytes((255, 0, 255, 0))),
        lambda: dhcp.search_untrusted(b"\3ab"),
        lambda: dhcp.search_untrusted(b"\xc0\x00"),
    ):
        with pytest.raises(BadFrame, match="dhcp_option"):
            read()
    assert dhcp.prefix_len_untrusted(bytes(4)) == 0
    assert dhcp.prefix_len_untrusted(b"\xff" * 4) == 32
    assert dhcp.addresses_untrusted(SERVER.packed * 2) == (SERVER, SERVER)
    assert dhcp.text_untrusted(b"ib.example\n\xff\0rest") == "ib.example??"


def test_a_search_list_is_that_of_the_rfc() -> None:
    """RFC 3397 §2, with its compression."""
    raw = b"\3eng\5apple\3com\0\11marketing\xc0\4"
    assert dhcp.search_untrusted(raw) == ("eng.apple.com", "marketing.apple.com")


def test_what_does_not_fit_a_message_is_the_callers_mistake() -> None:
    for bad in (
        replace(DISCOVER, chaddr=b""),
        replace(DISCOVER, sname=bytes(65)),
        replace(DISCOVER, options=((255, b""),)),
    ):
        with pytest.raises(ValueError, match=r"chaddr|sname|code"):
            bad.pack()
    assert replace(DISCOVER, options=((53, b"\x09"),)).kind is None
    assert DISCOVER.is_broadcast
    assert len(DISCOVER.pack()) == dhcp.BOOTP_MIN_BYTES
