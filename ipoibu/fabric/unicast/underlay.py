# SPDX-License-Identifier: BSD-2-Clause
"""Chooses the address that becomes the GID of `soft:NETDEV` by the routes to the peers.

Link-local addresses cross no router. So where the kernel's route to a peer leads over the device to a router,
the GID is the address that our packets to this peer come from. A peer, or ourselves, named by an address of
IPv6 that is not link-local decides likewise, because other hosts of the link may be behind routers, and such
GIDs reach link-local ones on the same network. A peer named by an address of IPv4 on our own network says
nothing: IPv6 is better there, and a route over another device, such as a management network, neither.
If that other device is a rail of the same interface, each rail has a route of its own to the peer.

Where no named peer says anything, as on a first host that other hosts name, our GID is link-local. Then we go
over to IPv4 if a host meets us whose GID is of IPv4, unless we have peers. A first host has none, since
hosts behind routers cannot have a link-local GID.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import UNDERLAY_PEERS_MAX, UNDERLAY_RESOLVE_S
from ipoibu.fabric.base import LinkPeers, MeshOptions, UnderlayChoice
from ipoibu.fabric.mesh.peer_list import locators_of, parse_peer, read_peers
from ipoibu.fabric.unicast.router import Route, route_to

_ADDRESSES: Final = Path("/proc/thread-self/net/if_inet6")
_GLOBAL: Final = "00"
_UNSTEADY: Final = 0x01 | 0x08 | 0x20 | 0x40  # IFA_F_TEMPORARY, DADFAILED, DEPRECATED, TENTATIVE


class RouteUnderlay:
    """The choice for one net device, by the peers that the links on it name; any thread may call it."""

    def __init__(self, netdev: str, options: MeshOptions, beside: Sequence[str] = ()) -> None:
        """The peers are those of `options` until a link names its own. The net devices of `beside` are
        further rails of the interface.

        `OSError` without the device; waits UNDERLAY_RESOLVE_S at most for names of peers.
        """
        self._index = socket.if_nametoindex(netdev)
        self._beside = tuple(beside)
        self._first: Sequence[IpAddress] = _addresses(options)
        self._links: tuple[LinkPeers, ...] = ()
        self._lock = threading.Lock()

    def enter(self, link: LinkPeers) -> Callable[[], None]:
        """Consider the peers of this link, too, until the caller calls the result."""
        with self._lock:
            self._links = (*self._links, link)
        return partial(self._leave, link)

    def _leave(self, link: LinkPeers) -> None:
        with self._lock:
            self._links = tuple(it for it in self._links if it is not link)
            if not self._links:  # perhaps another one follows, which has to look names up first
                self._first = link.named or self._first

    def choose(self, now: IpAddress | None = None) -> UnderlayChoice | None:
        """Return the choice; None if the routes say nothing. Among equal ones it is that of `now`, the
        present GID."""
        choices = [choice for ip in self._peers() if (choice := self._by(ip)) is not None]
        if not choices:
            return self._by_refused(now)
        return min(choices, key=lambda it: (it.router is None, it.address != now))

    def _peers(self) -> list[IpAddress]:
        """The peers with routes, in the order of the start."""
        named = {ip for link in self._links for ip in link.named}
        order = {ip: place for place, ip in enumerate(self._first)}
        peers = sorted(named or order, key=lambda ip: (order.get(ip, len(order)), str(ip)))
        return [ip for ip in peers if not ip.is_link_local][:UNDERLAY_PEERS_MAX]

    def _by_refused(self, now: IpAddress | None) -> UnderlayChoice | None:
        """Return the way to a host that we refused because its GID is of IPv4, and ours link-local."""
        links = self._links
        if now is None or not now.is_link_local or any(link.has_peers for link in links):
            return None
        for ip in (link.refused for link in links):
            route = self._route(ip) if ip is not None and ip.version == 4 else None
            if ip is not None and route is not None and not route.is_local and route.source:
                return UnderlayChoice(route.source, ip, route.router)
        return None

    def _route(self, ip: IpAddress) -> Route | None:
        """Return the route over our net device, or to ourselves; None without one."""
        try:
            route = route_to(ip)
            if route is not None and route.index in self._indices_beside():
                route = route_to(ip, self._index)
        except OSError:
            return None
        if route is None or (route.index != self._index and not route.is_local):
            return None
        return route

    def _indices_beside(self) -> Iterator[int]:
        for netdev in self._beside:
            with contextlib.suppress(OSError):  # it is not there
                yield socket.if_nametoindex(netdev)

    def _by(self, ip: IpAddress) -> UnderlayChoice | None:
        route = self._route(ip)
        if route is None or (ip.version == 4 and route.router is None):
            return None
        if route.is_local:
            return UnderlayChoice(ip, ip) if ip in self._steady() else None
        if route.source is None:
            return None
        return UnderlayChoice(self._lasting(route, route.source), ip, route.router)

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
