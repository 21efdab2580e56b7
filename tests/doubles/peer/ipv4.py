# SPDX-License-Identifier: BSD-2-Clause
"""The host's IPv4: RFC 791 and its fragments, RFC 792, RFC 1191."""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

from tests.doubles.peer.fragments import Pieces
from tests.doubles.peer.host import Host, is_multicast

DEVIATIONS: Final = {
    "answers IPv4 pings of a wrong checksum": "RFC792-sum",
    "answers unknown ICMP types": "RFC1122-3.2.2-type",
    "cuts the data of an IPv4 ping": "RFC1122-3.2.2.6",
    "drops IPv4 that may go no further": "RFC1122-3.2.1.7",
    "drops unknown IPv4 options": "RFC1122-3.2.1.8",
    "ignores the IPv4 checksum": "RFC1122-3.2.1.2",
    "is silent about closed IPv4 ports": "RFC1122-4.1.3.1",
    "knows no path MTU of IPv4": "RFC1191-3",
    "lowers the path MTU below 68": "RFC1191-3-68",
    "mixes IPv4 fragments of two datagrams": "RFC791-3.2-key",
    "mixes IPv4 fragments of two protocols": "RFC791-3.2-key",
    "mixes IPv4 fragments of two sources": "RFC791-3.2-key",
    "puts no 576 bytes together": "RFC1122-3.3.2",
    "quotes 24 bytes": "RFC1122-3.2.2-quote",
    "raises the path MTU of IPv4": "RFC1191-3-raise",
    "sends a zero IPv4 checksum": "RFC792-sum",
    "sends errors about IPv4 by link groups": "RFC1122-3.2.2-link",
    "sends errors about IPv4 groups": "RFC1122-3.2.2-group",
    "sends errors about fragments": "RFC1122-3.2.2-fragment",
    "takes 127.0.0.1 from the link": "RFC1122-3.2.1.3-destination",
    "takes IPv4 for any address": "RFC1122-3.2.1.3-destination",
    "takes IPv4 from a group": "RFC1122-3.2.1.3-source",
    "takes IPv4 of any version": "RFC1122-3.2.1.1",
    "takes IPv4 that is cut short": "RFC791-3.1",
    "takes a protocol for a port": "RFC1122-3.2.2.1",
    "takes a report of a wrong checksum": "RFC1191-sum",
    "takes a short IPv4 header": "RFC791-3.1",
    "takes unicast by a group": "RFC1122-3.3.6",
    "takes what follows an IPv4 datagram": "RFC791-3.1-length",
    "wants the first IPv4 piece first": "RFC791-3.2",
}


def checksum(data: bytes) -> int:
    """Sum 16-bit words by arithmetic modulo 65535, unlike the tester."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return 0xFFFF - (total % 0xFFFF) if total % 0xFFFF or not total else 0


class Ipv4Part:
    """Checks IPv4 headers, passes packets on, answers pings, and sends errors."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pieces: dict[tuple[object, ...], Pieces] = {}
        self._path_mtu: dict[str, int] = {}
        self._id = 0
        host.by_type[0x0800] = self.came
        host.by_protocol[4, 1] = self.icmp_came
        self._send_whole = host.send_ip
        host.send_ip = self.send_ip

    def came(self, packet: bytes, sender: bytes, to: str) -> None:
        host = self._host
        if len(packet) < 20 or not self._is_header(packet):
            return
        words = max(5, packet[0] & 15)
        length = int.from_bytes(packet[2:4], "big")
        if host.deviates("takes what follows an IPv4 datagram"):
            length = len(packet)
        source, target = (str(ipaddress.IPv4Address(packet[i : i + 4])) for i in (12, 16))
        if not self._is_ours(target):
            return
        no_source = source == "255.255.255.255" or is_multicast(source)
        if no_source and not host.deviates("takes IPv4 from a group"):
            return
        by_group = to == "multicast" and not is_multicast(target)
        if by_group and packet[9] == 1 and not host.deviates("takes unicast by a group"):
            return
        told = not is_multicast(target) or host.deviates("sends errors about IPv4 groups")
        if by_group and not host.deviates("sends errors about IPv4 by link groups"):
            told = False
        whole = self._reassembled(packet, packet[4 * words : length], told)
        if whole is None:
            return
        if packet[9] == 17 and (4, 17) not in host.by_protocol:
            if told and not host.deviates("is silent about closed IPv4 ports"):
                self._error(source, 3, packet)
            return
        handler = host.by_protocol.get((4, packet[9]))
        if handler is not None:
            handler(whole, sender, source, target)
        elif told:
            self._error(source, 3 if host.deviates("takes a protocol for a port") else 2, packet)

    def _is_header(self, packet: bytes) -> bool:
        """Return whether the header is whole and right."""
        host = self._host
        if packet[0] >> 4 != 4 and not host.deviates("takes IPv4 of any version"):
            return False
        words = max(5, packet[0] & 15)
        length = int.from_bytes(packet[2:4], "big")
        if packet[0] & 15 < 5 and not host.deviates("takes a short IPv4 header"):
            return False
        if length > len(packet) and not host.deviates("takes IPv4 that is cut short"):
            return False
        if length < 4 * words:
            return False
        if packet[8] < 2 and packet[9] == 1 and host.deviates("drops IPv4 that may go no further"):
            return False
        if words > 5 and packet[20] == 0x9E and host.deviates("drops unknown IPv4 options"):
            return False
        return checksum(packet[: 4 * words]) == 0 or host.deviates("ignores the IPv4 checksum")

    def _is_ours(self, target: str) -> bool:
        host = self._host
        if target in (host.ipv4, "224.0.0.1", "255.255.255.255") or target in host.groups:
            return True
        if target.startswith("127."):
            return host.deviates("takes 127.0.0.1 from the link")
        return not is_multicast(target) and host.deviates("takes IPv4 for any address")

    def _reassembled(self, packet: bytes, data: bytes, told: bool) -> bytes | None:
        """Return what the datagram carries, once all its fragments are here."""
        host = self._host
        word = int.from_bytes(packet[6:8], "big")
        offset, more = (word & 0x1FFF) * 8, bool(word & 0x2000)
        if not offset and not more:
            return data
        if offset and told and packet[9] == 253 and host.deviates("sends errors about fragments"):
            self._error(str(ipaddress.IPv4Address(packet[12:16])), 2, packet)
            return None
        source, number, protocol = packet[12:16], packet[4:6], packet[9]
        if host.deviates("mixes IPv4 fragments of two sources"):
            source = b""
        if host.deviates("mixes IPv4 fragments of two datagrams"):
            number = b""
        if host.deviates("mixes IPv4 fragments of two protocols"):
            protocol = 0
        key = (source, packet[16:20], number, protocol)
        if offset and key not in self._pieces and host.deviates("wants the first IPv4 piece first"):
            return None
        if len(data) > 500 and host.deviates("puts no 576 bytes together"):
            return None
        pieces = self._pieces.setdefault(key, Pieces())
        pieces.add(offset, data, more)
        whole = pieces.whole()
        if whole is not None:
            del self._pieces[key]
        return whole

    def _error(self, target: str, code: int, packet: bytes) -> None:
        """Send a destination unreachable about a packet."""
        quote = packet[:24] if self._host.deviates("quotes 24 bytes") else packet[:548]
        message = bytes((3, code, 0, 0, 0, 0, 0, 0)) + quote
        message = message[:2] + checksum(message).to_bytes(2, "big") + message[4:]
        self.send(target, 1, message)

    def icmp_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        if len(message) < 8:
            return
        if checksum(message) != 0:
            careless = (
                message[0] == 8 and host.deviates("answers IPv4 pings of a wrong checksum")
            ) or (message[0] == 3 and host.deviates("takes a report of a wrong checksum"))
            if not careless:
                return
        if message[0] == 8 and not is_multicast(target):
            self._answer(message, source)
        elif message[:2] == b"\x03\x04":
            self._report_came(message)
        elif message[0] == 200 and host.deviates("answers unknown ICMP types"):
            self._answer(message, source)

    def _answer(self, message: bytes, source: str) -> None:
        host = self._host
        body = message[4:]
        if message[4:6] == b"\0\x7a" and host.deviates("cuts the data of an IPv4 ping"):
            body = body[:-1]
        reply = b"\0\0\0\0" + body
        reply = reply[:2] + checksum(reply).to_bytes(2, "big") + reply[4:]
        if message[4:6] == b"\0\x79" and host.deviates("sends a zero IPv4 checksum"):
            reply = b"\0\0\0\0" + body
        self.send(source, 1, reply)

    def _report_came(self, message: bytes) -> None:
        """Take a "fragmentation needed" (RFC 1191 §3)."""
        host = self._host
        if len(message) < 28 or host.deviates("knows no path MTU of IPv4"):
            return
        least = 0 if host.deviates("lowers the path MTU below 68") else 68
        mtu = max(int.from_bytes(message[6:8], "big"), least)
        about = str(ipaddress.IPv4Address(message[24:28]))
        if host.deviates("raises the path MTU of IPv4"):
            self._path_mtu[about] = mtu
        self._path_mtu[about] = min(mtu, self._path_mtu.get(about, mtu))

    def send(self, target: str, protocol: int, message: bytes, ttl: int = 64) -> None:
        self._host.send_ip(target, self.pack(target, protocol, message, ttl))

    def send_ip(self, target: str, packet: bytes) -> None:
        """Send an IP packet, in fragments if the path needs it."""
        host = self._host
        if ":" in target:
            self._send_whole(target, packet)
            return
        if is_multicast(target):
            host.send_group(target, 0x0800, packet)
            return
        mtu = min(host.mtu, self._path_mtu.get(target, 0xFFFF))
        body = packet[20:]
        if len(packet) <= mtu:
            self._send_whole(target, packet)
            return
        self._id += 1
        room = (mtu - 20) // 8 * 8
        for offset in range(0, len(body), room):
            data = body[offset : offset + room]
            word = offset // 8 | 0x2000 * (offset + room < len(body))
            head = packet[:2] + struct.pack("!HHH", 20 + len(data), self._id, word) + packet[8:10]
            total = checksum(head + packet[12:20])
            self._send_whole(target, head + total.to_bytes(2, "big") + packet[12:20] + data)

    def pack(self, target: str, protocol: int, message: bytes, ttl: int = 64) -> bytes:
        """Return a packet of ours."""
        addresses = (
            ipaddress.IPv4Address(self._host.ipv4).packed + ipaddress.IPv4Address(target).packed
        )
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(message), 0, 0, ttl, protocol, 0)
        total = checksum(head + addresses)
        return head[:10] + total.to_bytes(2, "big") + addresses + message
