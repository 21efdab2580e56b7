# SPDX-License-Identifier: BSD-2-Clause
"""Addresses of sockets: what programs pass and see, and what stands in a packet."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from ipoibu.base.addr import IpAddress

SocketAddress = tuple[Any, ...]
"""`(host, port)` of IPv4, `(host, port, flow label, scope)` of IPv6, as in Python's `socket`."""

WILDCARDS: Final[dict[int, IpAddress]] = {
    socket.AF_INET: IPv4Address(0),
    socket.AF_INET6: IPv6Address(0),
}
FLOW4: Final = struct.Struct("!4s4sHH")  # source, destination, and their ports
FLOW6: Final = struct.Struct("!16s16sHH")
LIMITED_BROADCAST: Final = IPv4Address("255.255.255.255")


@dataclass(frozen=True, slots=True)
class Place:
    """An IP address and a port."""

    ip: IpAddress
    port: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The two ends of a datagram."""

    source: Place
    destination: Place

    @classmethod
    def unpack(cls, flow: bytes) -> Flow:
        """Read 12 bytes of IPv4 or 36 of IPv6, as `QueueDevice.recv_runs` returns them."""
        if len(flow) == FLOW4.size:
            source, destination, source_port, destination_port = FLOW4.unpack(flow)
            return cls(
                Place(IPv4Address(source), source_port),
                Place(IPv4Address(destination), destination_port),
            )
        source, destination, source_port, destination_port = FLOW6.unpack(flow)
        return cls(
            Place(IPv6Address(source), source_port),
            Place(IPv6Address(destination), destination_port),
        )

    def pack(self) -> bytes:
        form = FLOW4 if self.source.ip.version == 4 else FLOW6
        source, destination = self.source, self.destination
        return form.pack(source.ip.packed, destination.ip.packed, source.port, destination.port)


def error(number: int, what: object = "") -> OSError:
    """Return the error as the kernel's sockets raise it, such as `ConnectionRefusedError`."""
    text = os.strerror(number)
    return OSError(number, f"{text}: {what}" if what != "" else text)


def place_of(address: object, family: int) -> Place:
    """Read the address of a datagram's destination or of a socket, whose host is no name.

    `TypeError` for no tuple of host and port, `OverflowError` for an impossible port, `socket.gaierror` for
    a host that is no address of the family.
    """
    if not isinstance(address, tuple) or not 2 <= len(address) <= 4:
        raise TypeError(f"an address is a tuple of host and port, not {address!r}")
    host, port = address[0], address[1]
    if not isinstance(host, str) or not isinstance(port, int):
        raise TypeError(f"an address is a text and a number, not {address!r}")
    if not 0 <= port <= 0xFFFF:
        raise OverflowError(f"port {port}: expected 0 to 65535")
    return Place(ip_of(host, family), port)


def ip_of(host: str, family: int) -> IpAddress:
    if not host:
        return WILDCARDS[family]
    if host == "<broadcast>" and family == socket.AF_INET:
        return LIMITED_BROADCAST
    try:
        ip = ip_address(host.partition("%")[0])
    except ValueError as bad:
        raise socket.gaierror(socket.EAI_NONAME, f"{host!r} is no IP address") from bad
    if isinstance(ip, IPv6Address) and family == socket.AF_INET6:
        return ip.ipv4_mapped or ip
    if isinstance(ip, IPv4Address) and family in (socket.AF_INET, socket.AF_INET6):
        return ip
    raise socket.gaierror(socket.EAI_ADDRFAMILY, f"{host} is of the other IP version")


def shown(place: Place, family: int) -> SocketAddress:
    """Return the address as a socket of this family shows it; IPv4 on IPv6 is mapped (RFC 4291 §2.5.5.2)."""
    if family == socket.AF_INET:
        return (str(place.ip), place.port)
    host = f"::ffff:{place.ip}" if place.ip.version == 4 else str(place.ip)
    return (host, place.port, 0, 0)


def is_family(family: int, place: Place, is_dual: bool) -> bool:
    """Return whether a socket of this family can have the place at an end; one of IPv6 alone cannot have
    IPv4."""
    if place.ip.version == 4:
        return family == socket.AF_INET or is_dual
    return family == socket.AF_INET6
