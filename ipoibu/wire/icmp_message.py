# SPDX-License-Identifier: BSD-2-Clause
"""ICMP messages to a host: echo, and errors about packets that it sent. RFC 792, RFC 1191, RFC 4443.

`icmp` makes the errors of a link; this file reads errors of others, and answers for a host.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, icmp, ip

REASONS: Final = ip.REASONS | {"icmp_short", "icmp_checksum", "icmp_quote"}

_HEADER: Final = struct.Struct("!BBHI")
_PORTS: Final = struct.Struct("!HH")
_V4_ECHO: Final = (8, 0)  # request, reply
_V6_ECHO: Final = (128, 129)


class Trouble(enum.Enum):
    """What an error says about a packet."""

    PORT = "nobody listens at the port"
    HOST = "the host cannot be reached"
    NETWORK = "the network cannot be reached"
    REFUSED = "an administrator forbids it, or the protocol is unknown"
    TOO_BIG = "the packet is longer than the path's MTU"
    TIME = "the hop limit was too small, or fragments are missing"
    HEADER = "a field of the header is wrong"


_V4_UNREACHABLE: Final = {
    **dict.fromkeys((0, 6, 11), Trouble.NETWORK),
    **dict.fromkeys((1, 5, 7, 8, 12), Trouble.HOST),
    **dict.fromkeys((2, 9, 10, 13), Trouble.REFUSED),
    3: Trouble.PORT,
    4: Trouble.TOO_BIG,
}
_V6_UNREACHABLE: Final = {
    0: Trouble.NETWORK,
    1: Trouble.REFUSED,
    3: Trouble.HOST,
    4: Trouble.PORT,
}


@dataclass(frozen=True, slots=True)
class Report:
    """An error about a packet that we sent: from where to where, its protocol and its ports (0 of a protocol
    without ports). `mtu_bytes` is that of `Trouble.TOO_BIG`; a router of IPv4 may leave it at 0."""

    trouble: Trouble
    speaker: IpAddress
    source: IpAddress
    destination: IpAddress
    protocol: int
    source_port: int
    destination_port: int
    mtu_bytes: int = 0


def report_untrusted(packet: ip.Packet) -> Report | None:
    """Read an error; None for every other message, and for one about a later fragment."""
    message = _message_untrusted(packet)
    if message is None:
        return None
    kind, code, _, rest = _HEADER.unpack_from(message)
    trouble = _trouble(packet, kind, code)
    if trouble is None:
        return None
    mtu_bytes = 0
    if trouble is Trouble.TOO_BIG:
        mtu_bytes = rest & 0xFFFF if isinstance(packet, ip.Ipv4) else rest
    return _quoted_untrusted(packet, trouble, message[_HEADER.size :], mtu_bytes)


def echo_reply_untrusted(packet: ip.Packet) -> ip.Packet | None:
    """Return the answer to an echo request, from the address that it was sent to; None for every other
    message."""
    message = _message_untrusted(packet)
    if message is None:
        return None
    request, reply = _V4_ECHO if isinstance(packet, ip.Ipv4) else _V6_ECHO
    if message[0] != request:
        return None
    if isinstance(packet, ip.Ipv4):
        return ip.Ipv4(
            packet.destination,
            packet.source,
            ip.ICMP,
            _sealed(packet.destination, packet.source, reply, message),
            tos=packet.tos,
        )
    return ip.Ipv6(
        packet.destination,
        packet.source,
        ip.ICMPV6,
        _sealed(packet.destination, packet.source, reply, message),
        traffic_class=packet.traffic_class,
    )


def port_unreachable_untrusted(packet: Octets) -> bytes | None:
    """Return the error to a packet for whose port nobody listens, from the address that it was sent to (RFC
    1122 §4.1.3.1, RFC 4443 §3.1); None where the RFCs forbid an error."""
    answer = icmp.unreachable_untrusted(packet)
    if answer is None:
        return None
    error = ip.parse_untrusted(answer)
    code = 3 if isinstance(error, ip.Ipv4) else 4
    message = error.payload[:1] + bytes([code]) + error.payload[2:]
    sealed = _sealed(error.source, error.destination, message[0], message)
    return replace(error, payload=sealed).pack()


def _sealed(source: IpAddress, destination: IpAddress, kind: int, message: bytes) -> bytes:
    """Return the message with this type and its checksum."""
    unsealed = bytes([kind, message[1], 0, 0]) + message[4:]
    if source.version == 4:
        check = ip.checksum(unsealed)
    else:
        check = ip.transport_checksum(source, destination, ip.ICMPV6, unsealed)
    return unsealed[:2] + check.to_bytes(2, "big") + unsealed[4:]


def _message_untrusted(packet: ip.Packet) -> bytes | None:
    """Return the whole message; None if the packet is another protocol's, or a fragment."""
    upper = packet.upper_untrusted()
    is_v4 = isinstance(packet, ip.Ipv4)
    if upper.protocol != (ip.ICMP if is_v4 else ip.ICMPV6) or upper.is_fragment:
        return None
    message = upper.payload
    if len(message) < _HEADER.size:
        raise BadFrame("icmp_short")
    if is_v4:
        residue = ip.checksum(message)
    else:
        residue = ip.transport_checksum(packet.source, packet.destination, ip.ICMPV6, message)
    if residue:
        raise BadFrame("icmp_checksum")
    return message


def _trouble(packet: ip.Packet, kind: int, code: int) -> Trouble | None:
    if isinstance(packet, ip.Ipv4):
        match kind:
            case 3:
                return _V4_UNREACHABLE.get(code)
            case 11:
                return Trouble.TIME
            case 12:
                return Trouble.HEADER
        return None
    match kind:
        case 1:
            return _V6_UNREACHABLE.get(code, Trouble.REFUSED)
        case 2:
            return Trouble.TOO_BIG
        case 3:
            return Trouble.TIME
        case 4:
            return Trouble.HEADER
    return None


def _quoted_untrusted(
    packet: ip.Packet, trouble: Trouble, quote: bytes, mtu_bytes: int
) -> Report | None:
    """Read the beginning of the packet that an error is about, which the speaker has cut off."""
    if isinstance(packet, ip.Ipv4):
        if len(quote) < 28 or quote[0] >> 4 != 4:
            raise BadFrame("icmp_quote")
        start = (quote[0] & 0xF) * 4
        if start < 20 or len(quote) < start + _PORTS.size:
            raise BadFrame("icmp_quote")
        if int.from_bytes(quote[6:8], "big") & 0x1FFF:
            return None
        source: IpAddress = IPv4Address(quote[12:16])
        destination: IpAddress = IPv4Address(quote[16:20])
        protocol = quote[9]
    else:
        if len(quote) < 48 or quote[0] >> 4 != 6:
            raise BadFrame("icmp_quote")
        source, destination = IPv6Address(quote[8:24]), IPv6Address(quote[24:40])
        protocol, start = quote[6], 40
        if protocol == ip.FRAGMENT:
            if int.from_bytes(quote[42:44], "big") & 0xFFF8:
                return None
            protocol, start = quote[40], 48
        if len(quote) < start + _PORTS.size:
            raise BadFrame("icmp_quote")
    source_port, destination_port = _PORTS.unpack_from(quote, start)
    return Report(
        trouble,
        packet.source,
        source,
        destination,
        protocol,
        source_port,
        destination_port,
        mtu_bytes,
    )
