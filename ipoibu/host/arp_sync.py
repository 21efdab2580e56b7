# SPDX-License-Identifier: BSD-2-Clause
"""ARP sync: copies the host's other IPv4 addresses and its ARP settings into an endpoint.

The kernel answers ARP requests for the IPv4 addresses of all its interfaces, as the sysctls arp_ignore,
arp_announce, arp_filter, proxy_arp and proxy_arp_pvlan of the receiving interface say
(Documentation/networking/ip-sysctl.rst), in a VRF for those of the VRF, and for the networks of local
routes (`ip route add local`). Where addresses do not say all, it asks its routes, and so does the endpoint.
The kernel sends notices of addresses and routes, but not of these sysctls, so the ARP sync reads them now
and then.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from ipoibu.base.limits import SYSCTL_POLL_S
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.host.arp_query import ArpQuery
from ipoibu.host.link_changes import LinkChanges
from ipoibu.host.monitor import RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_LINK, Monitor
from ipoibu.host.netlink import (
    RT_SCOPE_HOST,
    RT_SCOPE_LINK,
    RTM_DELLINK,
    RTM_DELROUTE,
    RTM_NEWLINK,
    RTM_NEWROUTE,
    Netlink,
)
from ipoibu.host.route_message import is_local_network
from ipoibu.host.sysctl import SYSCTLS, Sysctls
from ipoibu.proto.neigh.host_addresses import ArpPolicy, Ignore


class ArpSync:
    """Keeps `stack` up to date about the host of the interface `index`.

    The caller closes `netlink`. Call `read_notices` when `fileno` is readable, and `refresh` if that returns
    True, at the start, and at least every `list_s` seconds.
    """

    list_s: Final = SYSCTL_POLL_S

    def __init__(
        self, index: int, stack: EndpointContract, netlink: Netlink, sysctls: Path = SYSCTLS
    ) -> None:
        self._index = index
        self._stack = stack
        self._netlink = netlink
        self._sysctls = Sysctls(netlink.namespace, sysctls)
        self._policy: ArpPolicy | None = None
        self._others: frozenset[IPv4Address] = frozenset()
        self._is_stale = self._are_networks_stale = True
        self._has_networks = False  # local routes to more than one address
        kinds = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE
        self._monitor = Monitor(kinds, namespace=netlink.namespace)
        self._overruns = 0
        self._links = LinkChanges()
        self._query = ArpQuery(index, netlink.namespace)
        stack.answer_arp(self._query.ask)

    def close(self) -> None:
        self._monitor.close()
        self._query.close()

    def fileno(self) -> int:
        return self._monitor.fileno()

    def read_notices(self) -> bool:
        """Read the waiting notices; return whether the caller has to call `refresh`."""
        for notice in self._monitor.notices():
            if notice.kind in (RTM_NEWLINK, RTM_DELLINK):
                self._is_stale |= notice.interface == self._index or self._links.matter(notice)
            elif notice.kind not in (RTM_NEWROUTE, RTM_DELROUTE):
                self._is_stale = True
            elif is_local_network(notice.data, notice.offset):
                self._is_stale = self._are_networks_stale = True
        if self._monitor.overruns != self._overruns:
            self._overruns = self._monitor.overruns
            self._links.forget()
            self._is_stale = self._are_networks_stale = True
        return self._is_stale

    def refresh(self) -> None:
        """Publish the host's other addresses and the policy, if any of them changed."""
        if self._are_networks_stale:
            self._are_networks_stale = False
            self._has_networks = self._netlink.has_local_networks()
        vrf = self._query.vrf
        policy = self._read_policy()
        if policy == self._policy and self._query.vrf == vrf and not self._is_stale:
            return
        widest = RT_SCOPE_LINK if policy.ignore is Ignore.HOST_SCOPE else RT_SCOPE_HOST
        found = self._netlink.other_addresses(self._index, widest)
        # Not those of other VRFs.
        others = frozenset(ip for ip in found if self._netlink.is_local(ip, self._query.vrf))
        self._is_stale = False
        if (policy, others) != (self._policy, self._others):
            self._policy, self._others = policy, others
            self._stack.arp_changed(others, policy)

    def _read_policy(self) -> ArpPolicy:
        link = self._netlink.link(self._index)
        name = None if link is None else link.name
        ignore = Ignore.of(self._sysctls.larger("ipv4", name, "arp_ignore"))
        self._query.vrf = None if link is None else link.master
        self._query.is_filter = self._sysctls.larger("ipv4", name, "arp_filter") > 0
        announce = self._sysctls.larger("ipv4", name, "arp_announce")
        self._query.is_proxy = self._sysctls.larger("ipv4", name, "proxy_arp") > 0
        self._query.is_pvlan = self._sysctls.own("ipv4", name, "proxy_arp_pvlan") > 0
        is_proxy = self._query.is_proxy or self._query.is_pvlan
        is_proxy &= self._sysctls.own("ipv4", name, "forwarding") > 0
        by_routes = self._query.is_filter or self._query.vrf is not None or self._has_networks
        return ArpPolicy(ignore, announce=announce, is_proxy=is_proxy, by_routes=by_routes)
