# SPDX-License-Identifier: BSD-2-Clause
"""The host's IPv4: RFC 791, and answers to pings."""

from __future__ import annotations

import ipaddress
import struct

from tests.doubles.peer.host import Host


def checksum(data: bytes) -> int:
    """Sum 16-bit words by arithmetic modulo 65535, unlike the tester."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return 0xFFFF - (total % 0xFFFF) if total % 0xFFFF or not total else 0


class Ipv4Part:
    """Checks IPv4 headers, passes packets on, and answers pings."""

    def __init__(self, host: Host) -> None:
        self._host = host
        host.by_type[0x0800] = self.came
        host.by_protocol[4, 1] = self.icmp_came

    def came(self, packet: bytes, sender: bytes, to: str) -> None:
        host = self._host
        if len(packet) < 20 or packet[0] >> 4 != 4:
            return
        words = packet[0] & 15
        length = int.from_bytes(packet[2:4], "big")
        if words < 5 or length < 4 * words or length > len(packet):
            return
        if checksum(packet[: 4 * words]) != 0 and not host.deviates("ignores the IPv4 checksum"):
            return
        source, target = (str(ipaddress.IPv4Address(packet[i : i + 4])) for i in (12, 16))
        if target not in (host.ipv4, "224.0.0.1", "255.255.255.255") and target not in host.groups:
            return
        handler = host.by_protocol.get((4, packet[9]))
        if handler is not None:
            handler(packet[4 * words : length], sender, source, target)

    def icmp_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        if len(message) < 8 or checksum(message) or message[0] != 8 or target != host.ipv4:
            return
        reply = b"\0\0\0\0" + message[4:]
        reply = reply[:2] + checksum(reply).to_bytes(2, "big") + reply[4:]
        self.send(source, 1, reply)

    def send(self, target: str, protocol: int, message: bytes, ttl: int = 64) -> None:
        self._host.send_ip(target, self.pack(target, protocol, message, ttl))

    def pack(self, target: str, protocol: int, message: bytes, ttl: int = 64) -> bytes:
        """Return a packet of ours."""
        addresses = (
            ipaddress.IPv4Address(self._host.ipv4).packed + ipaddress.IPv4Address(target).packed
        )
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(message), 0, 0, ttl, protocol, 0)
        total = checksum(head + addresses)
        return head[:10] + total.to_bytes(2, "big") + addresses + message
