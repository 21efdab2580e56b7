# SPDX-License-Identifier: BSD-2-Clause
"""ARP with 20-byte hardware addresses: RFC 826, RFC 4391 §9.2 (R1-R3); 56 bytes.

hrd 2 | pro 2 | hln 1 | pln 1 | op 2 | sha hln | spa pln | tha hln | tpa pln
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from ipoibu.base.addr import HWADDR_LEN, Gid, HwAddr, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, lladdr
from ipoibu.wire.encap import EtherType

REASONS: Final = lladdr.REASONS | {"arp_short", "arp_hardware", "arp_protocol", "arp_length"}

HARDWARE_INFINIBAND: Final = 32  # RFC 4391 §9.2
IPV4_LEN: Final = 4
REQUEST: Final = 1
REPLY: Final = 2
# The target of a request, whose address is unknown (R3).
NOBODY: Final = HwAddr(Qpn(0), Gid(bytes(16)))

_FIXED: Final = struct.Struct("!HHBBH")


@dataclass(frozen=True, slots=True)
class Arp:
    """One ARP message.

    `operation` may be any number: RFC 826 merges the sender's mapping before it reads the operation
    (R2). `sender_hwaddr` is the address of a host; `target_hwaddr` may be any bytes (R3).
    """

    operation: int
    sender_hwaddr: HwAddr
    sender_ip: IPv4Address
    target_hwaddr: HwAddr
    target_ip: IPv4Address

    def pack(self) -> bytes:
        """Return 56 bytes, the payload of `EtherType.ARP`."""
        return b"".join(
            (
                _FIXED.pack(
                    HARDWARE_INFINIBAND, EtherType.IPV4, HWADDR_LEN, IPV4_LEN, self.operation
                ),
                self.sender_hwaddr.pack(),
                self.sender_ip.packed,
                self.target_hwaddr.pack(),
                self.target_ip.packed,
            )
        )

    def answer(self, hwaddr: HwAddr) -> Arp:
        """Return the reply to this request from the host `hwaddr`, which owns `target_ip`."""
        return Arp(REPLY, hwaddr, self.target_ip, self.sender_hwaddr, self.sender_ip)


def request(hwaddr: HwAddr, source: IPv4Address, target: IPv4Address) -> Arp:
    """Make a request for `target`; with `source` equal to `target` it is the gratuitous form (A5)."""
    return Arp(REQUEST, hwaddr, source, NOBODY, target)


def parse_untrusted(payload: Octets) -> Arp:
    """Read a message without its encapsulation header, and ignore bytes behind the message."""
    if len(payload) < _FIXED.size:
        raise BadFrame("arp_short")
    hardware, protocol, hwaddr_len, ip_len, operation = _FIXED.unpack_from(payload)
    if hardware != HARDWARE_INFINIBAND:
        raise BadFrame("arp_hardware")
    if protocol != EtherType.IPV4:
        raise BadFrame("arp_protocol")
    if (hwaddr_len, ip_len) != (HWADDR_LEN, IPV4_LEN):
        raise BadFrame("arp_length")
    step = hwaddr_len + ip_len
    if len(payload) < _FIXED.size + 2 * step:
        raise BadFrame("arp_short")
    sender = bytes(payload[_FIXED.size : _FIXED.size + step])
    target = bytes(payload[_FIXED.size + step : _FIXED.size + 2 * step])
    return Arp(
        operation,
        lladdr.parse_untrusted(sender[:hwaddr_len]),
        IPv4Address(sender[hwaddr_len:]),
        HwAddr.unpack(target[:hwaddr_len]),
        IPv4Address(target[hwaddr_len:]),
    )
