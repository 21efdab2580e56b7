# SPDX-License-Identifier: BSD-2-Clause
"""One running interface, parent or child: TUN, endpoint, route sync and control socket.

They start in this order: TUN (its name is the lock on the interface), endpoint, kernel configuration, route
sync, group sync, ARP sync, proxy sync, control socket. They end in reverse order; when the TUN closes,
last, the kernel removes the interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Final, ParamSpec, Protocol

from ipoibu.addr import HwAddr, IpAddress
from ipoibu.daemon.changes import Changes
from ipoibu.daemon.config import InterfaceConfig
from ipoibu.daemon.control import Action, ControlServer
from ipoibu.daemon.descriptors import check_room
from ipoibu.daemon.drop_log import DropLog
from ipoibu.daemon.duplicates import Duplicates
from ipoibu.daemon.neighbours import NeighbourChanges, NeighbourTable
from ipoibu.daemon.observed import Observed
from ipoibu.daemon.pings import pings
from ipoibu.daemon.sync_watch import Sync, SyncWatch
from ipoibu.endpoint.callbacks import Callbacks, OnFailure
from ipoibu.errors import IpoibuError
from ipoibu.fabric.link_speed import set_speed
from ipoibu.host.arp_sync import ArpStack, ArpSync
from ipoibu.host.attached import AttachedInterface
from ipoibu.host.group_sync import GroupStack, GroupSync
from ipoibu.host.interface import Interface, InterfaceSpec
from ipoibu.host.netlink import Link, Netlink
from ipoibu.host.proxy_sync import ProxyStack, ProxySync
from ipoibu.host.route_sync import RouteSync, Stack
from ipoibu.host.tun import Tun
from ipoibu.ib import PortInfo
from ipoibu.limits import DAD_TRANSMITS, IPV6_MIN_MTU, RETRANS_TIMER_S

# How long to wait until the first addresses are checked: the probes, and as much again for delays.
VERDICTS_S: Final = 2 * (DAD_TRANSMITS * RETRANS_TIMER_S + 1.0)

P = ParamSpec("P")

_log = logging.getLogger(__name__)


class RunnableEndpoint(Stack, GroupStack, ArpStack, ProxyStack, NeighbourTable, Observed, Protocol):
    """The part of `ipoibu.endpoint.endpoint.Endpoint` that the daemon uses."""

    @property
    def port(self) -> PortInfo: ...
    @property
    def hwaddr(self) -> HwAddr: ...
    @property
    def mtu(self) -> int: ...
    @property
    def busy_poll_us(self) -> int | None: ...
    def set_busy_poll(self, busy_poll_us: int | None, /) -> None: ...
    async def aping(self, target: IpAddress | HwAddr, timeout: float, /) -> dict[str, Any]: ...
    def open(self) -> None: ...
    def close(self) -> None: ...


MakeEndpoint = Callable[[InterfaceConfig, Tun, Callbacks], RunnableEndpoint]


class RunningInterface:
    """Runs one interface between `start` and `close`, on the event loop's thread.

    `stop` ends the wait for addresses. If the interface cannot go on, it calls `on_failure` once with
    the reason; the callee closes it. `actions` are further commands of its control socket.
    """

    def __init__(
        self,
        config: InterfaceConfig,
        make_endpoint: MakeEndpoint,
        executor: Executor,
        *,
        stop: asyncio.Event,
        on_failure: OnFailure,
        actions: Mapping[str, Action],
    ) -> None:
        self.config = config
        self._make_endpoint = make_endpoint
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._stop = stop
        self._on_failure = on_failure
        self._actions = actions
        self._stack = contextlib.AsyncExitStack()
        self._verdicts = asyncio.Event()
        self._failed = False
        self._pending: set[IpAddress] = set()  # IPv6 addresses that the endpoint still probes
        self._link: Link | None = None
        self._duplicates = Duplicates(config.name, self._loop)

    async def start(self) -> None:
        """Return when the interface exists and probes its addresses; leave nothing behind on an error."""
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """End the interface and leave nothing behind. Safe to repeat."""
        await self._stack.aclose()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        config = self.config
        check_room(config.name, config.endpoint.queues)
        open_tun = Tun.attach if config.tun == "attach" else Tun.open
        tun = stack.enter_context(
            open_tun(config.name, super_frames=config.offload, queues=config.endpoint.queues)
        )
        self._tun = tun
        self._link_changed(False, None)  # as the kernel's ib0 until it has joined the link
        callbacks = Callbacks(
            on_address=self._threadsafe(self._verdict),
            on_failure=self._threadsafe(self._fail),
            on_mtu=self._threadsafe(self._mtu_changed),
            on_link=self._threadsafe(self._link_changed),
        )
        self.endpoint = self._make_endpoint(config, tun, callbacks)
        stack.callback(self.endpoint.close)
        await self._loop.run_in_executor(self._executor, self.endpoint.open)
        netlink = stack.enter_context(Netlink())
        make_interface = AttachedInterface if config.tun == "attach" else Interface
        self._interface = make_interface(self._spec(), netlink)
        self._interface.spec.check()
        index = self._interface.index
        route_sync = RouteSync(index, self.endpoint, netlink)
        route_watch = SyncWatch(route_sync, self._loop, self._fail, self._follow)
        stack.callback(route_watch.close)
        self._interface.configure()
        self._pending = {a.ip for a in netlink.addresses(index) if a.version == 6}
        self._link = route_sync.refresh()
        route_watch.watch()
        self._run(stack, GroupSync(index, self.endpoint, netlink))
        self._run(stack, ArpSync(index, self.endpoint, netlink))
        self._run(stack, ProxySync(index, self.endpoint, netlink))
        stack.callback(self._duplicates.close)
        actions: dict[str, Action] = dict(self._actions)
        actions |= Changes(self, self._executor).actions | pings(config.name, self.endpoint.aping)
        actions |= NeighbourChanges(self.endpoint, self._executor).actions
        control = ControlServer(config.name, self.endpoint, self._executor, actions)
        stack.push_async_callback(control.close)
        await control.start()
        endpoint = self.endpoint
        drop_log = DropLog(config.name, endpoint.stats, lambda: endpoint.mtu, self._executor)
        stack.push_async_callback(drop_log.close)
        drop_log.start()

    def _run(self, stack: contextlib.AsyncExitStack, sync: Sync) -> None:
        watch = SyncWatch(sync, self._loop, self._fail)
        stack.callback(watch.close)
        watch.start()

    def _spec(self) -> InterfaceSpec:
        return InterfaceSpec(
            name=self.config.name,
            mtu_bytes=self.endpoint.mtu,
            guid=self.endpoint.port.guid,
            addresses=self.config.address,
            routes=self.config.route,
        )

    async def settle(self) -> None:
        """Wait until the endpoint has probed every IPv6 address, because "up" means usable, or until
        `stop`."""
        if not self._pending:
            return
        waits = {asyncio.create_task(e.wait()) for e in (self._verdicts, self._stop)}
        await asyncio.wait(waits, timeout=VERDICTS_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def summary(self) -> str:
        addresses = [str(entry["address"]) for entry in self.endpoint.show()["addresses"]]
        return (
            f"{self.config.name}: up, hwaddr {self.endpoint.hwaddr}, mtu {self.endpoint.mtu},"
            f" addresses {' '.join(addresses) or 'none'}"
        )

    # What changes while it runs

    @property
    def name(self) -> str:
        return self.config.name

    def busy_poll_us(self) -> int | None:
        return self.endpoint.busy_poll_us

    def set_busy_poll(self, busy_poll_us: int | None) -> None:
        self.endpoint.set_busy_poll(busy_poll_us)

    def mtu(self) -> int:
        assert self._link is not None, "`start` has set it"
        return self._link.mtu_bytes

    def set_mtu(self, mtu_bytes: int) -> None:
        self._interface.set_mtu(mtu_bytes)

    # Events while it runs, all on the event loop's thread

    def _threadsafe(self, call: Callable[P, None]) -> Callable[P, None]:
        def post(*args: P.args, **kwargs: P.kwargs) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
                self._loop.call_soon_threadsafe(functools.partial(call, *args, **kwargs))

        return post

    def _fail(self, reason: str) -> None:
        if not self._failed:
            self._failed = True
            self._on_failure(reason)

    def _verdict(self, address: IpAddress, duplicate: bool) -> None:
        if duplicate:
            self._duplicates.lost(address, self._interface)
        elif self._duplicates.won(address):
            self._interface.keep(address)
        self._pending.discard(address)
        if not self._pending:
            self._verdicts.set()

    def _mtu_changed(self, mtu_bytes: int) -> None:
        if self._link is None:
            return  # `configure` comes later, and uses this MTU
        try:
            self._interface.follow_mtu(mtu_bytes, self._link)
        except IpoibuError as error:
            self._fail(str(error))

    def _link_changed(self, is_up: bool, speed_mbps: int | None) -> None:
        name = self.config.name
        if is_up and self._link is not None:
            self._duplicates.retry_all(self._interface)
        try:
            if is_up:
                set_speed(name, speed_mbps)
        except OSError as error:  # an old kernel, or the owner of a TUN without a capability
            _log.info("%s: the kernel does not show the speed of the port: %s", name, error)
        try:
            self._tun.set_carrier(is_up)
        except OSError as error:  # an old kernel; the link works without
            _log.info("%s: the kernel does not show the state of the port: %s", name, error)

    def _follow(self, link: Link | None) -> None:
        if link is None:
            self._fail("the interface is gone: another program removed it")
            return
        before, self._link = self._link, link
        if before is None:
            return
        if before.up and not link.up:
            _log.warning(
                "%s: another program set the interface down: it carries no traffic", link.name
            )
        try:
            self._interface.hold_mtu(link)
        except IpoibuError as error:
            _log.error("%s: %s", link.name, error)
        # When it is down, or below 1280 bytes, the kernel removes IPv6 addresses and some routes.
        if _carries_ipv6(link) and not _carries_ipv6(before):
            _log.warning("%s: the interface is up again", link.name)
            self._interface.restore()


def _carries_ipv6(link: Link) -> bool:
    return link.up and link.mtu_bytes >= IPV6_MIN_MTU
