# SPDX-License-Identifier: BSD-2-Clause
"""The 40 bytes in front of every UD receive: a GRH if the completion has the flag for it (E4).

    version 4b | traffic class 8b | flow label 20b | payload length 2 | next header 1 |
    hop limit 1 | source GID 16 | destination GID 16

RoCEv2 adapters show the packet's IP header there. An IPv6 header has the same form; an IPv4 header fills
the last 20 bytes, behind zeros (rxe) or garbage (some adapters), and its GIDs are the IPv4-mapped ones.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import GID_LEN, Gid
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import GRH_LEN
from ipoibu.wire import Octets
from ipoibu.wire.ip import checksum, first_word

REASONS: Final = frozenset({"grh_short", "grh_version"})

NEXT_HEADER_IBA: Final = 0x1B  # InfiniBand: a transport header follows
NEXT_HEADER_UDP: Final = 17  # RoCEv2

_FIXED: Final = struct.Struct("!IHBB")
_IPV4: Final = struct.Struct("!BBHHHBBH4s4s")
_MAPPED_PREFIX: Final = bytes(10) + b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Grh:
    """Source and destination of a datagram; `payload_bytes` counts the bytes behind the header."""

    sgid: Gid
    dgid: Gid
    payload_bytes: int
    hop_limit: int = 64
    traffic_class: int = 0
    flow_label: int = 0
    next_header: int = NEXT_HEADER_IBA

    def pack(self) -> bytes:
        """Return 40 bytes in the form of InfiniBand and of RoCEv2 over IPv6."""
        first = first_word(self.traffic_class, self.flow_label)
        return (
            _FIXED.pack(first, self.payload_bytes, self.next_header, self.hop_limit)
            + self.sgid.raw
            + self.dgid.raw
        )

    def pack_ipv4(self) -> bytes:
        """Return 40 bytes in rxe's form over IPv4; `ValueError` unless both GIDs are IPv4-mapped.

        Flow label and next header have no place in this form.
        """
        if not self.sgid.raw.startswith(_MAPPED_PREFIX) or not self.dgid.raw.startswith(
            _MAPPED_PREFIX
        ):
            raise ValueError(f"{self.sgid} and {self.dgid} are not both IPv4-mapped")
        parts = (0x45, self.traffic_class, _IPV4.size + self.payload_bytes, 0, 0, self.hop_limit)
        pair = (self.sgid.raw[12:], self.dgid.raw[12:])
        check = checksum(_IPV4.pack(*parts, NEXT_HEADER_UDP, 0, *pair))
        return bytes(GRH_LEN - _IPV4.size) + _IPV4.pack(*parts, NEXT_HEADER_UDP, check, *pair)


def parse_untrusted(area: Octets) -> Grh:
    """Read the start of a UD receive buffer; valid only if the completion has the flag "GRH" (E4)."""
    if len(area) < GRH_LEN:
        raise BadFrame("grh_short")
    raw = bytes(area[:GRH_LEN])
    # First IPv4: garbage before its header can look like version 6, while a GID pair does not contain 20
    # bytes with version, length, protocol and checksum of IPv4 by accident.
    ipv4 = raw[GRH_LEN - _IPV4.size :]
    if ipv4[0] == 0x45 and ipv4[9] == NEXT_HEADER_UDP and checksum(ipv4) == 0:
        return _ipv4_untrusted(ipv4)
    first, payload_bytes, next_header, hop_limit = _FIXED.unpack_from(raw)
    if first >> 28 != 6:
        raise BadFrame("grh_version")
    sgid, dgid = raw[_FIXED.size : _FIXED.size + GID_LEN], raw[_FIXED.size + GID_LEN :]
    return Grh(
        Gid(sgid),
        Gid(dgid),
        payload_bytes,
        hop_limit,
        first >> 20 & 0xFF,
        first & 0xFFFFF,
        next_header,
    )


def _ipv4_untrusted(header: bytes) -> Grh:
    _, tos, total, _, _, ttl, protocol, _, source, destination = _IPV4.unpack(header)
    if total < _IPV4.size:
        raise BadFrame("grh_short")
    return Grh(
        Gid(_MAPPED_PREFIX + source),
        Gid(_MAPPED_PREFIX + destination),
        total - _IPV4.size,
        ttl,
        tos,
        next_header=protocol,
    )
