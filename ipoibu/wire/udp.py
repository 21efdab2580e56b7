# SPDX-License-Identifier: BSD-2-Clause
"""UDP datagrams, whole: RFC 768."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, ip

REASONS: Final = ip.REASONS | {"udp_short", "udp_fragment", "udp_length", "udp_checksum"}

PROTOCOL: Final = 17
HEADER_BYTES: Final = 8

_HEADER: Final = struct.Struct("!HHHH")


@dataclass(frozen=True, slots=True)
class Datagram:
    """A UDP datagram between two addresses of one family."""

    source: IpAddress
    source_port: int
    destination: IpAddress
    destination_port: int
    payload: bytes

    def pack(self) -> bytes:
        """Return header and payload with the checksum, without an IP header."""
        length = HEADER_BYTES + len(self.payload)
        header = _HEADER.pack(self.source_port, self.destination_port, length, 0)
        check = ip.transport_checksum(
            self.source, self.destination, PROTOCOL, header + self.payload
        )
        return header[:6] + (check or 0xFFFF).to_bytes(2, "big") + self.payload


def parse_untrusted(packet: ip.Packet) -> Datagram | None:
    """Read the datagram in an IP packet; None if the packet is no UDP. Without a checksum, which IPv4
    permits, a datagram is valid. Bytes behind the stated length do not belong to the datagram."""
    upper = packet.upper_untrusted()
    if upper.protocol != PROTOCOL:
        return None
    if upper.is_fragment:
        raise BadFrame("udp_fragment")
    if len(upper.payload) < HEADER_BYTES:
        raise BadFrame("udp_short")
    source_port, destination_port, length, check = _HEADER.unpack_from(upper.payload)
    if not HEADER_BYTES <= length <= len(upper.payload):
        raise BadFrame("udp_length")
    datagram = upper.payload[:length]
    is_sealed = check != 0 or isinstance(packet, ip.Ipv6)
    if is_sealed and _residue(packet, datagram):
        raise BadFrame("udp_checksum")
    return Datagram(
        packet.source,
        source_port,
        packet.destination,
        destination_port,
        datagram[HEADER_BYTES:],
    )


def _residue(packet: ip.Packet, datagram: Octets) -> int:
    return ip.transport_checksum(packet.source, packet.destination, PROTOCOL, datagram)
