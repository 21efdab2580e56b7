# SPDX-License-Identifier: BSD-2-Clause
"""Fragments of IP packets: RFC 791 §3.2, RFC 8200 §4.5."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import BadFrame
from ipoibu.wire import ip

REASONS: Final = ip.REASONS | {"fragment_length", "fragment_end", "fragment_extension"}

HEADER_BYTES: Final = 8  # of the extension header of IPv6

_HEADER: Final = struct.Struct("!BBHI")


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of the payload of a packet. `protocol` is the one behind the fragment header."""

    source: IpAddress
    destination: IpAddress
    protocol: int
    identification: int
    offset_bytes: int
    has_more: bool
    payload: bytes

    @property
    def end_bytes(self) -> int:
        return self.offset_bytes + len(self.payload)


def parse_untrusted(packet: ip.Packet) -> Fragment | None:
    """Read the fragment in an IP packet; None if the packet is whole.

    `fragment_length`: a part before the last is no multiple of 8 bytes. `fragment_end`: the packet would be
    longer than 65535 bytes. `fragment_extension`: other extension headers than the fragment's come first.
    """
    if isinstance(packet, ip.Ipv4):
        if not packet.more_fragments and not packet.fragment_offset_bytes:
            return None
        part = Fragment(
            packet.source,
            packet.destination,
            packet.protocol,
            packet.identification,
            packet.fragment_offset_bytes,
            packet.more_fragments,
            packet.payload,
        )
    else:
        if not packet.upper_untrusted().is_fragment:
            return None
        if packet.next_header != ip.FRAGMENT:
            raise BadFrame("fragment_extension")
        following, _, place, identification = _HEADER.unpack_from(packet.payload)
        part = Fragment(
            packet.source,
            packet.destination,
            following,
            identification,
            place & 0xFFF8,
            bool(place & 1),
            packet.payload[HEADER_BYTES:],
        )
    if part.has_more and (len(part.payload) % 8 or not part.payload):
        raise BadFrame("fragment_length")
    if part.end_bytes > 0xFFFF:
        raise BadFrame("fragment_end")
    return part


def whole(first: Fragment, payload: bytes) -> ip.Packet:
    """Return the packet with all of the payload, without the fields that do not come from its fragments."""
    if first.source.version == 4:
        if len(payload) > 0xFFFF - 20:
            raise ValueError(f"{len(payload)} bytes do not fit an IPv4 packet")
        return ip.Ipv4(first.source, first.destination, first.protocol, payload)  # type: ignore[arg-type]
    return ip.Ipv6(first.source, first.destination, first.protocol, payload)  # type: ignore[arg-type]


def split(packet: ip.Packet, mtu_bytes: int, identification: int) -> list[bytes]:
    """Return the fragments of a packet without options or extension headers, each at most `mtu_bytes`
    long."""
    if isinstance(packet, ip.Ipv4):
        room = (mtu_bytes - 20) // 8 * 8
    else:
        room = (mtu_bytes - 40 - HEADER_BYTES) // 8 * 8
    if room < 8:
        raise ValueError(f"an MTU of {mtu_bytes} bytes has no room for a fragment")
    total = len(packet.payload)
    fragments = []
    for start in range(0, total, room):
        part = packet.payload[start : start + room]
        has_more = start + room < total
        if isinstance(packet, ip.Ipv4):
            piece: ip.Packet = replace(
                packet,
                payload=part,
                identification=identification & 0xFFFF,
                dont_fragment=False,
                more_fragments=has_more,
                fragment_offset_bytes=start,
            )
        else:
            header = _HEADER.pack(packet.next_header, 0, start | has_more, identification)
            piece = replace(packet, next_header=ip.FRAGMENT, payload=header + part)
        fragments.append(piece.pack())
    return fragments
