# SPDX-License-Identifier: BSD-2-Clause
"""DHCP messages (RFC 2131, RFC 2132) in IPv4 packets, as they are on IP over InfiniBand (RFC 4390, D1).

    | op 1 | htype 1 | hlen 1 | hops 1 | xid 4 | secs 2 | flags 2 | ciaddr 4 | yiaddr 4 | siaddr 4 |
    | giaddr 4 | chaddr 16 | sname 64 | file 128 | magic cookie 4 | options |

On this medium htype is 32, hlen is 0 and chaddr is zero: 20 bytes do not fit. The client identifier
(option 61) names the client.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Final, Self

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import LEASE_LIST_MAX
from ipoibu.wire import Octets, ip, udp
from ipoibu.wire.client_id import HTYPE_INFINIBAND
from ipoibu.wire.dhcp_packet import CarriedMessage, Payload, datagram_untrusted

REASONS: Final = udp.REASONS | {"dhcp_short", "dhcp_cookie", "dhcp_option"}

SERVER_PORT: Final = 67
CLIENT_PORT: Final = 68
BROADCAST_FLAG: Final = 0x8000

BOOTP_MIN_BYTES: Final = 300  # RFC 1542 §2.1: relay agents may drop shorter messages

_COOKIE: Final = bytes((99, 130, 83, 99))
_HEADER: Final = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s4s")
_OPTION_MAX_BYTES: Final = 255
_UNSPECIFIED: Final = IPv4Address(0)

SEARCH_MAX: Final = 32  # resolv.conf(5): 6 domains before glibc 2.26, no limit since

_LABEL_MAX_BYTES: Final = 63  # RFC 1035 §2.3.4
_NAME_MAX_BYTES: Final = 255
_POINTER: Final = 0xC0  # RFC 1035 §4.1.4

_IN_FILE: Final = 1  # the values of option 52
_IN_SNAME: Final = 2


class Op(enum.IntEnum):
    """The direction of a message."""

    REQUEST = 1
    REPLY = 2


class Kind(enum.IntEnum):
    """The values of option 53, the message type; RFC 2132 §9.6."""

    DISCOVER = 1
    OFFER = 2
    REQUEST = 3
    DECLINE = 4
    ACK = 5
    NAK = 6
    RELEASE = 7
    INFORM = 8


class Code(enum.IntEnum):
    """The options that this program reads or writes: RFC 2132, RFC 3397, RFC 3442."""

    PAD = 0
    SUBNET_MASK = 1
    ROUTER = 3
    DNS = 6
    HOST_NAME = 12
    DOMAIN_NAME = 15
    INTERFACE_MTU = 26
    BROADCAST = 28
    REQUESTED_ADDRESS = 50
    LEASE_TIME = 51
    OVERLOAD = 52
    MESSAGE_TYPE = 53
    SERVER = 54
    PARAMETERS = 55
    MESSAGE = 56
    MAX_MESSAGE_BYTES = 57
    RENEWAL_TIME = 58
    REBINDING_TIME = 59
    CLIENT_ID = 61
    CLIENT_NAME = 81
    RELAY_AGENT = 82
    DOMAIN_SEARCH = 119
    CLASSLESS_ROUTES = 121
    END = 255


Option = tuple[int, bytes]
"""The code of an option, and its value without code and length."""


@dataclass(frozen=True, slots=True)
class Message(Payload):
    """A message; its `options` are in the sender's order, each code once.

    The values of an option that occurs several times are one after the other (RFC 3396). `sname` and
    `file` have no zero bytes at their ends, and are empty if the sender used them for options.
    """

    op: Op
    xid: int
    options: tuple[Option, ...] = ()
    htype: int = HTYPE_INFINIBAND
    hlen: int = 0
    hops: int = 0
    secs: int = 0
    flags: int = 0
    ciaddr: IPv4Address = _UNSPECIFIED
    yiaddr: IPv4Address = _UNSPECIFIED
    siaddr: IPv4Address = _UNSPECIFIED
    giaddr: IPv4Address = _UNSPECIFIED
    chaddr: bytes = bytes(16)
    sname: bytes = b""
    file: bytes = b""

    def option(self, code: int) -> bytes | None:
        """Return the value of an option; None without it."""
        return next((value for key, value in self.options if key == code), None)

    @property
    def kind(self) -> Kind | None:
        """The message type; None for BOOTP, and for a type that this program does not know."""
        value = self.option(Code.MESSAGE_TYPE)
        if value is None or len(value) != 1 or value[0] not in frozenset(Kind):
            return None
        return Kind(value[0])

    @property
    def is_broadcast(self) -> bool:
        """Return whether the client asks for replies by broadcast (D2)."""
        return bool(self.flags & BROADCAST_FLAG)

    def with_option(self, code: int, value: bytes) -> Self:
        """Return the message with the option: in the place of the old one, or before a relay agent's
        option, which is the last one (RFC 3046 §2.1)."""
        if self.option(code) is not None:
            options = [(key, value if key == code else old) for key, old in self.options]
        else:
            relayed = [option for option in self.options if option[0] == Code.RELAY_AGENT]
            others = [option for option in self.options if option[0] != Code.RELAY_AGENT]
            options = [*others, (code, value), *relayed]
        return replace(self, options=tuple(options))

    def without_option(self, code: int) -> Self:
        """Return the message without the option."""
        return replace(self, options=tuple(each for each in self.options if each[0] != code))

    def pack(self) -> bytes:
        """Return the message, at least `BOOTP_MIN_BYTES`, with all options in the options field."""
        if len(self.chaddr) != 16:
            raise ValueError(f"chaddr has 16 bytes, not {len(self.chaddr)}")
        if len(self.sname) > 64 or len(self.file) > 128:
            raise ValueError("sname has at most 64 bytes, and file 128")
        header = _HEADER.pack(
            self.op,
            self.htype,
            self.hlen,
            self.hops,
            self.xid,
            self.secs,
            self.flags,
            self.ciaddr.packed,
            self.yiaddr.packed,
            self.siaddr.packed,
            self.giaddr.packed,
            self.chaddr,
            self.sname,
            self.file,
            _COOKIE,
        )
        body = b"".join(_pack_option(code, value) for code, value in self.options)
        return (header + body + bytes((Code.END,))).ljust(BOOTP_MIN_BYTES, b"\0")


@dataclass(frozen=True)
class Packet(CarriedMessage[IPv4Address, Message]):
    """A message in an IPv4 packet."""


def parse_untrusted(packet: Octets) -> Packet | None:
    """Read a whole IPv4 packet; None if it does not go to a DHCP server's or client's port."""
    found = datagram_untrusted(packet, ip.Ipv4, (SERVER_PORT, CLIENT_PORT))
    if found is None:
        return None
    header, datagram = found
    message = message_untrusted(datagram.payload)
    ports = datagram.source_port, datagram.destination_port
    return Packet(header.source, ports[0], header.destination, ports[1], message)


def message_untrusted(data: Octets) -> Message:
    """Read the payload of a UDP datagram; `dhcp_cookie` for BOOTP without RFC 1497's extensions."""
    if len(data) < _HEADER.size:
        raise BadFrame("dhcp_short")
    (op, htype, hlen, hops, xid, secs, flags, ciaddr, yiaddr, siaddr, giaddr, chaddr, *rest) = (
        _HEADER.unpack_from(data)
    )
    sname, file, cookie = rest
    if cookie != _COOKIE or op not in frozenset(Op):
        raise BadFrame("dhcp_cookie")
    options = _options_untrusted(bytes(data[_HEADER.size :]), {})
    overload = options.pop(Code.OVERLOAD, b"\0")
    if len(overload) != 1 or overload[0] > _IN_FILE | _IN_SNAME:
        raise BadFrame("dhcp_option")
    if overload[0] & _IN_FILE:  # RFC 2131 §4.1: file before sname
        options, file = _options_untrusted(file, options), b""
    if overload[0] & _IN_SNAME:
        options, sname = _options_untrusted(sname, options), b""
    options.pop(Code.OVERLOAD, None)
    return Message(
        Op(op),
        xid,
        tuple(options.items()),
        htype,
        hlen,
        hops,
        secs,
        flags,
        IPv4Address(ciaddr),
        IPv4Address(yiaddr),
        IPv4Address(siaddr),
        IPv4Address(giaddr),
        chaddr,
        sname.rstrip(b"\0"),
        file.rstrip(b"\0"),
    )


# The values of options


def address_untrusted(value: bytes) -> IPv4Address:
    """Read an option that is one address."""
    if len(value) != 4:
        raise BadFrame("dhcp_option")
    return IPv4Address(value)


def addresses_untrusted(value: bytes) -> tuple[IPv4Address, ...]:
    """Read an option that lists addresses, at least one; the first `LEASE_LIST_MAX`."""
    if not value or len(value) % 4:
        raise BadFrame("dhcp_option")
    kept = value[: 4 * LEASE_LIST_MAX]
    return tuple(IPv4Address(kept[at : at + 4]) for at in range(0, len(kept), 4))


def number_untrusted(value: bytes, size_bytes: int) -> int:
    """Read an option that is a number of `size_bytes`."""
    if len(value) != size_bytes:
        raise BadFrame("dhcp_option")
    return int.from_bytes(value, "big")


def prefix_len_untrusted(value: bytes) -> int:
    """Read a subnet mask; `dhcp_option` if its ones are not at its beginning."""
    mask = number_untrusted(value, 4)
    inverse = mask ^ 0xFFFFFFFF
    if inverse & (inverse + 1):
        raise BadFrame("dhcp_option")
    return 32 - inverse.bit_length()


def routes_untrusted(value: bytes) -> tuple[tuple[IPv4Network, IPv4Address], ...]:
    """Read classless static routes (RFC 3442): destination and router, 0.0.0.0 for on-link; the first
    `LEASE_LIST_MAX`."""
    routes: list[tuple[IPv4Network, IPv4Address]] = []
    at = 0
    while at < len(value) and len(routes) < LEASE_LIST_MAX:
        length = value[at]
        octets = (length + 7) // 8
        end = at + 1 + octets + 4
        if length > 32 or end > len(value):
            raise BadFrame("dhcp_option")
        destination = IPv4Address(value[at + 1 : at + 1 + octets].ljust(4, b"\0"))
        network = IPv4Network((destination, length), strict=False)
        routes.append((network, IPv4Address(value[end - 4 : end])))
        at = end
    return tuple(routes)


def text_untrusted(value: bytes) -> str:
    """Read a text of printable ASCII; other bytes become question marks, zero bytes end it."""
    text = value.split(b"\0")[0].decode("ascii", "replace")
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)


def search_untrusted(value: bytes) -> tuple[str, ...]:
    """Read a list of domains to search (RFC 3397), whose names may point back into the list; the first
    `SEARCH_MAX`."""
    domains: list[str] = []
    at = 0
    while at < len(value) and len(domains) < SEARCH_MAX:
        labels, at = _labels_untrusted(value, at)
        domains.append(".".join(labels))
    return tuple(domains)


def _labels_untrusted(value: bytes, start: int) -> tuple[list[str], int]:
    """Read the name at `start`, and return the place behind it; pointers go backwards only."""
    labels: list[str] = []
    at, end = start, 0
    while at < len(value) and value[at]:
        size = value[at]
        if size >= _POINTER:
            place = (size & ~_POINTER) << 8 | (value[at + 1] if at + 1 < len(value) else 0xFF)
            end = end or at + 2
            if place >= start:
                raise BadFrame("dhcp_option")
            start = at = place
        elif size > _LABEL_MAX_BYTES or at + 1 + size > len(value):
            raise BadFrame("dhcp_option")
        else:
            labels.append(text_untrusted(value[at + 1 : at + 1 + size]))
            at += 1 + size
    if at >= len(value) or sum(map(len, labels)) + len(labels) > _NAME_MAX_BYTES:
        raise BadFrame("dhcp_option")
    return labels, end or at + 1


def pack_routes(routes: Iterable[tuple[IPv4Network, IPv4Address]]) -> bytes:
    """Write classless static routes."""
    return b"".join(
        bytes((network.prefixlen,))
        + network.network_address.packed[: (network.prefixlen + 7) // 8]
        + router.packed
        for network, router in routes
    )


def _pack_option(code: int, value: bytes) -> bytes:
    """RFC 3396: a value of more than 255 bytes is in several options of the same code."""
    if not Code.PAD < code < Code.END:
        raise ValueError(f"{code} is not the code of an option with a value")
    pieces: Sequence[bytes] = [
        value[at : at + _OPTION_MAX_BYTES] for at in range(0, len(value), _OPTION_MAX_BYTES)
    ] or [b""]
    return b"".join(bytes((code, len(piece))) + piece for piece in pieces)


def _options_untrusted(field: bytes, before: dict[int, bytes]) -> dict[int, bytes]:
    """Add the options of a field to those of the fields before; a field may lack its end option."""
    options = dict(before)
    at = 0
    while at < len(field) and field[at] != Code.END:
        if field[at] == Code.PAD:
            at += 1
            continue
        end = at + 2 + field[at + 1] if at + 1 < len(field) else len(field) + 1
        if end > len(field):
            raise BadFrame("dhcp_option")
        options[field[at]] = options.get(field[at], b"") + field[at + 2 : end]
        at = end
    return options
