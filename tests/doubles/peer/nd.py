# SPDX-License-Identifier: BSD-2-Clause
"""The host's neighbour discovery and IPv6: RFC 4861, RFC 4391 §9.3, and answers to pings."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from ipoibu.conform.mgid import solicited_node
from tests.doubles.peer.arp import checksum
from tests.doubles.peer.host import Host


def packed(ip: str) -> bytes:
    return ipaddress.IPv6Address(ip).packed


@dataclass
class _Neighbour:
    hwaddr: bytes | None = None
    waiting: list[bytes] = field(default_factory=list)
    tries: int = 0


class NdPart:
    """Resolves IPv6 addresses and answers for ours."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._neighbours: dict[str, _Neighbour] = {}
        self._send_other = host.send_ip
        host.send_ip = self.send_ip
        host.by_protocol[6, 58, 135] = self.solicitation_came
        host.by_protocol[6, 58, 136] = self.advertisement_came

    def send_ip(self, target: str, packet: bytes) -> None:
        if ":" not in target:
            self._send_other(target, packet)
            return
        entry = self._neighbours.setdefault(target, _Neighbour())
        if entry.hwaddr is not None:
            self._host.send_frame(entry.hwaddr, 0x86DD, packet)
            return
        entry.waiting.append(packet)
        if len(entry.waiting) == 1:
            self._ask(target)

    def _ask(self, target: str) -> None:
        entry = self._neighbours.get(target)
        if entry is None or entry.hwaddr is not None:
            return
        if entry.tries == 3:
            del self._neighbours[target]
            return
        entry.tries += 1
        host = self._host
        own = host.ipv6[0]
        message = b"\x87\0\0\0" + bytes(4) + packed(target) + self.option(1)
        group = solicited_node(target)
        packet = icmpv6(own, group, message, 255)
        host.send_group(group, 0x86DD, packet)
        host.later(1.0, self._ask, target)

    def option(self, kind: int) -> bytes:
        return bytes((kind, 3, 0, 0, self._host.flags)) + self._host.hwaddr[1:]

    def solicitation_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        asked = str(ipaddress.IPv6Address(message[8:24]))
        if len(message) < 24 or asked not in host.ipv6:
            return
        if source != "::" and message[24:26] == b"\x01\x03":
            self._learn(source, message[28:48])
        advertisement = b"\x88\0\0\0\x60\0\0\0" + packed(asked) + self.option(2)
        self.send_ip(source, icmpv6(asked, source, advertisement, 255))

    def advertisement_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        asked = str(ipaddress.IPv6Address(message[8:24]))
        if asked in self._neighbours and message[24:26] == b"\x02\x03":
            self._learn(asked, message[28:48])

    def _learn(self, ip: str, hwaddr: bytes) -> None:
        entry = self._neighbours.setdefault(ip, _Neighbour())
        entry.hwaddr = hwaddr
        for packet in entry.waiting:
            self._host.send_frame(hwaddr, 0x86DD, packet)
        entry.waiting.clear()


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
