# SPDX-License-Identifier: BSD-2-Clause
"""The host's IPv6 addresses: duplicate address detection, and addresses by prefixes (RFC 4862)."""

from __future__ import annotations

import ipaddress
from typing import Final

from ipoibu.conform.mgid import solicited_node
from ipoibu.conform.packet import Names
from tests.doubles.peer.host import Host, is_multicast
from tests.doubles.peer.ipv6 import icmpv6, packed
from tests.doubles.peer.neighbours import link_layer_option

DEVIATIONS: Final = {
    "answers for a tentative address": "L3",
    "believes probes with reserved bits alone": "L4",
    "forms addresses by any prefix length": "RFC4862-5.5.3d",
    "forms addresses that are valid for no time": "RFC4862-5.5.3d",
    "forms addresses without the autonomous flag": "RFC4862-5.5.3a",
    "forms no addresses by prefixes": "L6",
    "ignores advertisements of duplicates": "L4",
    "ignores which lifetime is longer": "RFC4862-5.5.3c",
    "probes by the all-nodes group": "L1",
    "probes with a source option": "RFC4861-4.3",
    "probes with hop limit 64": "L1",
    "takes a claim from afar": "TAHI-3.1.2",
    "takes a claim that is solicited by a group": "TAHI-3.1.2",
    "takes a probe of a wrong checksum": "TAHI-3.1.2",
    "takes a probe of any code": "TAHI-3.1.2",
    "takes a probe of any destination": "TAHI-3.1.2",
    "takes a probe from afar": "TAHI-3.1.2",
    "takes a probe with a source option": "TAHI-3.1.2",
    "takes a probe with an empty option": "TAHI-3.1.2",
}

DETECTION_S: Final = 1.0


class AddressPart:
    """Probes for new addresses, and defends its own."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tentative: set[str] = set()
        self._refused: set[str] = set()  # they are another host's
        self._solicitation_came = host.by_protocol[6, 58, 135]
        self._advertisement_came = host.by_protocol[6, 58, 136]
        host.by_protocol[6, 58, 135] = self.solicitation_came
        host.by_protocol[6, 58, 136] = self.advertisement_came
        self._router_came = host.by_protocol.get((6, 58, 134))
        host.by_protocol[6, 58, 134] = self.router_came
        host.acts["add6"] = self._add
        host.acts["del6"] = self._del

    def _add(self, names: Names) -> None:
        self._detect(str(names["free6"]))

    def _del(self, names: Names) -> None:
        ip = str(names["free6"])
        self._tentative.discard(ip)
        self._refused.discard(ip)
        if ip in self._host.ipv6:
            self._host.ipv6.remove(ip)
        self._host.groups.discard(solicited_node(ip))

    def _detect(self, ip: str) -> None:
        """Probe for an address, and have it if nobody objects (RFC 4862 §5.4)."""
        host = self._host
        self._tentative.add(ip)
        group = solicited_node(ip)
        host.groups.add(group)
        message = b"\x87\0\0\0" + bytes(4) + packed(ip)
        if host.deviates("probes with a source option"):
            message += link_layer_option(host, 1)
        hop_limit = 64 if host.deviates("probes with hop limit 64") else 255
        packet = icmpv6("::", group, message, hop_limit)
        elsewhere = host.deviates("probes by the all-nodes group")
        host.send_group("ff02::1" if elsewhere else group, 0x86DD, packet)
        host.later(DETECTION_S, self._assign, ip)

    def _assign(self, ip: str) -> None:
        if ip in self._tentative:
            self._tentative.discard(ip)
            self._host.ipv6.append(ip)

    def _refuse(self, ip: str) -> None:
        self._tentative.discard(ip)
        self._refused.add(ip)

    def solicitation_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        asked = str(ipaddress.IPv6Address(message[8:24])) if len(message) >= 24 else ""
        if asked in self._refused:
            return
        if asked not in self._tentative:
            self._solicitation_came(message, sender, source, target)
            return
        if not self._is_probe(message, source, target):
            if source != "::" and host.deviates("answers for a tentative address"):
                self._advertise(asked, source)
            return
        if message[4:8] == b"\0\0\0\0" or not host.deviates(
            "believes probes with reserved bits alone"
        ):
            self._refuse(asked)

    def _is_probe(self, message: bytes, source: str, target: str) -> bool:
        """Return whether a solicitation is another host's probe, and valid (RFC 4861 §7.1.1)."""
        host = self._host
        if source != "::":
            return False
        if message[1] and not host.deviates("takes a probe of any code"):
            return False
        if not target.startswith("ff02::1:ff") and not host.deviates(
            "takes a probe of any destination"
        ):
            return False
        kinds = self._options(message[24:])
        if kinds is None:
            return host.deviates("takes a probe with an empty option")
        return 1 not in kinds or host.deviates("takes a probe with a source option")

    def _options(self, rest: bytes) -> list[int] | None:
        """Return the types of the options; None if one has the length 0."""
        kinds = []
        while len(rest) >= 2:
            if rest[1] == 0:
                return None
            kinds.append(rest[0])
            rest = rest[8 * rest[1] :]
        return kinds

    def _advertise(self, ip: str, to: str) -> None:
        message = b"\x88\0\0\0\x60\0\0\0" + packed(ip) + link_layer_option(self._host, 2)
        self._host.send_ip(to, icmpv6(ip, to, message, 255))

    def advertisement_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        asked = str(ipaddress.IPv6Address(message[8:24])) if len(message) >= 24 else ""
        if asked not in self._tentative:
            self._advertisement_came(message, sender, source, target)
            return
        solicited = message[4] & 0x40 and is_multicast(target)
        if solicited and not host.deviates("takes a claim that is solicited by a group"):
            return
        if not host.deviates("ignores advertisements of duplicates"):
            self._refuse(asked)

    def router_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        if self._router_came is not None:
            self._router_came(message, sender, source, target)
        rest = message[16:]
        while len(rest) >= 2 and rest[1]:
            if rest[:2] == b"\3\4" and len(rest) >= 32:
                self._prefix_came(rest[:32])
            rest = rest[8 * rest[1] :]

    def _prefix_came(self, option: bytes) -> None:
        """Form an address (RFC 4862 §5.5.3)."""
        host = self._host
        valid_s, preferred_s = (int.from_bytes(option[i : i + 4], "big") for i in (4, 8))
        if host.deviates("forms no addresses by prefixes"):
            return
        if not option[3] & 0x40 and not host.deviates(
            "forms addresses without the autonomous flag"
        ):
            return
        if option[2] != 64 and not host.deviates("forms addresses by any prefix length"):
            return
        if preferred_s > valid_s and not host.deviates("ignores which lifetime is longer"):
            return
        if not valid_s and not host.deviates("forms addresses that are valid for no time"):
            return
        ip = str(ipaddress.IPv6Address(option[16:24] + packed(host.ipv6[0])[8:]))
        if ip not in host.ipv6 and ip not in self._tentative:
            self._detect(ip)
            if option[3] & 0x40:
                host.on_link.add(ipaddress.IPv6Network((option[16:24] + bytes(8), 64)))
            host.later(valid_s, self._expire, ip)

    def _expire(self, ip: str) -> None:
        if ip in self._host.ipv6:
            self._host.ipv6.remove(ip)
