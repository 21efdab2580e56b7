# SPDX-License-Identifier: BSD-2-Clause
"""RFC 4861 messages with RFC 4391 §9.3 options: N1-N5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv6Address
from typing import Final

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.wire import ip, ndisc
from ipoibu.wire.ip import Ipv6
from ipoibu.wire.mgid import solicited_node
from ipoibu.wire.ndisc import (
    Message,
    NeighbourAdvertisement,
    NeighbourSolicitation,
    Redirect,
    RouterAdvertisement,
    RouterSolicitation,
)
from ipoibu.wire.ndopt import LinkLayer, Option, link_layer

NONCE: Final = 14  # RFC 7527 §4.1
A: Final = HwAddr(Qpn(0x48), Gid.parse("fe80::215:5dff:fd33:ff0b"))
B: Final = HwAddr(Qpn(0x49), Gid.parse("fe80::215:5dff:fd33:ff0c"), flags=0x80)
A_IP: Final = IPv6Address("fe80::215:5dff:fd33:ff0b")
B_IP: Final = IPv6Address("fe80::215:5dff:fd33:ff0c")
NOBODY: Final = IPv6Address("::")
GLOBAL: Final = IPv6Address("2001:db8::7")

SOLICITATION: Final = NeighbourSolicitation(A_IP, solicited_node(B_IP), B_IP, A)
PROBE: Final = NeighbourSolicitation(
    NOBODY,
    solicited_node(A_IP),
    A_IP,
    options=(Option(NONCE, bytes.fromhex("a1b2c3d4e5f6")),),
)
ANSWER: Final = NeighbourAdvertisement(
    B_IP, A_IP, B_IP, B, router=False, solicited=True, override=True
)
ANSWER_TO_PROBE: Final = NeighbourAdvertisement(
    A_IP, ndisc.ALL_NODES, A_IP, A, router=True, solicited=False, override=True
)
MTU_OPTION: Final = Option(5, bytes.fromhex("0000000007fc"))
PREFIX_OPTION: Final = Option(
    3, bytes.fromhex("40c000000e10000007080000000020010db8000100000000000000000000")
)
ADVERTISEMENT: Final = RouterAdvertisement(
    B_IP,
    ndisc.ALL_NODES,
    B,
    (MTU_OPTION, PREFIX_OPTION),
    hop_limit=64,
    flags=0x48,
    lifetime_s=1800,
    reachable_ms=30_000,
    retransmit_ms=1000,
)
REDIRECT: Final = Redirect(B_IP, A_IP, A_IP, GLOBAL, A)


def reason(packet: bytes) -> str:
    with pytest.raises(BadFrame) as caught:
        ndisc.parse_untrusted(packet)
    return caught.value.reason


def sealed(packet: bytes, message: bytes) -> bytes:
    """`packet` with another ICMPv6 message, the checksum filled in."""
    header = ip.parse_untrusted(packet)
    assert isinstance(header, Ipv6)
    message = message[:2] + bytes(2) + message[4:]
    check = ip.transport_checksum(header.source, header.destination, ip.ICMPV6, message)
    return replace(header, payload=message[:2] + check.to_bytes(2, "big") + message[4:]).pack()


def patched(message: Message, at: int, value: str) -> bytes:
    """The packet of `message` with bytes of its ICMPv6 message changed and the checksum right."""
    packet = message.pack()
    new = bytes.fromhex(value)
    body = packet[40:]
    return sealed(packet, body[:at] + new + body[at + len(new) :])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndisc.ns", SOLICITATION),
        ("ndisc.ns-unicast", NeighbourSolicitation(A_IP, B_IP, B_IP)),
        ("ndisc.ns-dad", PROBE),
        ("ndisc.na", ANSWER),
        ("ndisc.na-dad", ANSWER_TO_PROBE),
        ("ndisc.rs-kernel", RouterSolicitation(IPv6Address("fe80::1"), ndisc.ALL_ROUTERS)),
        ("ndisc.rs", RouterSolicitation(A_IP, ndisc.ALL_ROUTERS, A)),
        ("ndisc.ns-hop-by-hop", SOLICITATION),
    ],
)
def test_n1_messages_are_read_as_others_write_them(
    golden: Callable[[str], bytes], name: str, message: Message
) -> None:
    """N1."""
    assert ndisc.parse_untrusted(golden(name)) == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndisc.ns", SOLICITATION),
        ("ndisc.ns-dad", PROBE),
        ("ndisc.na", ANSWER),
        ("ndisc.na-dad", ANSWER_TO_PROBE),
        ("ndisc.rs", RouterSolicitation(A_IP, ndisc.ALL_ROUTERS, A)),
    ],
)
def test_n1_messages_are_written_as_others_write_them(
    golden: Callable[[str], bytes], name: str, message: Message
) -> None:
    """N1."""
    assert message.pack() == golden(name)


def test_a_router_advertisement_keeps_its_numbers_and_options(
    golden: Callable[[str], bytes],
) -> None:
    assert ndisc.parse_untrusted(golden("ndisc.ra")) == ADVERTISEMENT


def test_a_router_advertisement_promises_nothing_by_default() -> None:
    packet = RouterAdvertisement(B_IP, ndisc.ALL_NODES).pack()
    assert packet[44:].hex() == "00" * 12


def test_a_redirect_keeps_the_redirected_header(golden: Callable[[str], bytes]) -> None:
    message = ndisc.parse_untrusted(golden("ndisc.redirect"))
    assert isinstance(message, Redirect)
    (redirected_header,) = message.options
    assert redirected_header.type == 4
    assert replace(message, options=()) == REDIRECT
    assert message.pack() == golden("ndisc.redirect")


def test_n3_a_multicast_solicitation_goes_to_the_solicited_node_group_with_our_address() -> None:
    """N3."""
    packet = SOLICITATION.pack()
    assert packet[24:40].hex() == "ff0200000000000000000001ff33ff0c"
    assert packet[7] == 255
    assert packet[64:].hex() == "01030000" + "00000048fe8000000000000002155dfffd33ff0b"


def test_n4_the_answer_to_a_solicitation_is_solicited_overrides_and_announces_the_address() -> None:
    """N4."""
    assert SOLICITATION.answer(B) == ANSWER


def test_n4_the_answer_to_a_probe_goes_to_all_nodes_unsolicited() -> None:
    """N4."""
    assert PROBE.answer(A, router=True) == ANSWER_TO_PROBE


@pytest.mark.parametrize(
    "message",
    [
        SOLICITATION,
        PROBE,
        ANSWER,
        ADVERTISEMENT,
        REDIRECT,
        RouterSolicitation(A_IP, ndisc.ALL_ROUTERS),
    ],
)
class TestN2ForEveryMessage:
    """RFC 4861 §6.1.1, §6.1.2, §7.1.1, §7.1.2, §8.1."""

    @pytest.mark.parametrize("hop_limit", [0, 1, 64, 254])
    def test_the_hop_limit_is_255(self, message: Message, hop_limit: int) -> None:
        packet = message.pack()
        assert reason(packet[:7] + bytes((hop_limit,)) + packet[8:]) == "nd_hop_limit"

    def test_the_checksum_is_valid(self, message: Message) -> None:
        packet = message.pack()
        assert reason(packet[:43] + bytes((packet[43] ^ 1,)) + packet[44:]) == "nd_checksum"

    def test_the_addresses_are_covered_by_the_checksum(self, message: Message) -> None:
        packet = message.pack()
        assert reason(packet[:23] + bytes((packet[23] ^ 1,)) + packet[24:]) == "nd_checksum"

    @pytest.mark.parametrize("code", ["01", "ff"])
    def test_the_code_is_zero(self, message: Message, code: str) -> None:
        assert reason(patched(message, 1, code)) == "nd_code"

    def test_the_message_has_its_least_length(self, message: Message) -> None:
        least = {133: 8, 134: 16, 135: 24, 136: 24, 137: 40}[message.pack()[40]]
        packet = message.pack()
        for length in range(4, least):
            assert reason(sealed(packet, packet[40 : 40 + length])) == "nd_short"
        ndisc.parse_untrusted(sealed(packet, packet[40 : 40 + least]))

    @pytest.mark.parametrize("option", ["0500000007fc0000", "05", "0502000007fc0000"])
    def test_every_option_is_whole(self, message: Message, option: str) -> None:
        packet = message.pack()
        assert reason(sealed(packet, packet[40:] + bytes.fromhex(option))) == "nd_option"

    def test_an_unknown_option_is_kept_and_ignored(self, message: Message) -> None:
        packet = message.pack()
        parsed = ndisc.parse_untrusted(
            sealed(packet, packet[40:] + bytes.fromhex("fd01" + "aa" * 6))
        )
        assert parsed == replace(message, options=(*message.options, Option(0xFD, b"\xaa" * 6)))

    def test_the_reserved_bits_are_ignored(self, message: Message) -> None:
        if isinstance(message, RouterAdvertisement):
            assert ndisc.parse_untrusted(patched(message, 5, "ff")) == replace(message, flags=0xFF)
        elif isinstance(message, NeighbourAdvertisement):
            assert ndisc.parse_untrusted(patched(message, 4, "7fffffff")) == message
        else:
            assert ndisc.parse_untrusted(patched(message, 4, "ffffffff")) == message


def test_n2_n5_an_unspecified_source_may_not_announce_an_address() -> None:
    """N2, N5."""
    assert reason(replace(PROBE, lladdr=A).pack()) == "nd_source"
    solicitation = RouterSolicitation(NOBODY, ndisc.ALL_ROUTERS, A)
    assert reason(solicitation.pack()) == "nd_source"
    ndisc.parse_untrusted(replace(solicitation, lladdr=None).pack())


@pytest.mark.parametrize(
    "destination", ["fe80::215:5dff:fd33:ff0b", "ff02::1", "ff02::1:fe33:ff0b"]
)
def test_n2_a_probe_goes_to_a_solicited_node_group(destination: str) -> None:
    """N2."""
    probe = replace(PROBE, destination=IPv6Address(destination))
    assert reason(probe.pack()) == "nd_destination"


@pytest.mark.parametrize("target", ["ff02::1", "ff02::1:ff33:ff0b", "ff0e::1"])
def test_n2_a_target_is_not_multicast(target: str) -> None:
    """N2."""
    address = IPv6Address(target)
    assert reason(replace(SOLICITATION, target=address).pack()) == "nd_target"
    assert reason(replace(ANSWER, target=address).pack()) == "nd_target"
    assert reason(replace(REDIRECT, target=address, redirected=address).pack()) == "nd_target"


def test_n2_an_advertisement_to_a_group_is_not_solicited() -> None:
    """N2."""
    assert reason(replace(ANSWER, destination=ndisc.ALL_NODES).pack()) == "nd_destination"
    unsolicited = replace(ANSWER, destination=ndisc.ALL_NODES, solicited=False)
    assert ndisc.parse_untrusted(unsolicited.pack()) == unsolicited


@pytest.mark.parametrize("source", ["2001:db8::1", "::", "fec0::1"])
def test_n2_a_router_speaks_from_its_link_local_address(source: str) -> None:
    """N2."""
    assert reason(replace(ADVERTISEMENT, source=IPv6Address(source)).pack()) == "nd_source"
    assert reason(replace(REDIRECT, source=IPv6Address(source)).pack()) == "nd_source"


def test_n2_a_redirect_names_a_router_or_the_destination_itself() -> None:
    """N2."""
    assert reason(replace(REDIRECT, target=IPv6Address("2001:db8::8")).pack()) == "nd_target"
    on_link = replace(REDIRECT, target=GLOBAL)
    assert ndisc.parse_untrusted(on_link.pack()) == on_link
    assert reason(replace(REDIRECT, redirected=IPv6Address("ff0e::1")).pack()) == "nd_target"


@pytest.mark.parametrize("kind", ["80", "81", "83", "84", "8a", "8f", "00", "ff"])
def test_n2_other_icmpv6_types_are_not_neighbour_discovery(kind: str) -> None:
    """N2."""
    assert reason(patched(SOLICITATION, 0, kind)) == "nd_type"


def test_n2_what_is_no_icmpv6_is_refused(golden: Callable[[str], bytes]) -> None:
    """N2."""
    assert reason(golden("ip.v6-plain")) == "nd_not_icmpv6"
    assert reason(golden("ip.v4-options")) == "nd_not_icmpv6"


def test_rfc_6980_fragments_are_refused() -> None:
    message = SOLICITATION.pack()[40:]
    for place in ("0000", "0001", "0008"):
        extension = bytes.fromhex("3a00" + place + "00000001")
        packet = Ipv6(A_IP, B_IP, ip.FRAGMENT, extension + message, hop_limit=255)
        assert reason(packet.pack()) == "nd_fragment"


def test_n1_an_ethernet_address_in_the_option_is_refused() -> None:
    """N1."""
    packet = replace(SOLICITATION, lladdr=None).pack()
    ethernet = bytes.fromhex("0101020000000001")
    assert reason(sealed(packet, packet[40:] + ethernet)) == "lladdr_length"


def test_the_address_option_of_the_other_kind_is_kept_and_ignored() -> None:
    target = link_layer(LinkLayer.TARGET, B)
    message = replace(SOLICITATION, lladdr=None, options=(target,))
    assert ndisc.parse_untrusted(message.pack()) == message


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("ndisc.rs", A),
        ("ndisc.ra", B),
        ("ndisc.redirect", A),
        ("ndisc.rs-kernel", None),
        ("ndisc.ns-hop-by-hop", A),
    ],
)
def test_strip_removes_the_address_and_nothing_else(
    golden: Callable[[str], bytes], name: str, address: HwAddr | None
) -> None:
    raw = golden(name)
    packet, hwaddr = ndisc.strip_untrusted(raw)
    assert hwaddr == address
    assert ndisc.parse_untrusted(packet) == replace(ndisc.parse_untrusted(raw), lladdr=None)
    assert len(packet) == len(raw) - (0 if address is None else 24)
    assert int.from_bytes(packet[4:6], "big") == len(packet) - 40
    assert (packet == raw) == (address is None)


def test_strip_removes_every_link_layer_option_and_keeps_the_order_of_the_others() -> None:
    source, target = link_layer(LinkLayer.SOURCE, A), link_layer(LinkLayer.TARGET, B)
    message = replace(ADVERTISEMENT, options=(MTU_OPTION, target, source, PREFIX_OPTION))
    packet, hwaddr = ndisc.strip_untrusted(message.pack())
    assert hwaddr == B
    expected = replace(ADVERTISEMENT, lladdr=None, options=(MTU_OPTION, PREFIX_OPTION))
    assert packet == expected.pack()


def test_strip_keeps_extension_headers_class_and_label(golden: Callable[[str], bytes]) -> None:
    header = ip.parse_untrusted(golden("ndisc.ns-hop-by-hop"))
    assert isinstance(header, Ipv6)
    marked = replace(header, traffic_class=0xC0, flow_label=0x12345)
    packet, _ = ndisc.strip_untrusted(marked.pack())
    stripped = ip.parse_untrusted(packet)
    assert isinstance(stripped, Ipv6)
    assert stripped.payload[:8] == header.payload[:8]
    assert replace(stripped, payload=b"") == replace(marked, payload=b"")


def test_strip_cuts_off_what_is_behind_the_packet() -> None:
    packet, _ = ndisc.strip_untrusted(SOLICITATION.pack() + b"padding")
    assert packet == replace(SOLICITATION, lladdr=None).pack()


def test_strip_refuses_what_parse_refuses() -> None:
    with pytest.raises(BadFrame) as caught:
        ndisc.strip_untrusted(replace(ADVERTISEMENT, source=GLOBAL).pack())
    assert caught.value.reason == "nd_source"
