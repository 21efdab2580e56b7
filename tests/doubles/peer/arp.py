# SPDX-License-Identifier: BSD-2-Clause
"""The host's ARP: RFC 826, RFC 4391 §9.1."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass, field
from typing import Final

from tests.doubles.peer.host import Host

_ARP: Final = struct.Struct("!HHBBH20s4s20s4s")
PENDING_MAX: Final = 3


@dataclass
class _Entry:
    hwaddr: bytes | None = None
    waiting: list[bytes] = field(default_factory=list)
    tries: int = 0


class ArpPart:
    """Resolves IPv4 addresses and answers for ours."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._entries: dict[str, _Entry] = {}
        host.by_type[0x0806] = self.came
        self._send_other = host.send_ip
        host.send_ip = self.send_ip

    def _pack(self, operation: int, sender_ip: str, hwaddr: bytes, ip: str) -> bytes:
        host = self._host
        kind = 1 if host.deviates("ARP of hardware type 1") else 32
        own = bytes((host.flags,)) + host.hwaddr[1:]
        if host.deviates("ARP with another queue pair"):
            own = own[:1] + b"\0\0\7" + own[4:]
        return _ARP.pack(
            kind,
            0x0800,
            20,
            4,
            operation,
            own,
            ipaddress.IPv4Address(sender_ip).packed,
            hwaddr,
            ipaddress.IPv4Address(ip).packed,
        )

    def came(self, body: bytes, sender: bytes, to: str) -> None:
        host = self._host
        if len(body) < _ARP.size:
            return
        kind, protocol, hwlen, iplen, operation, hwaddr, ip, _, target = _ARP.unpack(
            body[: _ARP.size]
        )
        if kind != 32 and not host.deviates("answers any hardware type"):
            return
        if (protocol, hwlen, iplen) != (0x0800, 20, 4):
            return
        source, asked = (str(ipaddress.IPv4Address(it)) for it in (ip, target))
        for_us = asked == host.ipv4
        learns = operation == 2 or not host.deviates("learns nothing from a request")
        if learns and (source in self._entries or (for_us and source != "0.0.0.0")):
            self._learn(source, hwaddr)
        if operation == 1 and for_us and not host.deviates("answers no ARP"):
            back = self._pack(2, host.ipv4, hwaddr, source)
            host.send_frame(hwaddr, 0x0806, back)

    def _learn(self, ip: str, hwaddr: bytes) -> None:
        entry = self._entries.setdefault(ip, _Entry())
        entry.hwaddr = hwaddr
        for packet in entry.waiting:
            self._host.send_frame(hwaddr, 0x0800, packet)
        entry.waiting.clear()

    def send_ip(self, target: str, packet: bytes) -> None:
        if ":" in target:
            self._send_other(target, packet)
            return
        entry = self._entries.setdefault(target, _Entry())
        if entry.hwaddr is not None:
            self._host.send_frame(entry.hwaddr, 0x0800, packet)
            return
        entry.waiting = [*entry.waiting, packet][-PENDING_MAX:]
        if len(entry.waiting) == 1:
            entry.tries = 0
            self._ask(target)

    def _ask(self, target: str) -> None:
        entry = self._entries[target]
        if entry.hwaddr is not None:
            return
        if entry.tries == 3:
            del self._entries[target]
            return
        entry.tries += 1
        host = self._host
        host.send_group("255.255.255.255", 0x0806, self._pack(1, host.ipv4, bytes(20), target))
        host.later(1.0, self._ask, target)
