# SPDX-License-Identifier: BSD-2-Clause
"""The host's IPv6: RFC 8200 and its fragments, RFC 4443, RFC 8201."""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from typing import Final

from tests.doubles.peer.fragments import Pieces
from tests.doubles.peer.host import Host, is_multicast
from tests.doubles.peer.ipv4 import checksum

HOP_BY_HOP, ROUTING, FRAGMENT, ICMPV6, NO_NEXT, DESTINATION = 0, 43, 44, 58, 59, 60
ND_TYPES: Final = range(133, 138)
PROBLEM: Final = 4
ERRORS_MAX: Final = 10  # to one address in one second
QUOTE_MAX: Final = 1232
LEAST_MTU: Final = 1280

DEVIATIONS: Final = {
    "answers from the link-local address": "RFC4443-2.2",
    "answers no ping to a group": "RFC4443-4.2-multicast",
    "answers pings of a wrong checksum": "RFC4443-2.3",
    "complains about no next header": "RFC8200-4.7",
    "complains about unknown ICMPv6 types": "RFC4443-2.4b",
    "counts a whole packet among fragments": "RFC6946-4",
    "counts pings by itself": "RFC4443-4.2",
    "cuts 1280 bytes": "T3",
    "cuts the data of a ping": "RFC4443-4.2",
    "drops IPv6 of hop limit 0": "RFC8200-3",
    "drops IPv6 with a flow label": "RFC8200-6",
    "drops a fragment whose reserved bits are set": "RFC8200-4.5-reserved",
    "drops a packet that is its only fragment": "RFC6946-4",
    "drops hop-by-hop options": "RFC8200-4.3",
    "drops options to be skipped": "RFC8200-4.2-00",
    "fills gaps of fragments": "RFC8200-4.5",
    "is silent about a chain cut short": "RFC7112-5",
    "is silent about closed ports": "RFC4443-3.1",
    "is silent about a next header behind options": "RFC8200-4",
    "knows no path MTU of link-local paths": "TAHI-4.1.4",
    "lets fragments overlap": "RFC5722-4",
    "lowers the path MTU below 1280": "TAHI-4.1.6",
    "mixes fragments of two packets": "RFC8200-4.5-id",
    "mixes fragments of two sources": "RFC8200-4.5-source",
    "numbers each fragment anew": "TAHI-4.1.4",
    "points to the first next header": "RFC8200-4",
    "puts no large packets together": "RFC8200-5",
    "quotes 64 bytes": "RFC4443-2.4c",
    "quotes everything": "RFC4443-2.4c",
    "raises the path MTU": "RFC8201-4",
    "reads one extension header": "RFC8200-4.1",
    "sends a zero checksum": "RFC4443-2.3",
    "sends errors about errors": "RFC4443-2.4e1",
    "sends errors about group packets": "RFC4443-2.4e3",
    "sends errors about packets of link groups": "RFC4443-2.4e4",
    "sends errors about redirects": "RFC4443-2.4e2",
    "sends errors at any rate": "RFC4443-2.4f",
    "sends errors from the first address": "RFC4443-2.2-error",
    "skips an option that ends the packet": "RFC8200-4.2-01",
    "takes ::1 from the link": "RFC4291-2.5.3",
    "takes IPv6 of any version": "RFC8200-3",
    "takes IPv6 that is cut short": "RFC8200-3",
    "takes a fragment of any length": "RFC8200-4.5-length",
    "takes a multicast source": "RFC4291-2.7",
    "takes a packet too big of a wrong checksum": "RFC8201-sum",
    "takes source routes": "RFC8200-4.4",
    "takes the next header of any fragment": "RFC8200-4.5-next",
    "tells groups about action 11": "RFC8200-4.2-11",
    "tells groups nothing about action 10": "RFC8200-4.2-10",
    "wants the first fragment first": "RFC8200-4.5",
}


def packed(ip: str) -> bytes:
    return ipaddress.IPv6Address(ip).packed


@dataclass
class _Walk:
    """A packet whose headers are read one after the other."""

    packet: bytes
    sender: bytes
    by_group: bool  # it came by a group of the link
    source: str
    target: str
    protocol: int
    pointed: int = 6  # where the number of the next header stands
    at: int = 40  # where that header begins

    def step(self, size: int) -> None:
        """Go behind a header of so many bytes."""
        self.protocol, self.pointed = self.packet[self.at], self.at
        self.at += size


class Ipv6Part:
    """Reads IPv6 headers, passes messages on by their type, answers pings, and sends errors."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.hop_limit = 0  # of the packet that came last
        self.has_alert = False  # whether it had the router alert option
        self._pieces: dict[tuple[object, ...], Pieces] = {}
        self._errors: Counter[tuple[str, int]] = Counter()
        self._path_mtu: dict[str, int] = {}
        self._id = 0
        host.by_type[0x86DD] = self.came
        host.by_protocol[6, ICMPV6, 128] = self.echo_came
        host.by_protocol[6, ICMPV6, 2] = self.too_big_came
        self._send_whole = host.send_ip
        host.send_ip = self.send_ip

    def came(self, packet: bytes, sender: bytes, to: str) -> None:
        host = self._host
        if len(packet) < 40 or (
            packet[0] >> 4 != 6 and not host.deviates("takes IPv6 of any version")
        ):
            return
        end = 40 + int.from_bytes(packet[4:6], "big")
        if end > len(packet) and not host.deviates("takes IPv6 that is cut short"):
            return
        if packet[7] == 0 and host.deviates("drops IPv6 of hop limit 0"):
            return
        if packet[1:4] != b"\0\0\0" and host.deviates("drops IPv6 with a flow label"):
            return
        source, target = (str(ipaddress.IPv6Address(packet[i : i + 16])) for i in (8, 24))
        known = target in host.ipv6 or target in host.groups
        if not known and not (target == "::1" and host.deviates("takes ::1 from the link")):
            return
        if is_multicast(source) and not host.deviates("takes a multicast source"):
            return
        self.hop_limit, self.has_alert = packet[7], False
        self._walk(_Walk(packet[:end], sender, to == "multicast", source, target, packet[6]))

    def _walk(self, it: _Walk) -> None:
        """Read headers until one ends the packet."""
        host = self._host
        seen = 0
        while True:
            number = it.protocol
            seen += 1
            if number in (ROUTING, DESTINATION) or (number == HOP_BY_HOP and it.at == 40):
                if seen > 1 and host.deviates("reads one extension header"):
                    return
                if len(it.packet) < it.at + 8:
                    return
                size = 8 * (it.packet[it.at + 1] + 1)
                passes = self._routing(it) if number == ROUTING else self._options(it, size)
                if not passes:
                    return
                it.step(size)
            elif number == FRAGMENT:
                if not self._fragment(it):
                    return
            else:
                break
        if it.protocol == ICMPV6:
            self._icmp(it)
        elif it.protocol == NO_NEXT and not host.deviates("complains about no next header"):
            return
        elif it.protocol == 17:
            if not host.deviates("is silent about closed ports"):
                self.error(it, 1, 4, 0)
        elif seen == 1 or not host.deviates("is silent about a next header behind options"):
            pointed = 6 if host.deviates("points to the first next header") else it.pointed
            self.error(it, PROBLEM, 1, pointed)

    def _options(self, it: _Walk, size: int) -> bool:
        """Return whether the packet goes on behind these options."""
        host = self._host
        by_unicast = not is_multicast(it.target)
        is_echo = (
            it.packet[it.at] == ICMPV6 and it.packet[it.at + size : it.at + size + 1] == b"\x80"
        )
        if it.protocol == HOP_BY_HOP and is_echo and host.deviates("drops hop-by-hop options"):
            return False
        at = it.at + 2
        while at < it.at + size:
            kind = it.packet[at]
            if kind == 0:
                at += 1
                continue
            self.has_alert |= kind == 5
            action = kind >> 6
            if kind in (1, 5) or (action == 0 and not host.deviates("drops options to be skipped")):
                at += 2 + it.packet[at + 1]
                continue
            if action == 1 and host.deviates("skips an option that ends the packet"):
                at += 2 + it.packet[at + 1]
                continue
            told = action == 2 or (
                action == 3 and (by_unicast or host.deviates("tells groups about action 11"))
            )
            if action == 2 and not by_unicast:
                told = not host.deviates("tells groups nothing about action 10")
            if told:
                self.error(it, PROBLEM, 2, at)
            return False
        return True

    def _routing(self, it: _Walk) -> bool:
        host = self._host
        left = it.packet[it.at + 3]
        if left and host.deviates("takes source routes"):
            return True
        if left:
            self.error(it, PROBLEM, 0, it.at + 2)
        return left == 0

    def _fragment(self, it: _Walk) -> bool:
        """Take a fragment; return whether a packet goes on in `it`."""
        host = self._host
        if len(it.packet) < it.at + 8:
            return False
        word = int.from_bytes(it.packet[it.at + 2 : it.at + 4], "big")
        offset, more = word & 0xFFF8, bool(word & 1)
        data = it.packet[it.at + 8 :]
        reserved = it.packet[it.at + 1] or word & 6
        if reserved and host.deviates("drops a fragment whose reserved bits are set"):
            return False
        key = self._key(it)
        if offset == 0 and not more:
            if host.deviates("drops a packet that is its only fragment"):
                return False
            if key in self._pieces and host.deviates("counts a whole packet among fragments"):
                del self._pieces[key]
            it.step(8)
            return True
        if self._refuses(it, offset, more, data):
            return False
        if offset and key not in self._pieces and host.deviates("wants the first fragment first"):
            return False
        pieces = self._pieces.setdefault(key, Pieces())
        pieces.add(offset, data, more)
        if offset == 0 or host.deviates("takes the next header of any fragment"):
            pieces.next_header = it.packet[it.at]
        if pieces.is_spoilt and not host.deviates("lets fragments overlap"):
            return False
        whole = pieces.whole()
        if whole is None and host.deviates("fills gaps of fragments"):
            whole = self._joined(it, pieces)
        if whole is None:
            return False
        del self._pieces[key]
        head = it.packet[:4] + len(whole).to_bytes(2, "big") + it.packet[6 : it.at]
        it.protocol = pieces.next_header or 0
        it.packet = head + whole
        return True

    def _key(self, it: _Walk) -> tuple[object, ...]:
        """Return what the fragments of one packet share."""
        number = it.packet[it.at + 4 : it.at + 8]
        if self._host.deviates("mixes fragments of two sources"):
            return (it.target, number)
        if self._host.deviates("mixes fragments of two packets"):
            return (it.source, it.target)
        return (it.source, it.target, number)

    def _refuses(self, it: _Walk, offset: int, more: bool, data: bytes) -> bool:
        """Return whether a fragment is no part of any packet; its sender may get an error."""
        host = self._host
        if more and len(data) % 8 and not host.deviates("takes a fragment of any length"):
            self.error(it, PROBLEM, 0, 4)
        elif offset + len(data) > 0xFFFF:
            self.error(it, PROBLEM, 0, it.at + 2)
        elif offset == 0 and it.packet[it.at] == DESTINATION and len(data) < 16:
            if not host.deviates("is silent about a chain cut short"):
                self.error(it, PROBLEM, 3, 0)
        else:
            return len(data) > 1000 and host.deviates("puts no large packets together")
        return True

    def _joined(self, it: _Walk, pieces: Pieces) -> bytes | None:
        """Return the fragments side by side with a checksum that fits, whatever lacks between them."""
        if pieces.end is None or 0 not in pieces.by_offset:
            return None
        whole = b"".join(data for _, data in sorted(pieces.by_offset.items()))
        whole = whole[:2] + b"\0\0" + whole[4:]
        total = checksum(self._pseudo(it, len(whole)) + whole)
        return whole[:2] + total.to_bytes(2, "big") + whole[4:]

    def _pseudo(self, it: _Walk, length: int) -> bytes:
        return packed(it.source) + packed(it.target) + length.to_bytes(4, "big") + b"\0\0\0\x3a"

    def _icmp(self, it: _Walk) -> None:
        host = self._host
        message = it.packet[it.at :]
        if len(message) < 4:
            return
        kind = message[0]
        if checksum(self._pseudo(it, len(message)) + message) != 0:
            names = {
                2: "takes a packet too big of a wrong checksum",
                128: "answers pings of a wrong checksum",
                130: "answers MLD of a wrong checksum",
                **dict.fromkeys(ND_TYPES, "ignores the checksum of neighbour discovery"),
            }
            if it.source == "::":
                names = {135: "takes a probe of a wrong checksum"}
            if kind not in names or not host.deviates(names[kind]):
                return
        is_far = kind in ND_TYPES and self.hop_limit != 255
        if is_far and not host.deviates(self._from_afar(it, kind)):
            return
        if kind == 128:
            host.heard(it.source)
        handler = host.by_protocol.get((6, ICMPV6, kind))
        if handler is not None:
            handler(message, it.sender, it.source, it.target)
        elif kind > 127 and host.deviates("complains about unknown ICMPv6 types"):
            self.error(it, PROBLEM, 1, it.pointed)

    def _from_afar(self, it: _Walk, kind: int) -> str:
        """Return the deviation of a host that takes such a message of neighbour discovery from afar."""
        if it.source == "::":
            return "takes a probe from afar"
        if kind == 136 and it.target == "ff02::1":
            return "takes a claim from afar"
        return "takes neighbour discovery from afar"

    def error(self, it: _Walk, kind: int, code: int, value: int) -> None:
        """Send an error about a packet, unless RFC 4443 §2.4 (e) forbids it."""
        host = self._host
        tells_groups = (kind, code) == (PROBLEM, 2)
        if is_multicast(it.source) or it.source == "::":
            return
        if not tells_groups:
            if is_multicast(it.target) and not host.deviates("sends errors about group packets"):
                return
            by_group = it.by_group and not is_multicast(it.target)
            if by_group and not host.deviates("sends errors about packets of link groups"):
                return
        inner = self._inner_type(it.packet)
        if inner is not None and inner < 128 and not host.deviates("sends errors about errors"):
            return
        if inner == 137 and not host.deviates("sends errors about redirects"):
            return
        bucket = (it.source, int(host.wire.now()))
        self._errors[bucket] += 1
        if self._errors[bucket] > ERRORS_MAX and not host.deviates("sends errors at any rate"):
            return
        most = 64 if host.deviates("quotes 64 bytes") else QUOTE_MAX
        if host.deviates("quotes everything"):
            most = 4096
        own = it.target if it.target in host.ipv6 else self.own_for(it.source)
        if host.deviates("sends errors from the first address"):
            own = host.ipv6[0]
        message = bytes((kind, code, 0, 0)) + value.to_bytes(4, "big") + it.packet[:most]
        host.send_ip(it.source, icmpv6(own, it.source, message, 64))

    def _inner_type(self, packet: bytes) -> int | None:
        """Return the ICMPv6 type of a packet, behind options and routing headers."""
        number, at = packet[6], 40
        while number in (HOP_BY_HOP, ROUTING, DESTINATION) and at + 8 <= len(packet):
            number, at = packet[at], at + 8 * (packet[at + 1] + 1)
        return packet[at] if number == ICMPV6 and at < len(packet) else None

    def own_for(self, target: str) -> str:
        """Return the own address that shares most bits with another."""
        wanted = int(ipaddress.IPv6Address(target))
        return min(
            self._host.ipv6, key=lambda own: (wanted ^ int(ipaddress.IPv6Address(own))) >> 64
        )

    def echo_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        own = target
        if target not in host.ipv6:
            is_near = source.startswith("fe80:")  # L6 is seen by pings from further away
            if is_near and target == "ff02::1" and host.deviates("answers no ping to a group"):
                return
            own = self.own_for(source)
        if own == host.ipv6[1] and host.deviates("answers from the link-local address"):
            own = host.ipv6[0]
        body = message[4:]
        if message[4:6] == b"\0\x44":
            if host.deviates("cuts the data of a ping"):
                body = body[:-1]
            if host.deviates("counts pings by itself"):
                body = body[:2] + b"\0\1" + body[4:]
        packet = icmpv6(own, source, b"\x81\0\0\0" + body, host.hop_limit)
        if host.deviates("sends a zero checksum") and message[4:6] == b"\0\x44":
            packet = packet[:42] + b"\0\0" + packet[44:]
        host.send_ip(source, packet)

    def too_big_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        if len(message) < 48:
            return
        mtu = int.from_bytes(message[4:8], "big")
        about = str(ipaddress.IPv6Address(message[32:48]))
        if mtu < LEAST_MTU:
            if not host.deviates("lowers the path MTU below 1280"):
                return
            mtu = max(mtu, 128)
        if about.startswith("fe80:") and host.deviates("knows no path MTU of link-local paths"):
            return
        if host.deviates("raises the path MTU"):
            self._path_mtu[about] = mtu
        self._path_mtu[about] = min(mtu, self._path_mtu.get(about, mtu))

    def send_ip(self, target: str, packet: bytes) -> None:
        """Send an IP packet, in fragments if the path needs it."""
        host = self._host
        if ":" not in target:
            self._send_whole(target, packet)
            return
        mtu = min(host.mtu, self._path_mtu.get(target, 0xFFFF))
        if is_multicast(target):
            host.send_group(target, 0x86DD, packet)
            return
        is_reply = packet[6] == ICMPV6 and packet[40] == 129
        if len(packet) == LEAST_MTU and is_reply and host.deviates("cuts 1280 bytes"):
            mtu = LEAST_MTU - 1
        if len(packet) <= mtu:
            self._send_whole(target, packet)
            return
        self._id += 1
        body = packet[40:]
        room = (mtu - 48) // 8 * 8
        for offset in range(0, len(body), room):
            data = body[offset : offset + room]
            if host.deviates("numbers each fragment anew") and offset:
                self._id += 1
            word = offset | (offset + room < len(body))
            head = bytes((packet[6], 0)) + word.to_bytes(2, "big") + self._id.to_bytes(4, "big")
            length = (8 + len(data)).to_bytes(2, "big")
            whole = packet[:4] + length + bytes((FRAGMENT,)) + packet[7:40] + head + data
            self._send_whole(target, whole)


def icmpv6(source: str, target: str, message: bytes, hop_limit: int) -> bytes:
    """Return the packet with the checksum set (bytes 2 and 3 of `message` are zero)."""
    addresses = packed(source) + packed(target)
    length = len(message)
    pseudo = addresses + length.to_bytes(4, "big") + b"\0\0\0\x3a"
    total = checksum(pseudo + message)
    message = message[:2] + total.to_bytes(2, "big") + message[4:]
    head = b"\x60\0\0\0" + length.to_bytes(2, "big") + bytes((58, hop_limit))
    return head + addresses + message
