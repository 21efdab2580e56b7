# SPDX-License-Identifier: BSD-2-Clause
"""ICMP errors of a link to the local stack: next hop dead, packet too big (C13).

ICMPv4 3/1 and 3/4 (RFC 792, RFC 1191), ICMPv6 1/3 and 2 (RFC 4443). Each function takes the packet
that the link could not send, and returns the complete error to that packet's source, or None where
the RFCs forbid an error. The caller limits the rate.

The error comes from `source`, by default the packet's own destination: Linux drops an IPv4 packet that
arrives with one of the host's addresses as its source, so it cannot come from the interface's address.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import IPV6_MIN_MTU
from ipoibu.wire import Octets, ip
from ipoibu.wire.mgid import LIMITED_BROADCAST

REASONS: Final = ip.REASONS

V4_UNREACHABLE: Final = 3
V4_CODE_HOST: Final = 1
V4_CODE_TOO_BIG: Final = 4
V6_UNREACHABLE: Final = 1
V6_CODE_ADDRESS: Final = 3
V6_TOO_BIG: Final = 2

V4_ERROR_MAX_BYTES: Final = 576  # RFC 1812 §4.3.2.3
V6_ERROR_MAX_BYTES: Final = IPV6_MIN_MTU  # RFC 4443 §2.4 (c)

_HEADER: Final = struct.Struct("!BBHI")
_V4_ERRORS: Final = frozenset((3, 4, 5, 11, 12))  # RFC 1122 §3.2.2
_V6_FIRST_INFORMATIONAL: Final = 128  # RFC 4443 §2.1
_V6_REDIRECT: Final = 137  # RFC 4443 §2.4 (e.2)


def unreachable_untrusted(packet: Octets, source: IpAddress | None = None) -> bytes | None:
    """Host unreachable (RFC 1812 §5.2.7.1) or address unreachable (RFC 4443 §3.1).

    `BadFrame` if `packet` is no IP packet, `ValueError` if `source` is of the other IP version.
    """
    header = ip.parse_untrusted(packet)
    speaker = source or header.destination
    if isinstance(header, ip.Ipv4):
        if not _may_answer_v4(header):
            return None
        return _v4(header, packet, speaker, code=V4_CODE_HOST)
    if header.destination.is_multicast or not _may_answer_v6_untrusted(header):
        return None
    return _v6(header, packet, speaker, kind=V6_UNREACHABLE, code=V6_CODE_ADDRESS)


def too_big_untrusted(
    packet: Octets, mtu_bytes: int, source: IpAddress | None = None
) -> bytes | None:
    """Fragmentation needed (RFC 1191 §4) or packet too big (RFC 4443 §3.2); the next hop's IP MTU.

    The function ignores the don't-fragment bit: the link does not fragment, but a stack that knows
    the MTU does. Errors as in `unreachable_untrusted`.
    """
    header = ip.parse_untrusted(packet)
    speaker = source or header.destination
    if isinstance(header, ip.Ipv4):
        if not _may_answer_v4(header):
            return None
        return _v4(header, packet, speaker, code=V4_CODE_TOO_BIG, mtu_bytes=mtu_bytes)
    # RFC 4443 §2.4 (e.3): this error may answer a multicast packet, if it has a unicast source
    if speaker.is_multicast or not _may_answer_v6_untrusted(header):
        return None
    return _v6(header, packet, speaker, kind=V6_TOO_BIG, mtu_bytes=mtu_bytes)


def _may_answer_v4(header: ip.Ipv4) -> bool:
    """RFC 1812 §4.3.2.7, RFC 1122 §3.2.2."""
    source, destination = header.source, header.destination
    if header.fragment_offset_bytes or destination.is_multicast or destination == LIMITED_BROADCAST:
        return False
    if source.is_multicast or source.is_reserved or source.is_loopback or source.packed[0] == 0:
        return False
    return header.protocol != ip.ICMP or (
        bool(header.payload) and header.payload[0] not in _V4_ERRORS
    )


def _may_answer_v6_untrusted(header: ip.Ipv6) -> bool:
    """RFC 4443 §2.4 (e), but for the rule on multicast destinations.

    A fragment other than the first gets no error either: its upper-layer protocol is unknown.
    """
    if header.source.is_unspecified or header.source.is_multicast:
        return False
    upper = header.upper_untrusted()
    if upper.fragment_offset_bytes:
        return False
    if upper.protocol != ip.ICMPV6:
        return True
    kind = upper.payload[0] if upper.payload else 0
    return kind >= _V6_FIRST_INFORMATIONAL and kind != _V6_REDIRECT


def _v4(
    header: ip.Ipv4, packet: Octets, speaker: IpAddress, *, code: int, mtu_bytes: int = 0
) -> bytes:
    if not isinstance(speaker, IPv4Address):
        raise ValueError(f"{speaker} cannot speak about an IPv4 packet")
    room = V4_ERROR_MAX_BYTES - 20 - _HEADER.size
    total = 20 + len(header.options) + len(header.payload)
    quote = bytes(packet[: min(total, room)])
    check = ip.checksum(_HEADER.pack(V4_UNREACHABLE, code, 0, mtu_bytes) + quote)
    message = _HEADER.pack(V4_UNREACHABLE, code, check, mtu_bytes) + quote
    # RFC 1812 §4.3.2.5: errors have the precedence of network control
    return ip.Ipv4(speaker, header.source, ip.ICMP, message, tos=ip.INTERNETWORK_CONTROL).pack()


def _v6(
    header: ip.Ipv6,
    packet: Octets,
    speaker: IpAddress,
    *,
    kind: int,
    code: int = 0,
    mtu_bytes: int = 0,
) -> bytes:
    if not isinstance(speaker, IPv6Address):
        raise ValueError(f"{speaker} cannot speak about an IPv6 packet")
    room = V6_ERROR_MAX_BYTES - 40 - _HEADER.size
    quote = bytes(packet[: min(40 + len(header.payload), room)])
    unsealed = _HEADER.pack(kind, code, 0, mtu_bytes) + quote
    check = ip.transport_checksum(speaker, header.source, ip.ICMPV6, unsealed)
    message = _HEADER.pack(kind, code, check, mtu_bytes) + quote
    return ip.Ipv6(speaker, header.source, ip.ICMPV6, message).pack()
