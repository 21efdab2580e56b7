# SPDX-License-Identifier: BSD-2-Clause
"""The host's memberships of groups: RFC 2236, RFC 3376, RFC 2710, RFC 3810."""

from __future__ import annotations

import ipaddress
import struct
from functools import partial
from typing import Final

from ipoibu.conform.mgid import group_hwaddr
from ipoibu.conform.packet import Names
from tests.doubles.peer.host import Host
from tests.doubles.peer.ipv4 import Ipv4Part, checksum
from tests.doubles.peer.ipv6 import Ipv6Part, icmpv6, packed

DEVIATIONS: Final = {
    "answers IGMP about groups it has left": "RFC3376-5.2-left",
    "answers IGMP about groups of others": "RFC3376-5.2-other",
    "answers IGMP after twice the time": "RFC3376-5.2",
    "answers IGMP of a wrong checksum": "RFC3376-4.1.2",
    "answers MLD about groups it has left": "RFC3810-6.2-left",
    "answers MLD about groups of others": "RFC3810-6.2-other",
    "answers MLD after twice the time": "RFC3810-6.2",
    "answers MLD of a wrong checksum": "RFC3810-5.1.3",
    "answers MLD of any hop limit": "RFC3810-6.2-hop",
    "answers MLD of no address": "RFC3810-5.1.14",
    "answers MLD without router alert": "RFC3810-6.2-alert",
    "answers no IGMP by unicast": "RFC3376-4.1.12",
    "answers no MLD by unicast": "RFC3810-5.1.15",
    "answers no long IGMP": "RFC3376-4.1.10",
    "answers no long MLD": "RFC3810-5.1.12",
    "answers old IGMP by the newest version": "RFC3376-7.2.1",
    "answers old MLD by the newest version": "RFC3810-8.2.1",
    "forgets MLD of version 1 when it joins": "RFC3810-8.2.1-join",
    "joins no GID of an IPv4 group": "M3",
    "joins no GID of an IPv6 group": "M3",
    "joins no GID of an IPv4 group by version 2": "S3",
    "joins no GID of an IPv6 group by version 1": "S3",
    "leaves IPv4 groups without a word": "RFC3376-5.1-leave",
    "leaves IPv6 groups without a word": "RFC3810-6.1-leave",
    "reports 224.0.0.1": "RFC3376-5",
    "reports ff02::1": "RFC3810-6",
    "reports IGMP to another GID": "RFC3376-4.2.14",
    "reports IGMP with TTL 64": "RFC3376-4",
    "reports IGMP without router alert": "RFC3376-4",
    "reports IGMP without checksum": "RFC3376-4.2.3",
    "reports MLD from the global address": "RFC3810-5.2.13",
    "reports MLD to another GID": "RFC3810-5.2.14",
    "reports MLD with hop limit 255": "RFC3810-5",
    "reports MLD without router alert": "RFC3810-5",
    "reports MLD without checksum": "RFC3810-5.2.3",
    "reports no solicited-node group": "RFC4861-7.2.1",
    "reports an IPv4 join once": "RFC3376-5.1",
    "reports an IPv6 join once": "RFC3810-6.1",
    "sends to joined IPv4 groups alone": "M1",
    "sends to joined IPv6 groups alone": "M1",
}

IS_EXCLUDE, TO_INCLUDE, TO_EXCLUDE = 2, 3, 4
ROBUSTNESS: Final = 2
JOINED4, JOINED6 = "239.77.7.7", "ff05::7707"
PINGED4, PINGED6 = "239.77.7.8", "ff05::7708"


class GroupsPart:
    """Reports the groups that the host is in, and answers queries."""

    def __init__(self, host: Host, ipv4: Ipv4Part, ipv6: Ipv6Part) -> None:
        self._host = host
        self._ipv4 = ipv4
        self._ipv6 = ipv6
        self._old_until_s = {4: 0.0, 6: 0.0}
        self._interval_s = {4: 125.0, 6: 125.0}
        self._left: set[str] = set()
        self._members: set[str] = set()  # what the host has joined by an act
        host.by_protocol[4, 2] = self.igmp_came
        host.by_protocol[6, 58, 130] = self.mld_came
        for version, group in ((4, JOINED4), (6, JOINED6)):
            host.acts[f"join{version}"] = partial(self._join, version, group)
            host.acts[f"leave{version}"] = partial(self._leave, version, group)
        host.acts["ping_group4"] = self._ping4
        host.acts["ping_group6"] = self._ping6

    def _is_old(self, version: int) -> bool:
        return self._host.wire.now() < self._old_until_s[version]

    def _join(self, version: int, group: str, names: Names) -> None:
        host = self._host
        name = f"joins no GID of an IPv{version} group"
        if self._is_old(version):
            name += " by version 2" if version == 4 else " by version 1"
        if not host.deviates(name):
            host.groups.add(group)
        self._members.add(group)
        self._left.discard(group)
        if version == 6 and host.deviates("forgets MLD of version 1 when it joins"):
            self._old_until_s[version] = 0.0
        self._report(version, TO_EXCLUDE, [group])
        if not host.deviates(f"reports an IPv{version} join once"):
            host.later(0.5, self._report, version, TO_EXCLUDE, [group])

    def _leave(self, version: int, group: str, names: Names) -> None:
        host = self._host
        host.groups.discard(group)
        self._members.discard(group)
        self._left.add(group)
        if not host.deviates(f"leaves IPv{version} groups without a word"):
            self._report(version, TO_INCLUDE, [group])

    def _own(self, version: int) -> set[str]:
        """Return the groups to report."""
        host = self._host
        found = {it for it in host.groups | self._members if (":" in it) == (version == 6)}
        found.discard("255.255.255.255")
        if host.deviates("reports no solicited-node group"):
            found = {it for it in found if not it.startswith("ff02::1:ff")}
        for special in ("224.0.0.1", "ff02::1"):
            if not host.deviates(f"reports {special}"):
                found.discard(special)
        return found

    def _asked(self, version: int, group: str, delay_s: float) -> None:
        """Answer a query; the group is unspecified in a general one."""
        host = self._host
        name = "IGMP" if version == 4 else "MLD"
        own = self._own(version)
        if host.deviates(f"answers {name} about groups it has left"):
            own |= {it for it in self._left if (":" in it) == (version == 6)}
        is_general = group in ("0.0.0.0", "::")
        if not is_general:
            own &= {group}
        if group not in self._left and host.deviates(f"answers {name} about groups of others"):
            own = own or {group}
        if host.deviates(f"answers {name} after twice the time"):
            delay_s *= 4
        if own:
            call = self._report
            if is_general and host.deviates(f"answers old {name} by the newest version"):
                call = self._report_new
            host.later(delay_s / 2, call, version, IS_EXCLUDE, sorted(own))

    def _report(self, version: int, kind: int, groups: list[str]) -> None:
        if self._is_old(version) and kind != TO_INCLUDE:
            for group in groups:
                self._report_old(group)
        else:
            self._report_new(version, kind, groups)

    def _report_new(self, version: int, kind: int, groups: list[str]) -> None:
        records = b"".join(
            bytes((kind, 0, 0, 0)) + ipaddress.ip_address(it).packed for it in groups
        )
        count = len(groups).to_bytes(2, "big")
        if version == 4:
            self._igmp("224.0.0.22", b"\x22\0\0\0\0\0" + count + records)
        else:
            self._mld("ff02::16", b"\x8f\0\0\0\0\0" + count + records)

    def _report_old(self, group: str) -> None:
        if ":" in group:
            self._mld(group, b"\x83\0\0\0\0\0\0\0" + packed(group))
        else:
            self._igmp(group, b"\x16\0\0\0" + ipaddress.IPv4Address(group).packed)

    def igmp_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        if len(message) < 8 or message[0] != 0x11:
            return
        if checksum(message) and not host.deviates("answers IGMP of a wrong checksum"):
            return
        if target == host.ipv4 and host.deviates("answers no IGMP by unicast"):
            return
        if len(message) > 12 and host.deviates("answers no long IGMP"):
            return
        delay_s = message[1] / 10
        if len(message) >= 12:
            self._interval_s[4] = message[9]
        else:
            self._turn_old(4, delay_s)
        self._asked(4, str(ipaddress.IPv4Address(message[4:8])), delay_s)

    def mld_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        if len(message) < 24:
            return
        if not source.startswith("fe80:") and not host.deviates("answers MLD of no address"):
            return
        if self._ipv6.hop_limit != 1 and not host.deviates("answers MLD of any hop limit"):
            return
        if not self._ipv6.has_alert and not host.deviates("answers MLD without router alert"):
            return
        if target in host.ipv6 and host.deviates("answers no MLD by unicast"):
            return
        if len(message) > 28 and host.deviates("answers no long MLD"):
            return
        delay_s = int.from_bytes(message[4:6], "big") / 1000
        if len(message) >= 28:
            self._interval_s[6] = message[25]
        else:
            self._turn_old(6, delay_s)
        self._asked(6, str(ipaddress.IPv6Address(message[8:24])), delay_s)

    def _turn_old(self, version: int, delay_s: float) -> None:
        """Take the older version for a while (RFC 3376 §8.12, RFC 3810 §9.12)."""
        until_s = ROBUSTNESS * self._interval_s[version] + delay_s
        self._old_until_s[version] = self._host.wire.now() + until_s

    def _igmp(self, to: str, message: bytes) -> None:
        host = self._host
        if not host.deviates("reports IGMP without checksum"):
            message = message[:2] + checksum(message).to_bytes(2, "big") + message[4:]
        options = b"\x94\x04\0\0"
        if host.deviates("reports IGMP without router alert"):
            options = b""
        ttl = 64 if host.deviates("reports IGMP with TTL 64") else 1
        words = 5 + len(options) // 4
        length = 4 * words + len(message)
        head = struct.pack("!BBHHHBBH", 0x40 | words, 0xC0, length, 0, 0, ttl, 2, 0)
        rest = b"".join(ipaddress.IPv4Address(it).packed for it in (host.ipv4, to)) + options
        head = head[:10] + checksum(head + rest).to_bytes(2, "big") + rest
        elsewhere = to == "224.0.0.22" and host.deviates("reports IGMP to another GID")
        host.send_group("224.0.0.1" if elsewhere else to, 0x0800, head + message)

    def _mld(self, to: str, message: bytes) -> None:
        host = self._host
        own = host.ipv6[1 if host.deviates("reports MLD from the global address") else 0]
        hop_limit = 255 if host.deviates("reports MLD with hop limit 255") else 1
        packet = icmpv6(own, to, message, hop_limit)
        if host.deviates("reports MLD without checksum"):
            packet = packet[:42] + b"\0\0" + packet[44:]
        options = b"\x3a\0\x05\x02\0\0\x01\0"
        if host.deviates("reports MLD without router alert"):
            options = b"\x3a\0\x01\x04\0\0\0\0"
        length = (len(packet) - 40 + 8).to_bytes(2, "big")
        packet = packet[:4] + length + b"\0" + packet[7:40] + options + packet[40:]
        elsewhere = to == "ff02::16" and host.deviates("reports MLD to another GID")
        host.send_group("ff02::1" if elsewhere else to, 0x86DD, packet)

    def _ping4(self, names: Names) -> None:
        host = self._host
        if not host.deviates("sends to joined IPv4 groups alone"):
            packet = self._ipv4.pack(PINGED4, 1, b"\x08\0\xf7\xfd\0\1\0\1", 1)
            host.send_frame(group_hwaddr(PINGED4, host.wire.params), 0x0800, packet)

    def _ping6(self, names: Names) -> None:
        host = self._host
        if not host.deviates("sends to joined IPv6 groups alone"):
            packet = icmpv6(host.ipv6[0], PINGED6, b"\x80\0\0\0\0\1\0\1", 1)
            host.send_frame(group_hwaddr(PINGED6, host.wire.params), 0x86DD, packet)
