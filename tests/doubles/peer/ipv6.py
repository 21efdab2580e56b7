# SPDX-License-Identifier: BSD-2-Clause
"""The host's IPv6: RFC 8200, and answers to pings."""

from __future__ import annotations

import ipaddress

from tests.doubles.peer.host import Host
from tests.doubles.peer.ipv4 import checksum


def packed(ip: str) -> bytes:
    return ipaddress.IPv6Address(ip).packed


class Ipv6Part:
    """Checks IPv6 headers, passes messages on by their type, and answers pings."""

    def __init__(self, host: Host) -> None:
        self._host = host
        host.by_type[0x86DD] = self.came
        host.by_protocol[6, 58, 128] = self.echo_came

    def came(self, packet: bytes, sender: bytes, to: str) -> None:
        host = self._host
        if len(packet) < 40 or packet[0] >> 4 != 6:
            return
        length = int.from_bytes(packet[4:6], "big")
        if 40 + length > len(packet):
            return
        source, target = (str(ipaddress.IPv6Address(packet[i : i + 16])) for i in (8, 24))
        if target not in host.ipv6 and target not in host.groups:
            return
        message = packet[40 : 40 + length]
        if packet[6] != 58 or not message:
            return
        pseudo = packet[8:40] + length.to_bytes(4, "big") + b"\0\0\0\x3a"
        if checksum(pseudo + message) != 0:
            return
        if message[0] in (133, 134, 135, 136, 137) and packet[7] != 255:
            return
        handler = host.by_protocol.get((6, 58, message[0]))
        if handler is not None:
            handler(message, sender, source, target)

    def echo_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        own = target if target in self._host.ipv6 else self._host.ipv6[0]
        self._host.send_ip(source, icmpv6(own, source, b"\x81\0\0\0" + message[4:], 64))


def icmpv6(source: str, target: str, message: bytes, hop_limit: int) -> bytes:
    """Return the packet with the checksum set (bytes 2 and 3 of `message` are zero)."""
    addresses = packed(source) + packed(target)
    length = len(message)
    pseudo = addresses + length.to_bytes(4, "big") + b"\0\0\0\x3a"
    total = checksum(pseudo + message)
    message = message[:2] + total.to_bytes(2, "big") + message[4:]
    head = b"\x60\0\0\0" + length.to_bytes(2, "big") + bytes((58, hop_limit))
    return head + addresses + message
