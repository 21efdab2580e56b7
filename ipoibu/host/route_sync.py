# SPDX-License-Identifier: BSD-2-Clause
"""Route sync: copies an interface's addresses, routes and router flag into an endpoint.

A TUN frame does not contain the gateway that the kernel chose, so the endpoint needs the routes.
The kernel's notices are hints (see `monitor.Monitor`): each round lists the interface again and
publishes the difference. So lost notices, silent flushes and the first listing are one case.
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
    """The part of `Endpoint` that follows the kernel's interface."""

    def address_added(self, address: IpInterface, /) -> None: ...
    def address_removed(self, address: IpInterface, /) -> None: ...
    def route_added(
        self, network: IpNetwork, via: IpAddress | None, kind: RouteKind, /
    ) -> None: ...
    def route_removed(self, network: IpNetwork, /) -> None: ...
    def router_changed(self, is_router: bool, /) -> None: ...


class RouteSync:
    """Keeps `stack` equal to the kernel's state of the interface `index`.

    The caller closes `netlink`. When `fileno` is readable, call `changed`, and `refresh` if that
    returns True. A route with another gateway replaces the old one without a removal.
    """

    def __init__(self, index: int, stack: Stack, netlink: Netlink) -> None:
        self._index = index
        self._stack = stack
        self._netlink = netlink
        self._is_router = False
        self._addresses: set[IpInterface] = set()
        self._routes: dict[IpNetwork, tuple[IpAddress | None, RouteKind]] = {}
        self._spread: set[IpNetwork] = set()  # multipath networks that were logged
        # Subscribe before the first listing, so that no change falls between the two.
        self._monitor = Monitor(index)

    def close(self) -> None:
        self._monitor.close()

    def fileno(self) -> int:
        return self._monitor.fileno()

    def changed(self) -> bool:
        """Read the waiting notices; True if the interface has to be listed again."""
        before = self._monitor.overruns
        relevant = self._monitor.changed()
        if self._monitor.overruns != before:
            _log.info("the kernel dropped change notices: listing addresses and routes again")
        return relevant

    def refresh(self) -> Link | None:
        """List the interface, publish the differences, return the link; None if it is gone."""
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
            entry = (route.via, route.kind)
            if self._routes.get(network, ()) != entry:
                self._routes[network] = entry
                self._stack.route_added(network, *entry)
            if route.paths > 1 and network not in self._spread:
                self._spread.add(network)
                _log.warning(
                    "route %s has %d next hops: all its packets go via %s",
                    network,
                    route.paths,
                    route.via or "the link",
                )


def _rank(route: Route) -> tuple[bool, int, int, str]:
    """The lowest rank wins among the routes of one network: main table first, then metric, as in the
    kernel.

    A frame does not contain the rule that chose its table, so other tables only fill main's gaps.
    """
    return (route.table != RT_TABLE_MAIN, route.table, route.metric, str(route.via))
