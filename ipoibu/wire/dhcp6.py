# SPDX-License-Identifier: BSD-2-Clause
"""DHCPv6 messages between client and server (RFC 8415 §8, §21) in IPv6 packets.

    | msg-type 1 | transaction-id 3 | options |
    option: | code 2 | length 2 | value |

Identity associations (option 3) and their addresses (option 5) have options of their own in their values.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, dhcp, ip, udp
from ipoibu.wire.dhcp_packet import CarriedMessage, Payload, datagram_untrusted

REASONS: Final = udp.REASONS | {"dhcp6_short", "dhcp6_option"}

SERVER_PORT: Final = 547
CLIENT_PORT: Final = 546
SERVERS: Final = IPv6Address("ff02::1:2")  # All_DHCP_Relay_Agents_and_Servers, RFC 8415 §7.1

INFINITE: Final = 0xFFFFFFFF  # RFC 8415 §7.7

_HEADER: Final = struct.Struct("!I")
_OPTION: Final = struct.Struct("!HH")
_IA_NA: Final = struct.Struct("!4sII")
_IA_ADDRESS: Final = struct.Struct("!16sII")


class Kind(enum.IntEnum):
    """The message types, RFC 8415 §7.3."""

    SOLICIT = 1
    ADVERTISE = 2
    REQUEST = 3
    CONFIRM = 4
    RENEW = 5
    REBIND = 6
    REPLY = 7
    RELEASE = 8
    DECLINE = 9
    RECONFIGURE = 10


class Code(enum.IntEnum):
    """The options that this program reads or writes: RFC 8415 §24, RFC 3646, RFC 4704."""

    CLIENT_ID = 1
    SERVER_ID = 2
    IA_NA = 3
    IA_ADDRESS = 5
    WANTED = 6  # option request option
    PREFERENCE = 7
    ELAPSED_TIME = 8
    STATUS = 13
    DNS = 23
    DOMAIN_SEARCH = 24
    CLIENT_NAME = 39
    SOL_MAX_RT = 82
    INF_MAX_RT = 83


class Status(enum.IntEnum):
    """The values of option 13, RFC 8415 §21.13; a code that this program does not know is a failure."""

    SUCCESS = 0
    UNSPEC_FAIL = 1
    NO_ADDRS_AVAIL = 2
    NO_BINDING = 3
    NOT_ON_LINK = 4
    USE_MULTICAST = 5


Option = tuple[int, bytes]
"""The code of an option, and its value without code and length."""


def option_of(options: tuple[Option, ...], code: int) -> bytes | None:
    """Return the value of the first option of that code; None without it."""
    return next((value for key, value in options if key == code), None)


@dataclass(frozen=True, slots=True)
class Message(Payload):
    """A message; `code` is its type, `xid` has 24 bits, `options` are in the sender's order."""

    code: int
    xid: int
    options: tuple[Option, ...] = ()

    def option(self, code: int) -> bytes | None:
        """Return the value of the first option of that code; None without it."""
        return option_of(self.options, code)

    @property
    def kind(self) -> Kind | None:
        """The message type; None for one that this program does not know, such as a relay agent's."""
        return Kind(self.code) if self.code in frozenset(Kind) else None

    def pack(self) -> bytes:
        """Return the message; `ValueError` for numbers and values that do not fit."""
        if not 0 <= self.xid < 1 << 24 or not 0 <= self.code < 1 << 8:
            raise ValueError("a message type has 8 bits, and a transaction number 24")
        return _HEADER.pack(self.code << 24 | self.xid) + pack_options(self.options)


@dataclass(frozen=True)
class Packet(CarriedMessage[IPv6Address, Message]):
    """A message in an IPv6 packet."""


@dataclass(frozen=True, slots=True)
class Association:
    """The value of an IA_NA option, RFC 8415 §21.4: addresses of one interface; times in seconds."""

    iaid: bytes
    renewal_s: int = 0
    rebinding_s: int = 0
    options: tuple[Option, ...] = ()

    def pack(self) -> bytes:
        """Return the option's value; `ValueError` for an IAID of another size than 4 bytes."""
        if len(self.iaid) != 4:
            raise ValueError(f"an IAID has 4 bytes, not {len(self.iaid)}")
        return _IA_NA.pack(self.iaid, self.renewal_s, self.rebinding_s) + pack_options(self.options)


@dataclass(frozen=True, slots=True)
class Address:
    """The value of an IA Address option, RFC 8415 §21.6; times in seconds."""

    ip: IPv6Address
    preferred_s: int = 0
    valid_s: int = 0
    options: tuple[Option, ...] = ()

    def pack(self) -> bytes:
        """Return the option's value."""
        head = _IA_ADDRESS.pack(self.ip.packed, self.preferred_s, self.valid_s)
        return head + pack_options(self.options)


def pack_options(options: tuple[Option, ...]) -> bytes:
    """Write options one after the other; `ValueError` for a value of more than 65535 bytes."""
    if any(len(value) > 0xFFFF for _, value in options):
        raise ValueError("the value of an option has at most 65535 bytes")
    return b"".join(_OPTION.pack(code, len(value)) + value for code, value in options)


def pack_name(name: str) -> bytes:
    """Write a Client FQDN option's value for a host's name without its domain: the server decides about
    the DNS (RFC 4704 §4.1, §4.2: a partial name has no zero byte at its end)."""
    label = name.encode("ascii")
    return bytes((0, len(label))) + label


def parse_untrusted(packet: Octets) -> Packet | None:
    """Read a whole IPv6 packet; None if it does not go to a DHCPv6 server's or client's port."""
    found = datagram_untrusted(packet, ip.Ipv6, (SERVER_PORT, CLIENT_PORT))
    if found is None:
        return None
    header, datagram = found
    message = message_untrusted(datagram.payload)
    ports = datagram.source_port, datagram.destination_port
    return Packet(header.source, ports[0], header.destination, ports[1], message)


def message_untrusted(data: Octets) -> Message:
    """Read the payload of a UDP datagram."""
    if len(data) < _HEADER.size:
        raise BadFrame("dhcp6_short")
    (first,) = _HEADER.unpack_from(data)
    return Message(first >> 24, first & 0xFFFFFF, options_untrusted(bytes(data[_HEADER.size :])))


def options_untrusted(field: bytes) -> tuple[Option, ...]:
    """Read the options of a message, or of an option's value."""
    options: list[Option] = []
    at = 0
    while at < len(field):
        if at + _OPTION.size > len(field):
            raise BadFrame("dhcp6_option")
        code, length = _OPTION.unpack_from(field, at)
        at += _OPTION.size
        if at + length > len(field):
            raise BadFrame("dhcp6_option")
        options.append((code, field[at : at + length]))
        at += length
    return tuple(options)


def association_untrusted(value: bytes) -> Association:
    """Read the value of an IA_NA option."""
    if len(value) < _IA_NA.size:
        raise BadFrame("dhcp6_option")
    iaid, renewal_s, rebinding_s = _IA_NA.unpack_from(value)
    return Association(iaid, renewal_s, rebinding_s, options_untrusted(value[_IA_NA.size :]))


def address_untrusted(value: bytes) -> Address:
    """Read the value of an IA Address option."""
    if len(value) < _IA_ADDRESS.size:
        raise BadFrame("dhcp6_option")
    address, preferred_s, valid_s = _IA_ADDRESS.unpack_from(value)
    options = options_untrusted(value[_IA_ADDRESS.size :])
    return Address(IPv6Address(address), preferred_s, valid_s, options)


def status_untrusted(options: tuple[Option, ...]) -> tuple[Status, str]:
    """Read the status among these options, and its text; without one it is success (§21.13)."""
    value = option_of(options, Code.STATUS)
    if value is None:
        return Status.SUCCESS, ""
    if len(value) < 2:
        raise BadFrame("dhcp6_option")
    number = int.from_bytes(value[:2], "big")
    status = Status(number) if number in frozenset(Status) else Status.UNSPEC_FAIL
    return status, dhcp.text_untrusted(value[2:])


def addresses_untrusted(value: bytes) -> tuple[IPv6Address, ...]:
    """Read an option that lists addresses, at least one (RFC 3646 §3)."""
    if not value or len(value) % 16:
        raise BadFrame("dhcp6_option")
    return tuple(IPv6Address(value[at : at + 16]) for at in range(0, len(value), 16))


def seconds_untrusted(value: bytes) -> int:
    """Read an option that is a number of seconds (§21.24, §21.25)."""
    if len(value) != 4:
        raise BadFrame("dhcp6_option")
    return int.from_bytes(value, "big")


def preference_untrusted(value: bytes) -> int:
    """Read a server's preference, 0 to 255 (§21.8)."""
    if len(value) != 1:
        raise BadFrame("dhcp6_option")
    return value[0]
