# SPDX-License-Identifier: BSD-2-Clause
"""Route sync: copies an interface's addresses, routes and router flag into an endpoint.

A TUN frame does not contain the gateway that the kernel chose, so the endpoint needs the routes. The
route sync lists them at the start, and then applies the kernel's notices. It lists them again when the
kernel dropped notices, and when the kernel may have removed routes without a notice, as it does with
IPv4 routes whose interface goes down or whose source address is removed.
"""

from __future__ import annotations

import itertools
import logging
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from ipoibu.base.addr import IpInterface
from ipoibu.base.limits import ROUTE_CHANGES_PER_CALL, ROUTE_ENTRIES_MAX, ROUTE_PREFIX_ENTRIES_MAX
from ipoibu.base.route import AskRoute, RouteChange
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.host.monitor import Monitor, Notice
from ipoibu.host.netlink import (
    IFA_F_NODAD,
    IFF_UP,
    RTM_DELADDR,
    RTM_DELLINK,
    RTM_DELNEXTHOP,
    RTM_DELROUTE,
    RTM_DELRULE,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTM_NEWNEXTHOP,
    RTM_NEWROUTE,
    RTM_NEWRULE,
    Link,
    Netlink,
)
from ipoibu.host.route_message import RTN_ANYCAST, RouteReader, route_type
from ipoibu.host.route_query import RouteQuery
from ipoibu.host.route_rules import Rule, fields_of
from ipoibu.host.route_table import RouteTable
from ipoibu.host.sysctl import SYSCTLS, Sysctls

_LISTINGS: Final = 3  # the kernel's routes may change while it lists them
NOTICES_PER_ROUND: Final = 1024  # after them other work of the daemon gets its turn

_log = logging.getLogger(__name__)


class NoStack:
    """In the place of an endpoint with guests behind a TAP: of the kernel it follows the link alone."""

    def address_added(
        self, address: IpInterface, is_checked: bool, is_optimistic: bool, /
    ) -> None: ...
    def address_removed(self, address: IpInterface, /) -> None: ...
    def routes_changed(self, changes: list[RouteChange], /) -> None: ...
    def routes_left_out(self, count: int, /) -> None: ...
    def answer_routes(self, ask: AskRoute, /) -> None: ...
    def router_changed(self, is_router: bool, /) -> None: ...


class RouteSync:
    """Keeps `stack` equal to the kernel's state of the interface `index`.

    The caller closes `netlink`. When `fileno` is readable, call `read_notices`, and `refresh` if that
    returns True.
    """

    list_s: Final = None  # the kernel sends a notice of every change

    def __init__(
        self,
        index: int,
        stack: EndpointContract | NoStack,
        netlink: Netlink,
        sysctls: Path = SYSCTLS,
    ) -> None:
        self._index = index
        self._stack = stack
        self._netlink = netlink
        self._sysctls = Sysctls(netlink.namespace, sysctls)
        self._is_router = False
        self._addresses: set[IpInterface] = set()
        self._reader = RouteReader(index)
        self._table = RouteTable()
        self._left_out = 0
        self._link: Link | None = None
        self._was_down = False  # by a notice, whatever the link is now
        self._rules: list[Rule] = []
        self._stale_link = self._stale_routes = self._stale_nexthops = self._stale_rules = True
        # Subscribe before the first listing, so that no change falls between the two.
        self._monitor = Monitor(namespace=netlink.namespace)
        self._overruns = 0
        try:
            self._query = RouteQuery(index, netlink.namespace)
        except BaseException:
            self._monitor.close()
            raise
        stack.answer_routes(self._query.ask)

    def close(self) -> None:
        self._monitor.close()
        self._query.close()

    def fileno(self) -> int:
        return self._monitor.fileno()

    def read_notices(self) -> bool:
        """Apply the waiting notices; return whether the caller has to call `refresh`."""
        relevant = False
        for notice in self._monitor.notices(NOTICES_PER_ROUND):
            relevant |= self._take(notice)
        if self._monitor.overruns != self._overruns:
            self._overruns = self._monitor.overruns
            _log.info("the kernel dropped change notices: listing addresses and routes again")
            self._stale_link = self._stale_routes = self._stale_nexthops = self._stale_rules = True
            relevant = True
        self._stale_routes |= self._table.needs_listing
        if relevant:
            self._query.forget()
            self._table.forget_answers()
        return relevant

    def refresh(self) -> Link | None:
        """Publish the differences, and return the link; None if the link is gone."""
        if self._link is None:  # what happened before the first listing is none of our concern
            for _ in self._monitor.notices(NOTICES_PER_ROUND):
                pass
        if self._stale_link:
            before, self._link = self._link, self._netlink.link(self._index)
            if self._link is None:
                return None
            self._stale_link = False
            self._link = replace(self._link, was_down=self._was_down)
            self._was_down = False
            if before is not None:
                # A VRF that takes or releases the interface moves its routes between tables.
                self._stale_routes |= before.master != self._link.master
                self._stale_routes |= before.up and (not self._link.up or self._link.was_down)
            self._follow_link(self._link)
        if self._stale_nexthops:
            self._stale_nexthops = False
            self._list_nexthops()
        if self._stale_routes:
            self._stale_routes = False
            self._list_routes()
        if self._stale_rules:
            self._stale_rules = False
            self._rules = self._netlink.rules()
        self._follow_rules()
        self._publish_routes()
        link = self._link
        if link is not None and link.was_down:
            self._link = replace(link, was_down=False)
        return link

    def withdraw(self) -> None:
        """Publish that the interface has no addresses and no routes, and is no router."""
        self._table.replace(())
        for family in (socket.AF_INET, socket.AF_INET6):
            self._table.ask(family, None)
        self._publish_routes()
        self._publish_addresses({})
        if self._is_router:
            self._is_router = False
            self._stack.router_changed(False)

    # ---- notices

    def _take(self, notice: Notice) -> bool:
        if notice.kind in (RTM_NEWROUTE, RTM_DELROUTE):
            return self._take_route(notice) or self._table.is_asking
        if notice.kind in (RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR, RTM_DELADDR):
            is_ours = notice.interface == self._index
            self._stale_link |= is_ours
            if is_ours and notice.kind == RTM_NEWLINK and not notice.link_flags & IFF_UP:
                self._was_down = True
            return is_ours or self._table.is_asking
        if notice.kind in (RTM_NEWRULE, RTM_DELRULE):
            self._stale_rules = True
        elif notice.kind in (RTM_NEWNEXTHOP, RTM_DELNEXTHOP):
            self._stale_nexthops = True
        return True

    def _take_route(self, notice: Notice) -> bool:
        if route_type(notice.data, notice.offset) == RTN_ANYCAST:
            # A host that begins or ceases to be a router joins or leaves the anycast addresses of its
            # subnets (RFC 4291 §2.6.1).
            self._stale_link = True
            return True
        removed = notice.kind == RTM_DELROUTE
        found = self._reader.read(notice.data, notice.offset, removed=removed)
        if found is None:
            return False
        prefix, entry = found
        if removed:
            self._table.remove(prefix, entry)
        else:
            self._table.add(prefix, entry, notice.flags)
        return True

    # ---- link and addresses

    def _follow_link(self, link: Link) -> None:
        if link.is_router != self._is_router:
            self._is_router = link.is_router
            self._stack.router_changed(link.is_router)
        before = self._addresses.copy()
        self._publish_addresses(self._netlink.flagged_addresses(self._index))
        self._stale_routes |= self._lost_source(before - self._addresses)

    def _lost_source(self, gone: set[IpInterface]) -> bool:
        """Return whether the kernel may have removed IPv4 routes with the address, which it does without a
        notice."""
        sources = {address.ip.packed for address in gone if address.version == 4}
        if not sources:
            return False
        was_last = all(address.version == 6 for address in self._addresses)
        return was_last or self._table.prefers(sources)

    def _publish_addresses(self, held: Mapping[IpInterface, int]) -> None:
        for address in self._addresses - held.keys():
            self._addresses.discard(address)
            self._stack.address_removed(address)
        for address in sorted(held.keys() - self._addresses, key=str):
            self._addresses.add(address)
            # keepalived adds a virtual router's IPv6 addresses with that flag, as does `ip ... nodad`.
            is_checked = not held[address] & IFA_F_NODAD
            self._stack.address_added(address, is_checked, self._is_optimistic(address))

    def _is_optimistic(self, address: IpInterface) -> bool:
        """Return whether the kernel's optimistic_dad holds for the address; its own detection, which would
        mark the address, does not run on a TUN. As in the kernel, a router is never optimistic."""
        link = self._link
        if address.version == 4 or link is None or link.is_router:
            return False
        return self._sysctls.larger("ipv6", link.name, "optimistic_dad") > 0

    # ---- routes

    def _list_routes(self) -> None:
        for _ in range(_LISTINGS):
            self._table.replace(self._netlink.routes(self._index, self._reader))
            if not self._netlink.was_interrupted:
                break

    def _list_nexthops(self) -> None:
        """List the nexthop objects; when these change, the kernel need not name the routes that use them."""
        nexthops = self._netlink.nexthops(self._index)
        if nexthops == self._reader.nexthops:
            return
        self._reader = RouteReader(self._index)
        self._reader.nexthops = nexthops
        self._stale_routes = True
        self._query.nexthops = nexthops
        self._query.forget()

    # ---- rules

    def _follow_rules(self) -> None:
        """Let the endpoint ask the kernel about each flow under other rules than the default ones."""
        for family in (socket.AF_INET, socket.AF_INET6):
            rules = [rule for rule in self._rules if rule.family == family]
            fields = fields_of(rules)
            selecting = self._table.selecting(family)
            if selecting is not None:
                fields = (fields or 0) | selecting
            self._table.ask(family, fields)
        self._query.marks = sorted({rule.mark for rule in self._rules if rule.mark})

    def _publish_routes(self) -> None:
        more = self._table.left_out - self._left_out
        if more:
            if not self._left_out:
                _log.warning(
                    "the kernel has too many routes over the interface: left out some (routes_left_out);"
                    " ipoibu follows %d of them, %d to one destination",
                    ROUTE_ENTRIES_MAX,
                    ROUTE_PREFIX_ENTRIES_MAX,
                )
            self._left_out += more
            self._stack.routes_left_out(more)
        changes = self._table.changes()
        while batch := list(itertools.islice(changes, ROUTE_CHANGES_PER_CALL)):
            self._stack.routes_changed(batch)
