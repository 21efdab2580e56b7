# SPDX-License-Identifier: BSD-2-Clause
"""The parts of IPv4 and IPv6 headers that IPoIB needs: RFC 791, RFC 8200."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets

REASONS: Final = frozenset(
    {"ip_short", "ip_version", "ip_header", "ip_length", "ip_checksum", "ip_extension"}
)

ICMP: Final = 1
IGMP: Final = 2
ICMPV6: Final = 58

INTERNETWORK_CONTROL: Final = 0xC0  # type of service; RFC 791 §3.1

HOP_BY_HOP: Final = 0
ROUTING: Final = 43
FRAGMENT: Final = 44
AUTHENTICATION: Final = 51
DESTINATION_OPTIONS: Final = 60

_IPV4: Final = struct.Struct("!BBHHHBBH4s4s")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_DONT_FRAGMENT: Final = 0x4000
_MORE_FRAGMENTS: Final = 0x2000


@dataclass(frozen=True, slots=True)
class Upper:
    """The payload of an IP packet behind all IP headers.

    `offset_bytes` counts from the end of the fixed header (IPv6) or of the options (IPv4). With
    `fragment_offset_bytes` above 0, `payload` is a later fragment of a datagram.
    """

    protocol: int
    payload: bytes
    offset_bytes: int = 0
    is_fragment: bool = False
    fragment_offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ipv4:
    """An IPv4 packet; `options` has a multiple of 4 bytes up to 40, and `fragment_offset_bytes` is
    a multiple of 8."""

    source: IPv4Address
    destination: IPv4Address
    protocol: int
    payload: bytes
    ttl: int = 64
    tos: int = 0
    identification: int = 0
    dont_fragment: bool = False
    more_fragments: bool = False
    fragment_offset_bytes: int = 0
    options: bytes = b""

    def pack(self) -> bytes:
        """Return the header with its checksum, the options and the payload."""
        header_len = _IPV4.size + len(self.options)
        if header_len % 4 or header_len > 60:
            raise ValueError(f"{len(self.options)} bytes of IPv4 options")
        if self.fragment_offset_bytes % 8 or not 0 <= self.fragment_offset_bytes < 1 << 16:
            raise ValueError(f"{self.fragment_offset_bytes} is not a fragment offset")
        if header_len + len(self.payload) > 0xFFFF:
            raise ValueError(f"{len(self.payload)} bytes do not fit an IPv4 packet")
        fragment = (
            self.dont_fragment * _DONT_FRAGMENT
            | self.more_fragments * _MORE_FRAGMENTS
            | self.fragment_offset_bytes // 8
        )
        header = bytearray(
            _IPV4.pack(
                4 << 4 | header_len // 4,
                self.tos,
                header_len + len(self.payload),
                self.identification,
                fragment,
                self.ttl,
                self.protocol,
                0,
                self.source.packed,
                self.destination.packed,
            )
            + self.options
        )
        header[10:12] = checksum(header).to_bytes(2, "big")
        return bytes(header) + self.payload

    def upper_untrusted(self) -> Upper:
        """Return the transport header and the bytes behind it."""
        offset = self.fragment_offset_bytes
        return Upper(self.protocol, self.payload, 0, self.more_fragments or offset > 0, offset)


@dataclass(frozen=True, slots=True)
class Ipv6:
    """An IPv6 packet; `payload` begins with the extension headers, if there are any."""

    source: IPv6Address
    destination: IPv6Address
    next_header: int
    payload: bytes
    hop_limit: int = 64
    traffic_class: int = 0
    flow_label: int = 0

    def pack(self) -> bytes:
        """The 40-byte header and the payload."""
        if len(self.payload) > 0xFFFF:
            raise ValueError(f"{len(self.payload)} bytes do not fit an IPv6 packet")
        return (
            _IPV6.pack(
                first_word(self.traffic_class, self.flow_label),
                len(self.payload),
                self.next_header,
                self.hop_limit,
                self.source.packed,
                self.destination.packed,
            )
            + self.payload
        )

    def upper_untrusted(self) -> Upper:
        """Walk the extension headers (RFC 8200 §4) up to the first other header.

        `ip_extension` if an extension header is cut off.
        """
        protocol, offset, is_fragment = self.next_header, 0, False
        while protocol in (HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS, AUTHENTICATION, FRAGMENT):
            if len(self.payload) < offset + 8:
                raise BadFrame("ip_extension")
            following, length = self.payload[offset], self.payload[offset + 1]
            if protocol == FRAGMENT:
                is_fragment = True
                place = int.from_bytes(self.payload[offset + 2 : offset + 4], "big") & 0xFFF8
                if place:
                    return Upper(following, self.payload[offset + 8 :], offset + 8, True, place)
                step = 8
            elif protocol == AUTHENTICATION:
                step = (length + 2) * 4  # RFC 4302 §2.2: in units of 4 bytes, less 2
            else:
                step = (length + 1) * 8
            if len(self.payload) < offset + step:
                raise BadFrame("ip_extension")
            protocol, offset = following, offset + step
        return Upper(protocol, self.payload[offset:], offset, is_fragment)


Packet = Ipv4 | Ipv6


def destination_of(packet: Octets) -> IpAddress | None:
    """Return where a packet of our own host goes, without a look at the rest; None if it is too short."""
    if len(packet) >= 20 and packet[0] >> 4 == 4:
        return IPv4Address(bytes(packet[16:20]))
    if len(packet) >= 40 and packet[0] >> 4 == 6:
        return IPv6Address(bytes(packet[24:40]))
    return None


def parse_untrusted(packet: Octets) -> Packet:
    """Read an IP packet of either version, and cut bytes behind its stated length off."""
    if not len(packet):
        raise BadFrame("ip_short")
    match packet[0] >> 4:
        case 4:
            return _ipv4_untrusted(packet)
        case 6:
            return _ipv6_untrusted(packet)
        case _:
            raise BadFrame("ip_version")


def _ipv4_untrusted(packet: Octets) -> Ipv4:
    if len(packet) < _IPV4.size:
        raise BadFrame("ip_short")
    first, tos, total, identification, fragment, ttl, protocol, _, source, destination = (
        _IPV4.unpack_from(packet)
    )
    header_len = (first & 0xF) * 4
    if not _IPV4.size <= header_len <= len(packet):
        raise BadFrame("ip_header")
    if not header_len <= total <= len(packet):
        raise BadFrame("ip_length")
    if checksum(packet[:header_len]) != 0:
        raise BadFrame("ip_checksum")
    return Ipv4(
        IPv4Address(source),
        IPv4Address(destination),
        protocol,
        bytes(packet[header_len:total]),
        ttl,
        tos,
        identification,
        bool(fragment & _DONT_FRAGMENT),
        bool(fragment & _MORE_FRAGMENTS),
        (fragment & 0x1FFF) * 8,
        bytes(packet[_IPV4.size : header_len]),
    )


def _ipv6_untrusted(packet: Octets) -> Ipv6:
    if len(packet) < _IPV6.size:
        raise BadFrame("ip_short")
    first, length, next_header, hop_limit, source, destination = _IPV6.unpack_from(packet)
    if _IPV6.size + length > len(packet):
        raise BadFrame("ip_length")
    return Ipv6(
        IPv6Address(source),
        IPv6Address(destination),
        next_header,
        bytes(packet[_IPV6.size : _IPV6.size + length]),
        hop_limit,
        first >> 20 & 0xFF,
        first & 0xFFFFF,
    )


def first_word(traffic_class: int, flow_label: int) -> int:
    """Return the first 32 bits of an IPv6 header, or of a GRH."""
    if not 0 <= traffic_class <= 0xFF or not 0 <= flow_label <= 0xFFFFF:
        raise ValueError("a traffic class has 8 bits and a flow label 20")
    return 6 << 28 | traffic_class << 20 | flow_label


def checksum(data: Octets) -> int:
    """Return the Internet checksum; 0 over data that holds its own correct checksum. RFC 1071 §1.

    2**16 is 1 modulo 65535, so the ones' complement sum of the 16-bit words is the whole number
    modulo 65535; only a sum of zeros alone is 0 rather than 0xffff.
    """
    number = int.from_bytes(data, "big") << 8 * (len(data) % 2)
    return -number % 0xFFFF if number else 0xFFFF


def pseudo_header(
    source: IpAddress, destination: IpAddress, protocol: int, length_bytes: int
) -> bytes:
    """Return the pseudo header, which a transport checksum covers, too; RFC 768, RFC 8200 §8.1."""
    if source.version != destination.version:
        raise ValueError(f"{source} and {destination} are of different IP versions")
    pair = source.packed + destination.packed
    if source.version == 4:
        return pair + struct.pack("!BBH", 0, protocol, length_bytes)
    return pair + struct.pack("!II", length_bytes, protocol)


def transport_checksum(
    source: IpAddress, destination: IpAddress, protocol: int, segment: Octets
) -> int:
    """Return the checksum over pseudo header and segment; 0 if the segment holds a correct one."""
    return checksum(pseudo_header(source, destination, protocol, len(segment)) + bytes(segment))
