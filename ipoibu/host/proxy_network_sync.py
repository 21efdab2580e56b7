# SPDX-License-Identifier: BSD-2-Clause
"""Proxied sync: tells an endpoint which hosts behind other interfaces it answers for.

An administrator names networks, or all that the kernel routes elsewhere. The kernel's routes decide about
each request (`ProxyQuery`). This sync finds the addresses about which the endpoint has to act before a
request comes: single ones, which it announces, and those whose solicited-node groups it receives. The
latter are the single IPv6 addresses, every address of a small network and, of a larger one, the hosts that
the kernel knows: by a route to the host alone, or as a neighbour on another interface.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv6Address
from pathlib import Path
from typing import Final, NamedTuple

from ipoibu.base.addr import IpNetwork
from ipoibu.base.limits import PROXY_DELAY_MAX_S, PROXY_ENUMERATED_MAX, SYSCTL_POLL_S
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.host.monitor import RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, Monitor
from ipoibu.host.netlink import Netlink
from ipoibu.host.proxy_query import ProxyQuery
from ipoibu.host.route_message import ipv6_host_of
from ipoibu.host.sysctl import SYSCTLS, Sysctls
from ipoibu.proto.neigh.proxy_networks import ProxyRules

_USER_HZ: Final = 100.0  # the unit of proxy_delay, on every architecture that Linux has

_log = logging.getLogger(__name__)


class WantedProxies(NamedTuple):
    """The networks that an administrator names, and whether the kernel's routes name further ones."""

    networks: Sequence[IpNetwork] = ()
    by_routes: bool = False


class ProxiedSync:
    """Keeps `stack` up to date about what is behind the host of the interface `index`.

    The caller closes `netlink`. Call `read_notices` when `fileno` is readable, and `refresh` if that returns
    True, at the start, after each change of what `wanted` returns, and at least every `list_s` seconds.
    """

    list_s: Final = SYSCTL_POLL_S

    def __init__(
        self,
        index: int,
        stack: EndpointContract,
        netlink: Netlink,
        wanted: Callable[[], WantedProxies],
        sysctls: Path = SYSCTLS,
    ) -> None:
        self._index = index
        self._stack = stack
        self._netlink = netlink
        self._wanted = wanted
        self._sysctls = Sysctls(netlink.namespace, sysctls)
        self._rules = ProxyRules()
        self._host_routes: set[IPv6Address] = set()
        self._are_routes_stale = True
        self._is_listening = False
        self._warned: frozenset[int] = frozenset()
        self._monitor = Monitor(0, namespace=netlink.namespace)
        self._overruns = 0
        self._query = ProxyQuery(index, netlink.namespace)  # of the engine's thread
        self._own_query = ProxyQuery(index, netlink.namespace)
        stack.answer_proxy(self._query.ask)

    def close(self) -> None:
        self._monitor.close()
        self._query.close()
        self._own_query.close()

    def fileno(self) -> int:
        return self._monitor.fileno()

    def read_notices(self) -> bool:
        """Read the waiting notices of routes; return whether the caller has to call `refresh`."""
        is_any = False
        for notice in self._monitor.notices():
            is_any = True
            # any host of another link can make the kernel change other routes
            if ipv6_host_of(notice.data, notice.offset) is not None:
                self._are_routes_stale = True
        if self._monitor.overruns != self._overruns:
            self._overruns = self._monitor.overruns
            is_any = self._are_routes_stale = True
        return is_any

    def refresh(self) -> None:
        """Publish what is behind us, if it changed."""
        networks, by_routes = self._wanted()
        has_any = bool(networks) or by_routes
        if has_any and not self._is_listening:  # an interface without proxies ignores routes
            self._is_listening = True
            self._monitor.listen(RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE)
        link = self._netlink.link(self._index)
        if link is None:
            return
        self._own_query.vrf = link.master
        singles = (it.network_address for it in networks if it.num_addresses == 1)
        behind = frozenset(ip for ip in singles if self._own_query.is_behind(ip))
        rules = ProxyRules(
            tuple(networks),
            by_routes,
            behind,
            frozenset(self._listened(networks, by_routes)),
            self._delay_s("ipv4", link.name),
            self._delay_s("ipv6", link.name),
        )
        if rules != self._rules:
            self._rules = rules
            self._stack.proxied_changed(rules)
        if has_any:
            versions: set[int] = {4, 6} if by_routes else {it.version for it in networks}
            self._check_forwarding(link.name, versions)

    def withdraw(self) -> None:
        """Publish that nothing is behind us."""
        if self._rules != ProxyRules():
            self._rules = ProxyRules()
            self._stack.proxied_changed(self._rules)

    # ---- inside

    def _listened(self, networks: Sequence[IpNetwork], by_routes: bool) -> Iterator[IPv6Address]:
        large: list[IpNetwork] = []
        for network in networks:
            if network.version == 4:
                continue
            if network.num_addresses > PROXY_ENUMERATED_MAX:
                large.append(network)
            else:
                yield from network
        if not large and not by_routes:
            return
        for ip in self._known():
            if by_routes or any(ip in network for network in large):
                yield ip

    def _known(self) -> set[IPv6Address]:
        """The IPv6 hosts behind other interfaces that the kernel knows."""
        if self._are_routes_stale:
            self._are_routes_stale = False
            self._host_routes = self._netlink.ipv6_host_routes(self._index)
        return self._host_routes | self._netlink.ipv6_neighbours(self._index)

    def _delay_s(self, family: str, name: str) -> float:
        delay_s = self._sysctls.neigh(family, name, "proxy_delay") / _USER_HZ
        return min(delay_s, PROXY_DELAY_MAX_S)

    def _check_forwarding(self, name: str, versions: set[int]) -> None:
        """Warn of a proxy that cannot work, once until that changes."""
        idle = frozenset(
            version
            for version in versions
            if not self._sysctls.own(f"ipv{version}", name, "forwarding")
        )
        for version in sorted(idle - self._warned):
            _log.warning(
                "%s: the interface does not forward IPv%d (net.ipv%d.conf.%s.forwarding), so it answers for"
                " no host behind it",
                name,
                version,
                version,
                name,
            )
        self._warned = idle
