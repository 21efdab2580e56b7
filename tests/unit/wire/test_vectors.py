# SPDX-License-Identifier: BSD-2-Clause
"""Every codec over every vector: truncated and corrupted bytes are a `BadFrame`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, arp, encap, icmp, igmp, ip, lladdr, mld, ndisc
from tests.doubles import grh

Vector = tuple[str, bytes]

PARSERS: Final[dict[str, Callable[[Octets], object]]] = {
    "encap": encap.parse_untrusted,
    "lladdr": lladdr.parse_untrusted,
    "arp": arp.parse_untrusted,
    "grh": grh.parse_untrusted,
    "ip": ip.parse_untrusted,
    "ndisc": ndisc.parse_untrusted,
    "igmp": igmp.parse_untrusted,
    "mld": mld.parse_untrusted,
    "icmp": icmp.unreachable_untrusted,
}
REASONS: Final = {
    "encap": encap.REASONS,
    "lladdr": lladdr.REASONS,
    "arp": arp.REASONS,
    "grh": grh.REASONS,
    "ip": ip.REASONS,
    "ndisc": ndisc.REASONS,
    "igmp": igmp.REASONS,
    "mld": mld.REASONS,
    "icmp": icmp.REASONS,
}
DAMAGES: Final = (*(1 << bit for bit in range(8)), 0xFF)


def resealed(packet: bytes, message: bytes) -> bytes:
    """`packet` with another ICMPv6 or IGMP message, every length and checksum right again."""
    header = ip.parse_untrusted(packet)
    upper = header.upper_untrusted()
    message = message[:2] + bytes(2) + message[4:]
    if isinstance(header, ip.Ipv4):
        check = ip.checksum(message)
    else:
        check = ip.transport_checksum(header.source, header.destination, ip.ICMPV6, message)
    message = message[:2] + check.to_bytes(2, "big") + message[4:]
    return replace(header, payload=header.payload[: upper.offset_bytes] + message).pack()


def damaged(raw: bytes, start: int = 0) -> Iterator[bytes]:
    for at in range(start, len(raw)):
        for damage in DAMAGES:
            yield raw[:at] + bytes((raw[at] ^ damage,)) + raw[at + 1 :]


def refusal(codec: str, raw: bytes) -> str | None:
    """The reason for which `raw` is refused, or None; any other exception passes through."""
    try:
        PARSERS[codec](raw)
    except BadFrame as error:
        return error.reason
    return None


def test_every_vector_is_accepted(vector: Vector) -> None:
    codec, raw = vector
    assert refusal(codec, raw) is None


def test_memoryview_and_bytearray_read_like_bytes(vector: Vector) -> None:
    codec, raw = vector
    parse = PARSERS[codec]
    assert parse(memoryview(raw)) == parse(bytearray(raw)) == parse(raw)


def test_a_parsed_value_does_not_change_with_the_buffer(vector: Vector) -> None:
    codec, raw = vector
    buffer = bytearray(raw)
    value = PARSERS[codec](memoryview(buffer))
    buffer[:] = b"\xaa" * len(buffer)
    assert value == PARSERS[codec](raw)


def test_every_truncation_is_a_bad_frame(vector: Vector) -> None:
    codec, raw = vector
    for length in range(len(raw)):
        assert refusal(codec, raw[:length]) in REASONS[codec]


def test_a_damaged_byte_raises_nothing_but_bad_frame(vector: Vector) -> None:
    codec, raw = vector
    for bad in damaged(raw):
        assert refusal(codec, bad) in REASONS[codec] | {None}


def test_a_checksum_finds_every_damaged_byte_behind_the_type(sealed_vector: Vector) -> None:
    codec, raw = sealed_vector
    start = len(raw) - len(ip.parse_untrusted(raw).upper_untrusted().payload)
    for bad in damaged(raw, start + 1):
        assert refusal(codec, bad) in REASONS[codec]


def test_damage_under_a_right_checksum_raises_nothing_but_bad_frame(sealed_vector: Vector) -> None:
    codec, raw = sealed_vector
    message = ip.parse_untrusted(raw).upper_untrusted().payload
    for bad in damaged(message):
        assert refusal(codec, resealed(raw, bad)) in REASONS[codec] | {None}


def test_a_cut_under_a_right_checksum_raises_nothing_but_bad_frame(sealed_vector: Vector) -> None:
    codec, raw = sealed_vector
    message = ip.parse_untrusted(raw).upper_untrusted().payload
    for length in range(4, len(message)):
        reason = refusal(codec, resealed(raw, message[:length]))
        # none of the messages is complete with less than 8 bytes
        assert reason in REASONS[codec] | ({None} if length >= 8 else set())
