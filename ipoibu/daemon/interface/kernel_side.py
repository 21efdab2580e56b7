# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's side of a running interface, in the network namespace where the interface is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ipoibu.base.addr import IpAddress
from ipoibu.daemon.interface.sync_watch import Sync, SyncWatch
from ipoibu.endpoint.callbacks import OnFailure
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.host.arp_sync import ArpSync
from ipoibu.host.group_sync import GroupSync
from ipoibu.host.kernel_interface import KernelInterface
from ipoibu.host.netlink import Link, Netlink
from ipoibu.host.proxy_entry_sync import ProxySync
from ipoibu.host.proxy_network_sync import ProxiedSync, WantedProxies
from ipoibu.host.route_sync import NoStack, RouteSync


class KernelSide:
    """Follows `interface` from `start` on until `close`, on the event loop's thread.

    It owns `netlink`. It calls `follow` with the link after each change, None if the link has left the
    namespace, and `on_failure` if it cannot go on.
    """

    def __init__(
        self,
        interface: KernelInterface,
        netlink: Netlink,
        endpoint: EndpointContract | NoStack,
        wanted_proxies: Callable[[], WantedProxies],
        *,
        loop: asyncio.AbstractEventLoop,
        on_failure: OnFailure,
        follow: Callable[[Link | None], None],
    ) -> None:
        self.interface = interface
        self.netlink = netlink
        self._endpoint = endpoint
        self._loop = loop
        self._on_failure = on_failure
        self._stack = contextlib.ExitStack()
        self._stack.callback(netlink.close)
        self._routes = RouteSync(interface.index, endpoint, netlink)
        self._watch = SyncWatch(self._routes, loop, on_failure, follow)
        self._stack.callback(self._watch.close)
        self._groups: GroupSync | None = None
        self._proxies: ProxySync | None = None
        self._wanted_proxies = wanted_proxies
        self._proxied: ProxiedSync | None = None
        self._proxied_watch: SyncWatch | None = None

    def addresses(self) -> set[IpAddress]:
        """The addresses about which the endpoint decides; those of guests are none of them."""
        if isinstance(self._endpoint, NoStack):
            return set()
        return {address.ip for address in self.netlink.addresses(self.interface.index)}

    def start(self) -> Link | None:
        """Copy the kernel's state into the endpoint, and return the link; None if the link has left the
        namespace."""
        index = self.interface.index
        link = self._routes.refresh()
        self._watch.watch()
        if isinstance(self._endpoint, NoStack):
            return link
        self._groups = GroupSync(index, self._endpoint, self.netlink)
        self._run(self._groups)
        self._run(ArpSync(index, self._endpoint, self.netlink))
        self._proxies = ProxySync(index, self._endpoint, self.netlink)
        self._run(self._proxies)
        self._proxied = ProxiedSync(index, self._endpoint, self.netlink, self._wanted_proxies)
        self._proxied_watch = self._run(self._proxied)
        return link

    def note_proxies(self) -> None:
        """The administrator wants other proxies."""
        if self._proxied_watch is not None:
            self._proxied_watch.start()

    def kernel_proxies(self) -> set[IpAddress]:
        """The kernel's own proxy entries of the interface."""
        return self.netlink.proxies(self.interface.index)

    def withdraw(self) -> None:
        """Take everything that came from the kernel away from the endpoint."""
        self._routes.withdraw()
        for sync in (self._groups, self._proxies, self._proxied):
            if sync is not None:
                sync.withdraw()

    def close(self) -> None:
        """End following. Safe to repeat."""
        self._proxied_watch = None
        self._stack.close()

    def _run(self, sync: Sync) -> SyncWatch:
        watch = SyncWatch(sync, self._loop, self._on_failure)
        self._stack.callback(watch.close)
        watch.start()
        return watch
