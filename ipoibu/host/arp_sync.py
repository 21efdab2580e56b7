# SPDX-License-Identifier: BSD-2-Clause
"""ARP sync: copies the host's other IPv4 addresses and its ARP settings into an endpoint.

The kernel answers ARP requests for the IPv4 addresses of all its interfaces, as the sysctls arp_ignore,
arp_announce, arp_filter and proxy_arp of the receiving interface say
(Documentation/networking/ip-sysctl.rst).
The kernel sends notices of addresses, but not of these sysctls, so the ARP sync reads them now and then.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, Protocol

from ipoibu.host.monitor import RTMGRP_IPV4_IFADDR, Monitor
from ipoibu.host.netlink import RT_SCOPE_HOST, RT_SCOPE_LINK, Netlink
from ipoibu.host.route_query import RouteQuery
from ipoibu.host.sysctl import SYSCTLS, Sysctls
from ipoibu.limits import SYSCTL_POLL_S
from ipoibu.proto.host_addresses import ArpPolicy, Ignore
from ipoibu.route import AskProxy


class ArpStack(Protocol):
    """The part of `Endpoint` that follows the host's ARP settings."""

    def arp_changed(self, others: frozenset[IPv4Address], policy: ArpPolicy, /) -> None: ...
    def answer_proxies(self, ask: AskProxy, /) -> None: ...


class ArpSync:
    """Keeps `stack` up to date about the host of the interface `index`.

    The caller closes `netlink`. Call `changed` when `fileno` is readable, and `refresh` if that returns
    True, at the start, and at least every `list_s` seconds.
    """

    list_s: Final = SYSCTL_POLL_S

    def __init__(
        self, index: int, stack: ArpStack, netlink: Netlink, sysctls: Path = SYSCTLS
    ) -> None:
        self._index = index
        self._stack = stack
        self._netlink = netlink
        self._sysctls = Sysctls(netlink.namespace, sysctls)
        self._policy: ArpPolicy | None = None
        self._others: frozenset[IPv4Address] = frozenset()
        self._is_stale = True
        self._monitor = Monitor(RTMGRP_IPV4_IFADDR, namespace=netlink.namespace)
        self._overruns = 0
        self._query: RouteQuery | None = None  # since the interface is a proxy

    def close(self) -> None:
        self._monitor.close()
        if self._query is not None:
            self._query.close()

    def fileno(self) -> int:
        return self._monitor.fileno()

    def changed(self) -> bool:
        """Read the waiting notices; return whether the caller has to call `refresh`."""
        for _ in self._monitor.notices():
            self._is_stale = True
        if self._monitor.overruns != self._overruns:
            self._overruns = self._monitor.overruns
            self._is_stale = True
        return self._is_stale

    def refresh(self) -> None:
        """Publish the host's other addresses and the policy, if any of them changed."""
        policy = self._read_policy()
        if policy == self._policy and not self._is_stale:
            return
        widest = RT_SCOPE_LINK if policy.ignore is Ignore.HOST_SCOPE else RT_SCOPE_HOST
        others = frozenset(self._netlink.other_addresses(self._index, widest))
        self._is_stale = False
        if policy.is_proxy and self._query is None:
            self._query = RouteQuery(self._index, self._netlink.namespace)
            self._stack.answer_proxies(self._query.leads_elsewhere)
        if (policy, others) != (self._policy, self._others):
            self._policy, self._others = policy, others
            self._stack.arp_changed(others, policy)

    def _read_policy(self) -> ArpPolicy:
        link = self._netlink.link(self._index)
        name = None if link is None else link.name
        ignore = Ignore.of(self._sysctls.larger("ipv4", name, "arp_ignore"))
        # In a VRF, or if it answers by its routes (arp_filter), the interface usually does not answer for
        # other interfaces.
        is_separate = link is not None and link.master is not None
        is_separate |= self._sysctls.larger("ipv4", name, "arp_filter") > 0
        if ignore in (Ignore.NOTHING, Ignore.HOST_SCOPE) and is_separate:
            ignore = Ignore.OTHERS
        announce = self._sysctls.larger("ipv4", name, "arp_announce")
        is_proxy = self._sysctls.larger("ipv4", name, "proxy_arp") > 0
        is_proxy &= self._sysctls.own("ipv4", name, "forwarding") > 0
        return ArpPolicy(ignore, announce=announce, is_proxy=is_proxy)
