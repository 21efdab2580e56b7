# SPDX-License-Identifier: BSD-2-Clause
"""Addresses that we answer for although they are not ours alone: those of hosts behind us, for which an
administrator made proxy entries (RFC 4861 §7.2.8), and anycast addresses (RFC 4291 §2.6).

An advertisement for such an address does not override one of the owner: RFC 4861 §7.2.7, §7.2.8.
"""

from __future__ import annotations

from collections.abc import Set
from ipaddress import IPv6Address

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import PROXIES_MAX
from ipoibu.proto.context import EngineContext, is_host
from ipoibu.proto.groups.groups import Groups
from ipoibu.wire.mgid import solicited_node


class ProxyEntries:
    """The proxy entries and anycast addresses of an interface, of both families."""

    def __init__(self, context: EngineContext, groups: Groups) -> None:
        self._context = context
        self._groups = groups
        self._ips: frozenset[IpAddress] = frozenset()

    def __contains__(self, ip: IpAddress) -> bool:
        return ip in self._ips

    def change(self, now: float, ips: Set[IpAddress]) -> None:
        """Replace all addresses by `ips`, or by as many of `ips` as there is room for."""
        usable = sorted((ip for ip in ips if is_host(ip)), key=str)
        if len(usable) > PROXIES_MAX:
            text = f"{len(usable)} proxy and anycast addresses: we answer for {PROXIES_MAX}"
            self._context.warn("address_table_full", now, text)
        before, self._ips = self._ips, frozenset(usable[:PROXIES_MAX])
        for ip in sorted(before - self._ips, key=str):
            self._context.disown(ip)
            if isinstance(ip, IPv6Address):
                self._groups.leave(now, solicited_node(ip))
        for ip in sorted(self._ips - before, key=str):
            self._context.own(ip)
            if isinstance(ip, IPv6Address):  # Linux joins it for proxy entries only, on a TUN
                self._groups.join(now, solicited_node(ip))
