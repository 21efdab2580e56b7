# SPDX-License-Identifier: BSD-2-Clause
"""Chooses the address that becomes the GID of `soft:NETDEV` by the routes to the peers.

Link-local addresses cross no router. So where the kernel's route to a peer leads over the device to a router,
the GID is the address that our packets to this peer come from. A peer, or ourselves, named by an address of
IPv6 that is not link-local decides likewise, because other hosts of the link may be behind routers, and such
GIDs reach link-local ones on the same network. A peer named by an address of IPv4 on our own network says
nothing: IPv6 is better there, and a route over another device, such as a management network, neither.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import UNDERLAY_PEERS_MAX, UNDERLAY_RESOLVE_S
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.mesh.peer_list import locators_of, parse_peer, read_peers
from ipoibu.fabric.unicast.router import Route, route_to

_ADDRESSES: Final = Path("/proc/thread-self/net/if_inet6")
_GLOBAL: Final = "00"
_UNSTEADY: Final = 0x01 | 0x08 | 0x20 | 0x40  # IFA_F_TEMPORARY, DADFAILED, DEPRECATED, TENTATIVE


@dataclass(frozen=True, slots=True)
class Choice:
    """`address` becomes the GID because of the route to `peer`, by `router` unless that is None."""

    address: IpAddress
    peer: IpAddress
    router: IpAddress | None = None

    def __str__(self) -> str:
        way = f" by the router {self.router}" if self.router is not None else ""
        return f"the route to the peer {self.peer}{way}"


class RouteUnderlay:
    """The choice for one net device; the addresses of the peers are those of the start."""

    def __init__(self, netdev: str, options: MeshOptions) -> None:
        """`OSError` without the device; waits UNDERLAY_RESOLVE_S at most for names of peers."""
        self._index = socket.if_nametoindex(netdev)
        self._peers = _addresses(options)

    def choose(self) -> Choice | None:
        """Return the choice of now; None if the routes say nothing."""
        found = None
        for ip in self._peers:
            choice = self._by(ip)
            if choice is not None and choice.router is not None:
                return choice
            found = found or choice
        return found

    def _by(self, ip: IpAddress) -> Choice | None:
        try:
            route = route_to(ip)
        except OSError:
            return None
        if route is None or (ip.version == 4 and route.router is None):
            return None
        if route.is_local:
            return Choice(ip, ip) if ip in self._steady() else None
        if route.index != self._index or route.source is None:
            return None
        return Choice(self._lasting(route, route.source), ip, route.router)

    def _lasting(self, route: Route, source: IpAddress) -> IpAddress:
        """Return the source, or a lasting address where that is one of a day (RFC 8981)."""
        steady = self._steady()
        if source.version == 4 or source in steady or not steady:
            return source
        return steady[0]

    def _steady(self) -> list[IpAddress]:
        """The device's global addresses of IPv6 that stay."""
        found: list[IpAddress] = []
        for line in _ADDRESSES.read_text().splitlines():
            digits, index, _, scope, flags, *_ = line.split()
            if (int(index, 16), scope) == (self._index, _GLOBAL) and not int(flags, 16) & _UNSTEADY:
                found.append(ipaddress.IPv6Address(bytes.fromhex(digits)))
        return found


def _addresses(options: MeshOptions) -> list[IpAddress]:
    """The addresses of the peers, but for link-local ones, in their order; names come last."""
    peers = [parse_peer(text) for text in options.peers]
    if options.file is not None:
        peers += read_peers(options.file)
    literal, names = [], []
    for host, _ in peers[:UNDERLAY_PEERS_MAX]:
        try:
            literal.append(ipaddress.ip_address(host.partition("%")[0]))
        except ValueError:
            names.append(host)
    return [ip for ip in (*literal, *_resolved(names)) if not ip.is_link_local]


def _resolved(names: Sequence[str]) -> list[IpAddress]:
    """Look the names up, on a thread that may take longer than we wait."""
    found: list[IpAddress] = []

    def look_up() -> None:
        for name in names:
            found.extend(_of(name))

    thread = threading.Thread(target=look_up, name="ipoibu-underlay", daemon=True)
    if names:
        thread.start()
        thread.join(UNDERLAY_RESOLVE_S)
    return list(found)


def _of(name: str) -> Iterator[IpAddress]:
    try:
        yield from sorted({it.ip for it in locators_of(name, 0)}, key=str)
    except (OSError, UsageError, UnicodeError):
        return
