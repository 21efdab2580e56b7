# SPDX-License-Identifier: BSD-2-Clause
"""Proxy sync: copies the kernel's proxy entries and anycast addresses of an interface into an endpoint.

`ip neigh add proxy` makes an entry. The kernel answers for it while the interface forwards packets, for
IPv6 also only with proxy_ndp. A router has the subnet-router anycast address of each of its IPv6 subnets.
The kernel sends no notices of entries and of sysctls, so the proxy sync lists them now and then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import SYSCTL_POLL_S
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.host.monitor import RTMGRP_IPV6_IFADDR, Monitor
from ipoibu.host.netlink import Netlink
from ipoibu.host.sysctl import SYSCTLS, Sysctls


class ProxySync:
    """Keeps the proxies of `stack` equal to those of the kernel's interface `index`.

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
        self._ips: frozenset[IpAddress] = frozenset()
        self._monitor = Monitor(RTMGRP_IPV6_IFADDR, namespace=netlink.namespace)

    def close(self) -> None:
        self._monitor.close()

    def fileno(self) -> int:
        return self._monitor.fileno()

    def read_notices(self) -> bool:
        """Read the waiting notices; return whether the caller has to call `refresh`."""
        return any(notice.interface == self._index for notice in list(self._monitor.notices()))

    def refresh(self) -> None:
        """Publish the addresses, if they changed."""
        ips = frozenset(self._proxies() | self._netlink.anycasts(self._index))
        if ips != self._ips:
            self._ips = ips
            self._stack.proxies_changed(ips)

    def withdraw(self) -> None:
        """Publish that there are none."""
        if self._ips:
            self._ips = frozenset()
            self._stack.proxies_changed(self._ips)

    def _proxies(self) -> set[IpAddress]:
        link = self._netlink.link(self._index)
        name, sysctls = None if link is None else link.name, self._sysctls
        versions = set()
        if sysctls.own("ipv4", name, "forwarding"):
            versions.add(4)
        if sysctls.own("ipv6", name, "forwarding") and sysctls.larger("ipv6", name, "proxy_ndp"):
            versions.add(6)
        if not versions:
            return set()
        return {ip for ip in self._netlink.proxies(self._index) if ip.version in versions}
