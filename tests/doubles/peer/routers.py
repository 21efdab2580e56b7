# SPDX-License-Identifier: BSD-2-Clause
"""The host's routers, prefixes and destinations: RFC 4861 §6.3 and §8.3."""

from __future__ import annotations

import ipaddress

from tests.doubles.peer.host import Host
from tests.doubles.peer.neighbours import Neighbours

PREFIX, SOURCE = 3, 1


class Routers:
    """Finds the next hop of a destination; takes what routers advertise, and redirects."""

    def __init__(self, host: Host, neighbours: Neighbours) -> None:
        self._host = host
        self._neighbours = neighbours
        self._ends_s: dict[str, float] = {}  # of default routers, the best one last
        neighbours.on_gone = self._gone
        self._prefixes: dict[ipaddress.IPv6Network, float] = {}  # on the link, until when
        self._redirects: dict[str, tuple[str, str]] = {}  # destination: the router, the better hop

    def _defaults(self) -> list[str]:
        now = self._host.wire.now()
        endless = self._host.deviates("keeps a router for ever")
        return [ip for ip, end in self._ends_s.items() if endless or end > now]

    def _gone(self, ip: str) -> None:
        if ip in self._ends_s:
            self._ends_s = {ip: self._ends_s.pop(ip), **self._ends_s}

    def next_hop(self, target: str) -> str | None:
        """None: no router is known."""
        if target in self._redirects:
            return self._redirects[target][1]
        if self._is_on_link(target):
            return target
        known = self._defaults()
        if self._host.deviates("sends to a silent router"):
            return max(known, key=self._ends_s.__getitem__, default=None)
        alive = [it for it in known if not self._neighbours.is_silent(it)]
        return next(reversed(alive or known), None)

    def _is_on_link(self, target: str) -> bool:
        address = ipaddress.IPv6Address(target)
        if address.is_link_local or any(address in it for it in self._host.on_link):
            return True
        now = self._host.wire.now()
        return any(address in it and end > now for it, end in self._prefixes.items())

    def advertised(
        self, message: bytes, source: str, options: dict[int, bytes], hwaddr: bytes | None
    ) -> None:
        host = self._host
        lifetime = int.from_bytes(message[6:8], "big")
        if message[4] and not host.deviates("ignores a router's hop limit"):
            host.hop_limit = message[4]
        reachable, retransmit = (int.from_bytes(message[i : i + 4], "big") for i in (8, 12))
        if reachable and not host.deviates("ignores a router's reachable time"):
            self._neighbours.reachable_s = reachable / 1000
        if retransmit and not host.deviates("ignores a router's retransmission timer"):
            self._neighbours.retransmit_s = retransmit / 1000
        if lifetime:
            self._ends_s.pop(source, None)
            self._ends_s[source] = host.wire.now() + lifetime
        elif not host.deviates("keeps a router that says it is none"):
            self.ceased(source)
        if hwaddr is not None and not host.deviates("takes no address of routers"):
            self._neighbours.introduced(source, hwaddr)
        self._neighbours.set_router(source, True)
        if PREFIX in options:
            self._prefix_came(options[PREFIX])

    def _prefix_came(self, option: bytes) -> None:
        host = self._host
        if len(option) != 30:
            return
        on_link = option[1] & 0x80
        if not on_link and not host.deviates("counts every prefix as on the link"):
            return
        if host.deviates("knows no prefix of routers"):
            return
        network = ipaddress.IPv6Network((option[14:30], option[0]), strict=False)
        valid_s = int.from_bytes(option[2:6], "big")
        if valid_s:
            self._prefixes[network] = host.wire.now() + valid_s
        elif not host.deviates("keeps a prefix that has ended"):
            self._prefixes.pop(network, None)

    def ceased(self, ip: str) -> None:
        """The neighbour is no router any more (§7.2.5, §6.3.4)."""
        self._ends_s.pop(ip, None)
        self._redirects = {k: v for k, v in self._redirects.items() if v[0] != ip}

    def redirected(self, source: str, better: str, about: str, hwaddr: bytes | None) -> None:
        """Take a redirect (§8.1, §8.3)."""
        host = self._host
        if host.deviates("ignores redirects"):
            return
        if self.next_hop(about) != source and not host.deviates("takes anybody's redirects"):
            return
        if (
            better != about
            and not better.startswith("fe80:")
            and not host.deviates("is redirected to no router")
        ):
            return
        if better == about and host.deviates("is redirected to routers only"):
            return
        self._redirects[about] = (source, better)
        if hwaddr is not None:
            self._neighbours.introduced(better, hwaddr)
