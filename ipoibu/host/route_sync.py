# SPDX-License-Identifier: BSD-2-Clause
"""Mirrors one interface's addresses and routes, and whether it is a router, into an endpoint.

A TUN frame does not say which gateway the kernel chose, so the endpoint needs the routes. Notices
from the kernel are taken as hints (see `monitor.Monitor`): each round lists the interface again and
publishes the difference. Lost notices, silent flushes and a first listing are thus one case.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from ipoibu.addr import IpAddress, IpInterface, IpNetwork
from ipoibu.host.monitor import Monitor
from ipoibu.host.netlink import RT_TABLE_MAIN, Link, Netlink, Route, RouteKind

_log = logging.getLogger(__name__)


class Stack(Protocol):
    """The part of `Endpoint` that learns what the kernel's interface holds."""

    def address_added(self, address: IpInterface, /) -> None: ...
    def address_removed(self, address: IpInterface, /) -> None: ...
    def route_added(
        self, network: IpNetwork, via: IpAddress | None, kind: RouteKind, /
    ) -> None: ...
    def route_removed(self, network: IpNetwork, /) -> None: ...
    def router_changed(self, is_router: bool, /) -> None: ...


class RouteSync:
    """Keeps `stack` equal to what the kernel holds for the interface `index`.

    `netlink` is borrowed. Readable `fileno` means: call `changed`, and `refresh` if it says so. A
    route whose gateway changed is published again without being removed first.
    """

    def __init__(self, index: int, stack: Stack, netlink: Netlink) -> None:
        self._index = index
        self._stack = stack
        self._netlink = netlink
        self._is_router = False
        self._addresses: set[IpInterface] = set()
        self._routes: dict[IpNetwork, tuple[IpAddress | None, RouteKind]] = {}
        self._spread: set[IpNetwork] = set()  # multipath networks that were logged
        # Subscribed before the first listing: what changes in between is seen by one or the other.
        self._monitor = Monitor(index)

    def close(self) -> None:
        self._monitor.close()

    def fileno(self) -> int:
        return self._monitor.fileno()

    def changed(self) -> bool:
        """Take the waiting notices; whether the interface is to be looked at again."""
        before = self._monitor.overruns
        relevant = self._monitor.changed()
        if self._monitor.overruns != before:
            _log.info("the kernel dropped change notices: listing addresses and routes again")
        return relevant

    def refresh(self) -> Link | None:
        """List the interface, publish what differs, return the link; None when it is gone."""
        link = self._netlink.link(self._index)
        if link is None:
            return None
        if link.is_router != self._is_router:
            self._is_router = link.is_router
            self._stack.router_changed(link.is_router)
        self._publish_addresses(self._netlink.addresses(self._index))
        self._publish_routes(self._netlink.routes(self._index))
        return link

    def _publish_addresses(self, held: set[IpInterface]) -> None:
        for address in self._addresses - held:
            self._addresses.discard(address)
            self._stack.address_removed(address)
        for address in sorted(held - self._addresses, key=str):
            self._addresses.add(address)
            self._stack.address_added(address)

    def _publish_routes(self, listed: Iterable[Route]) -> None:
        best: dict[IpNetwork, Route] = {}
        for route in listed:
            other = best.get(route.network)
            if other is None or _rank(route) < _rank(other):
                best[route.network] = route
        for network in self._routes.keys() - best.keys():
            del self._routes[network]
            self._spread.discard(network)
            self._stack.route_removed(network)
        for network, route in best.items():
            wanted = (route.via, route.kind)
            if self._routes.get(network, ()) != wanted:
                self._routes[network] = wanted
                self._stack.route_added(network, *wanted)
            if route.paths > 1 and network not in self._spread:
                self._spread.add(network)
                _log.warning(
                    "route %s has %d next hops: all of it goes via %s",
                    network,
                    route.paths,
                    route.via or "the link",
                )


def _rank(route: Route) -> tuple[bool, int, int, str]:
    """Smaller is preferred among the routes of one network: main table, then metric, as the kernel
    does.

    The rule that chose another table is not in the frame, so tables beside main only fill its gaps.
    """
    return (route.table != RT_TABLE_MAIN, route.table, route.metric, str(route.via))
