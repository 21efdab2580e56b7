# SPDX-License-Identifier: BSD-2-Clause
"""ICMP errors of the link: C13, RFC 1812 §4.3.2, RFC 4443 §2.4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import pytest

from ipoibu.base.errors import BadFrame
from ipoibu.wire import icmp, ip
from ipoibu.wire.ip import Ipv4, Ipv6

V4_ROUTER: Final = IPv4Address("10.0.0.1")
V6_ROUTER: Final = IPv6Address("fd00::1")
PATTERN: Final = bytes(range(256)) * 8

# What a Linux 6.18 router (10.0.0.1, fd00::1) was given, less the hop that it took off
V4_SMALL: Final = Ipv4(
    IPv4Address("10.0.0.9"),
    IPv4Address("10.1.0.5"),
    17,
    PATTERN[:24],
    ttl=63,
    identification=0x1234,
    dont_fragment=True,
)
V6_SMALL: Final = Ipv6(
    IPv6Address("fd00::9"), IPv6Address("fd01::5"), 17, PATTERN[:24], hop_limit=63
)
V4_BIG: Final = replace(V4_SMALL, destination=IPv4Address("10.2.0.5"), payload=PATTERN[:1400])
V6_BIG: Final = replace(  # refused before the hop was taken off
    V6_SMALL, destination=IPv6Address("fd02::5"), payload=PATTERN[:1400], hop_limit=64
)


def answers(packet: ip.Packet) -> tuple[bool, bool]:
    """Whether `packet` is answered by "unreachable" and by "too big"."""
    raw = packet.pack()
    unreachable = icmp.unreachable_untrusted(raw)
    return unreachable is not None, icmp.too_big_untrusted(raw, 1280) is not None


def test_host_unreachable_is_what_linux_sends(golden: Callable[[str], bytes]) -> None:
    linux = ip.parse_untrusted(golden("icmp.v4-unreachable"))
    raw = icmp.unreachable_untrusted(V4_SMALL.pack(), V4_ROUTER)
    assert raw is not None
    ours = ip.parse_untrusted(raw)
    assert isinstance(linux, Ipv4)
    assert ours == replace(linux, identification=0)


def test_address_unreachable_is_what_linux_sends(golden: Callable[[str], bytes]) -> None:
    linux = ip.parse_untrusted(golden("icmp.v6-unreachable"))
    raw = icmp.unreachable_untrusted(V6_SMALL.pack(), V6_ROUTER)
    assert raw is not None
    ours = ip.parse_untrusted(raw)
    assert isinstance(linux, Ipv6)
    assert ours == replace(linux, flow_label=0)


def test_c13_fragmentation_needed_quotes_up_to_576_bytes_as_linux_does() -> None:
    """C13."""
    raw = icmp.too_big_untrusted(V4_BIG.pack(), 1280, V4_ROUTER)
    assert raw is not None
    assert len(raw) == 576
    # type 3, code 4, checksum, next-hop MTU 1280: as Linux 6.18 sent them, over the same quote
    assert raw[20:28].hex() == "03043f3c00000500"
    assert raw[28:] == V4_BIG.pack()[:548]


def test_c13_packet_too_big_quotes_up_to_1280_bytes_as_linux_does() -> None:
    """C13."""
    raw = icmp.too_big_untrusted(V6_BIG.pack(), 1280, V6_ROUTER)
    assert raw is not None
    assert len(raw) == 1280
    assert raw[40:48].hex() == "0200306d00000500"
    assert raw[48:] == V6_BIG.pack()[:1232]


@pytest.mark.parametrize("packet", [V4_SMALL, V6_SMALL])
def test_an_error_comes_from_the_destination_by_default(packet: ip.Packet) -> None:
    raw = icmp.unreachable_untrusted(packet.pack())
    assert raw is not None
    error = ip.parse_untrusted(raw)
    assert (error.source, error.destination) == (packet.destination, packet.source)


def test_a_speaker_of_the_other_ip_version_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="cannot speak about an IPv4 packet"):
        icmp.unreachable_untrusted(V4_SMALL.pack(), V6_ROUTER)
    with pytest.raises(ValueError, match="cannot speak about an IPv6 packet"):
        icmp.too_big_untrusted(V6_SMALL.pack(), 1280, V4_ROUTER)


def test_ipv4_options_are_quoted_and_trailing_bytes_are_not() -> None:
    packet = replace(V4_SMALL, options=bytes.fromhex("94040000")).pack()
    raw = icmp.unreachable_untrusted(packet + b"trailing")
    assert raw is not None
    assert raw[28:] == packet


def test_the_rest_of_an_ipv6_packet_is_quoted_and_trailing_bytes_are_not() -> None:
    raw = icmp.unreachable_untrusted(V6_SMALL.pack() + b"trailing")
    assert raw is not None
    assert raw[48:] == V6_SMALL.pack()


def test_a_missing_dont_fragment_bit_does_not_silence_too_big() -> None:
    assert answers(replace(V4_BIG, dont_fragment=False)) == (True, True)


@pytest.mark.parametrize("kind", [3, 4, 5, 11, 12])
def test_an_icmp_error_is_never_answered(kind: int) -> None:
    error = replace(V4_SMALL, protocol=ip.ICMP, payload=bytes((kind, 0)) + bytes(6))
    assert answers(error) == (False, False)


@pytest.mark.parametrize("kind", [0, 8, 13, 17])
def test_an_icmp_query_is_answered(kind: int) -> None:
    query = replace(V4_SMALL, protocol=ip.ICMP, payload=bytes((kind, 0)) + bytes(6))
    assert answers(query) == (True, True)


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 100, 127, 137])
def test_an_icmpv6_error_or_redirect_is_never_answered(kind: int) -> None:
    error = replace(V6_SMALL, next_header=ip.ICMPV6, payload=bytes((kind, 0)) + bytes(6))
    assert answers(error) == (False, False)
    behind = bytes.fromhex("3a00010400000000") + error.payload
    assert answers(replace(error, next_header=ip.DESTINATION_OPTIONS, payload=behind)) == (
        False,
        False,
    )


@pytest.mark.parametrize("kind", [128, 129, 135, 143, 255])
def test_an_informational_icmpv6_message_is_answered(kind: int) -> None:
    message = replace(V6_SMALL, next_header=ip.ICMPV6, payload=bytes((kind, 0)) + bytes(6))
    assert answers(message) == (True, True)


def test_icmp_without_a_type_is_not_answered() -> None:
    assert answers(replace(V4_SMALL, protocol=ip.ICMP, payload=b"")) == (False, False)
    assert answers(replace(V6_SMALL, next_header=ip.ICMPV6, payload=b"")) == (False, False)


def test_only_the_first_fragment_is_answered() -> None:
    assert answers(replace(V4_SMALL, more_fragments=True)) == (True, True)
    assert answers(replace(V4_SMALL, fragment_offset_bytes=8)) == (False, False)
    first = bytes.fromhex("1100000100000001")
    later = bytes.fromhex("1100000900000001")
    assert answers(replace(V6_SMALL, next_header=44, payload=first + b"data")) == (True, True)
    assert answers(replace(V6_SMALL, next_header=44, payload=later + b"data")) == (False, False)


@pytest.mark.parametrize("group", ["224.0.0.1", "239.1.2.3", "255.255.255.255"])
def test_a_packet_to_an_ipv4_group_or_broadcast_is_not_answered(group: str) -> None:
    assert answers(replace(V4_SMALL, destination=IPv4Address(group))) == (False, False)


@pytest.mark.parametrize(
    "source", ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"]
)
def test_a_source_that_is_not_one_host_is_not_answered(source: str) -> None:
    assert answers(replace(V4_SMALL, source=IPv4Address(source))) == (False, False)


@pytest.mark.parametrize("source", ["::", "ff02::1"])
def test_an_ipv6_source_that_is_not_one_host_is_not_answered(source: str) -> None:
    assert answers(replace(V6_SMALL, source=IPv6Address(source))) == (False, False)


def test_a_packet_to_an_ipv6_group_is_answered_by_too_big_alone_and_by_a_host() -> None:
    # RFC 4443 §2.4 (e.3)
    packet = replace(V6_BIG, destination=IPv6Address("ff05::1"))
    assert answers(packet) == (False, False)
    assert icmp.unreachable_untrusted(packet.pack(), V6_ROUTER) is None
    raw = icmp.too_big_untrusted(packet.pack(), 1280, V6_ROUTER)
    assert raw is not None
    assert ip.parse_untrusted(raw).source == V6_ROUTER


@pytest.mark.parametrize("packet", [b"", b"\x45", b"E" * 40, b"\x60" + bytes(38), bytes(40)])
def test_what_is_no_ip_packet_is_a_bad_frame(packet: bytes) -> None:
    with pytest.raises(BadFrame) as caught:
        icmp.unreachable_untrusted(packet)
    assert caught.value.reason in icmp.REASONS
    with pytest.raises(BadFrame) as caught:
        icmp.too_big_untrusted(packet, 1280)
    assert caught.value.reason in icmp.REASONS


def test_our_own_errors_are_not_answered() -> None:
    for packet in (V4_SMALL, V6_SMALL):
        error = icmp.unreachable_untrusted(packet.pack())
        assert error is not None
        assert icmp.unreachable_untrusted(error) is None
        assert icmp.too_big_untrusted(error, 1280) is None
