# SPDX-License-Identifier: BSD-2-Clause
"""A message of DHCP or DHCPv6 on its way between a client's and a server's port, in an IP packet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Generic, TypeVar

from ipoibu.wire import Octets, ip, udp

REASONS: Final = udp.REASONS


class Payload(ABC):
    """A message of either protocol."""

    __slots__ = ()

    @abstractmethod
    def pack(self) -> bytes: ...


_Address = TypeVar("_Address", IPv4Address, IPv6Address)
_Message = TypeVar("_Message", bound=Payload)


@dataclass(frozen=True)
class CarriedMessage(Generic[_Address, _Message]):
    """A message between two addresses of one family."""

    source: _Address
    source_port: int
    destination: _Address
    destination_port: int
    message: _Message

    def pack(self) -> bytes:
        """Return the whole IP packet."""
        payload = self.message.pack()
        source, destination = self.source, self.destination
        ends = (source, self.source_port, destination, self.destination_port)
        datagram = udp.Datagram(*ends, payload).pack()
        if isinstance(source, IPv4Address):
            return ip.Ipv4(source, destination, udp.PROTOCOL, datagram).pack()
        return ip.Ipv6(source, destination, udp.PROTOCOL, datagram).pack()


_Header = TypeVar("_Header", ip.Ipv4, ip.Ipv6)


def datagram_untrusted(
    packet: Octets, family: type[_Header], ports: Container[int]
) -> tuple[_Header, udp.Datagram] | None:
    """Read a whole IP packet; None if it is of another family or does not go to one of `ports`."""
    header = ip.parse_untrusted(packet)
    if not isinstance(header, family):
        return None
    datagram = udp.parse_untrusted(header)
    if datagram is None or datagram.destination_port not in ports:
        return None
    return header, datagram
