# SPDX-License-Identifier: BSD-2-Clause
"""The host's neighbour discovery: RFC 4861, RFC 4391 §9.3."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from ipoibu.conform.mgid import solicited_node
from tests.doubles.peer.host import Host
from tests.doubles.peer.ipv6 import icmpv6, packed


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
