# SPDX-License-Identifier: BSD-2-Clause
"""ARP on Ethernet: RFC 826; 28 bytes. The form of IP over InfiniBand is in `wire/arp.py`.

hrd 2 (1) | pro 2 | hln 1 (6) | pln 1 (4) | op 2 | sha 6 | spa 4 | tha 6 | tpa 4
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from ipoibu.base.addr import MAC_LEN, Mac
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets
from ipoibu.wire.encap import EtherType

REASONS: Final = frozenset({"arp_short", "arp_hardware", "arp_protocol", "arp_length"})

HARDWARE_ETHERNET: Final = 1
NOBODY: Final = Mac(bytes(MAC_LEN))  # the target of a request, whose address is unknown

_MESSAGE: Final = struct.Struct("!HHBBH6s4s6s4s")
_IPV4_LEN: Final = 4


@dataclass(frozen=True, slots=True)
class EthernetArp:
    """One ARP message; `operation` may be any number, as in `wire.arp.Arp`."""

    operation: int
    sender_mac: Mac
    sender_ip: IPv4Address
    target_mac: Mac
    target_ip: IPv4Address

    @property
    def is_probe(self) -> bool:
        """RFC 5227 §1.1: the sender asks whether another host has the address."""
        return self.sender_ip.packed == bytes(_IPV4_LEN)

    @property
    def is_announcement(self) -> bool:
        """RFC 5227 §1.1: the sender says that it has the address from now on."""
        return self.sender_ip == self.target_ip

    def pack(self) -> bytes:
        """Return 28 bytes, the payload of `EtherType.ARP`."""
        return _MESSAGE.pack(
            HARDWARE_ETHERNET,
            EtherType.IPV4,
            MAC_LEN,
            _IPV4_LEN,
            self.operation,
            self.sender_mac.raw,
            self.sender_ip.packed,
            self.target_mac.raw,
            self.target_ip.packed,
        )


def parse_untrusted(payload: Octets) -> EthernetArp:
    """Read the payload of a frame, and ignore the padding behind the message."""
    if len(payload) < _MESSAGE.size:
        raise BadFrame("arp_short")
    hardware, protocol, mac_len, ip_len, operation, sender, sender_ip, target, target_ip = (
        _MESSAGE.unpack_from(payload)
    )
    if hardware != HARDWARE_ETHERNET:
        raise BadFrame("arp_hardware")
    if protocol != EtherType.IPV4:
        raise BadFrame("arp_protocol")
    if (mac_len, ip_len) != (MAC_LEN, _IPV4_LEN):
        raise BadFrame("arp_length")
    return EthernetArp(
        operation, Mac(sender), IPv4Address(sender_ip), Mac(target), IPv4Address(target_ip)
    )
