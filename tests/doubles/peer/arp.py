# SPDX-License-Identifier: BSD-2-Clause
"""The host's ARP: RFC 826, RFC 4391 §9.1."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
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


Hear = Callable[[int, bytes, str, str], None]
"""Takes a valid message: operation, sender's hardware address, sender's and target's IP address."""


class ArpPart:
    """Resolves IPv4 addresses and answers for ours."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._entries: dict[str, _Entry] = {}
        self.more: set[str] = set()  # addresses that the host has beside its first one
        self.hear: Hear = lambda operation, hwaddr, source, target: None
        host.by_type[0x0806] = self.came
        self._send_other = host.send_ip
        host.send_ip = self.send_ip
        if host.deviates("answers reverse ARP as ARP"):
            host.by_type[0x8035] = self.came

    def _pack(self, operation: int, sender_ip: str, hwaddr: bytes, ip: str) -> bytes:
        host = self._host
        kind = 1 if host.deviates("ARP of hardware type 1") else 32
        flags = 0 if host.deviates("announces no connected mode by ARP") else host.flags
        own = bytes((flags,)) + host.hwaddr[1:]
        if host.deviates("ARP with another queue pair"):
            own = own[:1] + b"\0\0\7" + own[4:]
        if operation == 1 and host.deviates("asks with another GID"):
            own = own[:19] + bytes((own[19] ^ 1,))
        if host.deviates("ARP with an unknown flag"):
            own = bytes((own[0] | 1,)) + own[1:]
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

    def ask(self, sender_ip: str, ip: str) -> None:
        """Ask the whole link for the hardware address of `ip`."""
        message = self._pack(1, sender_ip, bytes(20), ip)
        self._host.send_group("255.255.255.255", 0x0806, message)

    def came(self, body: bytes, sender: bytes, to: str) -> None:
        host = self._host
        if len(body) < _ARP.size:
            if len(body) < 8 or not host.deviates("fills a short ARP message up"):
                return
            body += bytes(_ARP.size - len(body) - 4) + ipaddress.IPv4Address(host.ipv4).packed
        kind, protocol, hwlen, iplen, operation, hwaddr, ip, had, target = _ARP.unpack(
            body[: _ARP.size]
        )
        wrong = (
            kind != 32 and not host.deviates("answers any hardware type"),
            protocol != 0x0800 and not host.deviates("answers any protocol"),
            hwlen != 20 and not host.deviates("answers any hardware length"),
            iplen != 4 and not host.deviates("answers any protocol length"),
            any(had) and operation == 1 and host.deviates("wants no target address in a request"),
            hwaddr[0] & 0x3F and host.deviates("drops ARP with unknown flags"),
            hwaddr[4] == 0xFF and not host.deviates("believes that a host has a group's address"),
        )
        if any(wrong):
            return
        source, asked = (str(ipaddress.IPv4Address(it)) for it in (ip, target))
        if hwaddr[1:] != sender[1:] and host.deviates("drops ARP about another queue pair"):
            return
        self.hear(operation, hwaddr, source, asked)
        for_us = asked == host.ipv4 or asked in self.more
        if self._is_learned(operation, source, asked, hwaddr, for_us=for_us):
            self._learn(source, hwaddr)
        if self._is_answered(operation, source, asked, for_us=for_us, to=to):
            back = hwaddr if not host.deviates("replies without the asker's address") else bytes(20)
            message = self._pack(2, asked, back, source)
            if host.deviates("replies to everybody"):
                host.send_group("255.255.255.255", 0x0806, message)
            else:
                host.send_frame(hwaddr, 0x0806, message)

    def _is_learned(
        self, operation: int, source: str, asked: str, hwaddr: bytes, *, for_us: bool
    ) -> bool:
        host, entry = self._host, self._entries.get(source)
        if source == "0.0.0.0":
            return False
        if operation == 1 and source != asked and host.deviates("learns nothing from a request"):
            return False
        if source == asked and host.deviates("takes no announcement"):
            return False
        if source == asked and operation == 2 and host.deviates("takes no announcement by a reply"):
            return False
        is_new = entry is None or entry.hwaddr is None
        if not is_new and source != asked and host.deviates("keeps the first address of a host"):
            return False
        if operation == 1 and not for_us and host.deviates("learns only from what it is asked"):
            return source == asked
        return entry is not None or for_us or host.deviates("learns from any request")

    def _is_answered(
        self, operation: int, source: str, asked: str, *, for_us: bool, to: str
    ) -> bool:
        host = self._host
        if operation == 2 or (operation != 1 and not host.deviates("answers any operation")):
            return False  # two hosts that answer replies would never end
        if source == "0.0.0.0" and host.deviates("answers no probe"):
            return False
        if to == "unicast" and host.deviates("answers no ARP by unicast"):
            return False
        if asked.startswith("10.") and host.deviates("answers for every address of its network"):
            return True
        return for_us

    def _learn(self, ip: str, hwaddr: bytes) -> None:
        entry = self._entries.setdefault(ip, _Entry())
        entry.hwaddr = hwaddr
        for packet in entry.waiting:
            self._send_frame(hwaddr, packet)
        entry.waiting.clear()

    def _send_frame(self, hwaddr: bytes, packet: bytes) -> None:
        host = self._host
        if hwaddr[0] & 0x3F and host.deviates("sends to no address with unknown flags"):
            return
        if len(packet) >= 28 and packet[9] == 1 and host.deviates("replies where a ping came from"):
            hwaddr = hwaddr[:1] + host.last_sender[1:]
        host.send_frame(hwaddr, 0x0800, packet)

    def send_ip(self, target: str, packet: bytes) -> None:
        host = self._host
        if ":" in target:
            self._send_other(target, packet)
            return
        entry = self._entries.setdefault(target, _Entry())
        if entry.hwaddr is not None:
            self._send_frame(entry.hwaddr, packet)
            return
        is_first = not entry.waiting
        if not entry.waiting or not host.deviates("keeps only the first packet while it asks"):
            entry.waiting = [*entry.waiting, packet][-PENDING_MAX:]
        if is_first:
            entry.tries = 0
            self._ask(target)
        elif host.deviates("asks for each packet"):
            self.ask(host.ipv4, target)

    def _ask(self, target: str) -> None:
        entry = self._entries[target]
        if entry.hwaddr is not None:
            return
        if entry.tries == 3:
            del self._entries[target]
            return
        entry.tries += 1
        host = self._host
        if host.deviates("asks by unicast"):
            message = self._pack(1, host.ipv4, bytes(20), target)
            host.send_frame(host.last_sender, 0x0806, message)
        else:
            self.ask(host.ipv4, target)
        host.later(1.0, self._ask, target)
