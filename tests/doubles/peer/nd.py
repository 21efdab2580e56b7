# SPDX-License-Identifier: BSD-2-Clause
"""The host's neighbour discovery: the messages of RFC 4861 and which of them are valid, RFC 4391 §9.3."""

from __future__ import annotations

import ipaddress
from typing import Final

from ipoibu.conform.mgid import solicited_node
from tests.doubles.peer.host import Host, is_multicast
from tests.doubles.peer.ipv6 import icmpv6, packed
from tests.doubles.peer.neighbours import Neighbours, link_layer_option
from tests.doubles.peer.routers import Routers

SOURCE, TARGET = 1, 2


class NdPart:
    """Answers for our addresses, keeps neighbours and routers, and sends IPv6 packets by them."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.neighbours: Final = Neighbours(host)
        self.routers: Final = Routers(host, self.neighbours)
        self._send_other = host.send_ip
        host.send_ip = self.send_ip
        host.heard = self.neighbours.heard
        takes = {
            133: self.router_solicitation_came,
            134: self.router_advertisement_came,
            135: self.solicitation_came,
            136: self.advertisement_came,
            137: self.redirect_came,
        }
        for kind, take in takes.items():
            host.by_protocol[6, 58, kind] = take

    def send_ip(self, target: str, packet: bytes) -> None:
        if ":" not in target:
            self._send_other(target, packet)
            return
        if is_multicast(target):
            self._host.send_group(target, 0x86DD, packet)
            return
        next_hop = self.routers.next_hop(target)
        if next_hop is None:
            self._host.drops += 1
            return
        self.neighbours.send(next_hop, packet)

    def _options(self, options: bytes) -> dict[int, bytes] | None:
        """Return the first option of each type, without type and length; None if one is not valid."""
        host = self._host
        found: dict[int, bytes] = {}
        while len(options) >= 2:
            kind, length = options[0], 8 * options[1]
            if length == 0 or length > len(options):
                return found if host.deviates("takes an option of length 0") else None
            if kind not in (1, 2, 3, 4, 5) and host.deviates("knows every option"):
                return None
            found.setdefault(kind, options[2:length])
            options = options[length:]
        return found

    def _hwaddr(self, option: bytes | None) -> bytes | None:
        """Return the hardware address of a link-layer option (RFC 4391 §9.3: two bytes, then 20)."""
        if option is None:
            return None
        if len(option) == 22:
            return option[2:]
        if len(option) > 22 and self._host.deviates("takes a link-layer option of length 4"):
            return option[2:22]
        return None

    def _valid(self, message: bytes, least: int) -> dict[int, bytes] | None:
        """Return the options of a valid message of at least that many bytes (§7.1, §6.1, §8.1)."""
        host = self._host
        if message[1] != 0 and not host.deviates("takes any code"):
            return None
        return self._options(message[least:]) if len(message) >= least else None

    def solicitation_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        if len(message) == 23 and host.deviates("takes short solicitations"):
            message += packed(host.ipv6[0])[-1:]
        options = self._valid(message, 24)
        if options is None:
            return
        if message[4:8] != bytes(4) and host.deviates("wants a question's reserved bits zero"):
            return
        asked = str(ipaddress.IPv6Address(message[8:24]))
        hwaddr = self._hwaddr(options.get(SOURCE))
        if source == "::":
            if hwaddr and not host.deviates("takes an address of nobody"):
                return
            if target != solicited_node(asked) and not host.deviates("answers nobody anywhere"):
                return
        for_group = asked in host.groups and host.deviates("answers for groups")
        for_all = not is_multicast(asked) and host.deviates("answers for everybody")
        if asked not in host.ipv6 and not for_group and not for_all:
            return
        if source == "::":
            self._answer(asked, "ff02::1", sender)
            return
        if hwaddr is not None:
            self.neighbours.introduced(source, hwaddr, by_group=is_multicast(target))
            if host.deviates("a question ends a router's role"):
                self.routers.ceased(source)
        elif host.deviates("answers no asker without an address"):
            return
        self._answer(asked, source, hwaddr if source not in self.neighbours else None)

    def _answer(self, asked: str, to: str, hwaddr: bytes | None) -> None:
        host = self._host
        flags = 0x20
        if to != "ff02::1" and not host.deviates("answers without Solicited"):
            flags |= 0x40
        if to == "ff02::1" and host.deviates("answers nobody as solicited"):
            flags |= 0x40
        if host.deviates("answers as a router"):
            flags |= 0x80
        if host.deviates("answers without override"):
            flags &= ~0x20
        option = link_layer_option(host, 2)
        if to == "ff02::1" and host.deviates("answers nobody without its address"):
            option = b""
        message = b"\x88\0\0\0" + bytes((flags, 0, 0, 0)) + packed(asked) + option
        hop_limit = 64 if host.deviates("answers with hop limit 64") else 255
        own = asked if asked in host.ipv6 else host.ipv6[0]
        packet = icmpv6(own, to, message, hop_limit)
        if hwaddr is not None and to != "ff02::1":
            host.send_frame(hwaddr, 0x86DD, packet)  # to whom we have no entry for
        else:
            host.send_ip(to, packet)

    def advertisement_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        host = self._host
        if len(message) == 23 and host.deviates("takes short advertisements"):
            message += packed(source)[-1:]
        options = self._valid(message, 24)
        if options is None:
            return
        solicited = bool(message[4] & 0x40)
        if (
            solicited
            and is_multicast(target)
            and not host.deviates("takes a solicited advertisement to all nodes")
        ):
            return
        reserved = message[4] & 0x1F or message[5:8] != bytes(3)
        if reserved and host.deviates("wants an answer's reserved bits zero"):
            return
        about = str(ipaddress.IPv6Address(message[8:24]))
        if is_multicast(about):
            if not host.deviates("takes the sender for the target"):
                return
            about = source
        router = bool(message[4] & 0x80)
        was_router = self.neighbours.advertised(
            about,
            self._hwaddr(options.get(TARGET)),
            solicited=solicited,
            override=bool(message[4] & 0x20),
            router=router,
        )
        if was_router and not router and not host.deviates("keeps a router that ceased"):
            self.routers.ceased(about)

    def router_solicitation_came(
        self, message: bytes, sender: bytes, source: str, target: str
    ) -> None:
        """Ignore it: we are no router (§6.1.1)."""
        options = self._valid(message, 8)
        if options and self._host.deviates("learns from router solicitations"):
            hwaddr = self._hwaddr(options.get(SOURCE))
            if hwaddr is not None:
                self.neighbours.introduced(source, hwaddr)

    def router_advertisement_came(
        self, message: bytes, sender: bytes, source: str, target: str
    ) -> None:
        options = self._valid(message, 16)
        if options is None:
            return
        if not source.startswith("fe80:") and not self._host.deviates("takes routers from afar"):
            return
        self.routers.advertised(message, source, options, self._hwaddr(options.get(SOURCE)))

    def redirect_came(self, message: bytes, sender: bytes, source: str, target: str) -> None:
        options = self._valid(message, 40)
        if options is None:
            return
        if not source.startswith("fe80:"):
            return
        better, about = (str(ipaddress.IPv6Address(message[i : i + 16])) for i in (8, 24))
        self.routers.redirected(source, better, about, self._hwaddr(options.get(TARGET)))
