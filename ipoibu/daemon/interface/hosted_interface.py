# SPDX-License-Identifier: BSD-2-Clause
"""One running interface, parent or child: TUN, endpoint, route sync and control socket.

They start in this order: TUN (its name is the lock on the interface), endpoint, kernel configuration, the
kernel's side (`kernel_side.py`), control socket. They end in reverse order; when the TUN closes, last, the
kernel removes the interface. When the interface moves to another network namespace, a new kernel's side
replaces the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Final, ParamSpec

from ipoibu.base.addr import IpAddress, IpInterface
from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted
from ipoibu.base.limits import DAD_TRANSMITS, LEASE_WAIT_S, MOVE_RETRY_S, RETRANS_TIMER_S
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.control.server import Action, ControlServer
from ipoibu.daemon.handover.keeper import Keeper
from ipoibu.daemon.handover.succession import Succession
from ipoibu.daemon.interface.changes import Changes, difference
from ipoibu.daemon.interface.duplicates import Duplicates
from ipoibu.daemon.interface.kernel_side import KernelSide
from ipoibu.daemon.interface.leases import Leases
from ipoibu.daemon.interface.neighbour_changes import NeighbourChanges
from ipoibu.daemon.interface.opening import open_when_ready
from ipoibu.daemon.interface.pings import pings
from ipoibu.daemon.interface.proxy_table import ProxyTable
from ipoibu.daemon.interface.readiness import Readiness
from ipoibu.daemon.metrics.drop_log import DropLog
from ipoibu.daemon.process.descriptors import check_room
from ipoibu.daemon.process.log_level import LogLevel
from ipoibu.endpoint.callbacks import Callbacks, OnFailure
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.endpoint.handover import Handover
from ipoibu.fabric.link_speed import set_speed
from ipoibu.host.kernel_interface import InterfaceSpec, KernelInterface, RouteSpec
from ipoibu.host.namespace import HERE, Namespace
from ipoibu.host.namespace_helper import NamespaceHelper
from ipoibu.host.netlink import Link, Netlink
from ipoibu.host.persistent_tun import AttachedInterface
from ipoibu.host.route_sync import NoStack
from ipoibu.host.tap import TapInterface
from ipoibu.host.tun import Tun

if TYPE_CHECKING:
    from ipoibu.wire.dhcp6_lease import Lease6
    from ipoibu.wire.dhcp_lease import Lease

# How long to wait until the first addresses are checked: the probes, and as much again for delays.
VERDICTS_S: Final = 2 * (DAD_TRANSMITS * RETRANS_TIMER_S + 1.0)

KEPT_CARRIER_S: Final = 1.0  # the link of a restart comes up at once, if it comes up

P = ParamSpec("P")

MakeEndpoint = Callable[[InterfaceConfig, Tun, Callbacks, Handover], EndpointContract]

_log = logging.getLogger(__name__)


class HostedInterface:
    """Runs one interface between `start` and `close`, on the event loop's thread.

    `stop` ends the wait for addresses. If the interface cannot go on, it calls `on_failure` once with
    the reason; the callee closes it. `actions` are further commands of its control socket. With a
    `helper` it follows the interface into other network namespaces. It begins with what `keeper` has of an
    earlier process, and leaves the interface to the next one.
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
        helper: NamespaceHelper | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.config = config
        self._carrier_timer: asyncio.TimerHandle | None = None
        self._is_link_up = False
        self._helper = helper
        self._namespace = HERE
        self._is_closed = False
        self.on_rewired: Callable[[], None] = lambda: None
        """Called when other guests may be behind the TAP."""
        self.on_closed: Callable[[], None] = lambda: None
        """Called after the end of the data path."""
        self.on_renamed: Callable[[str], None] = lambda name: None
        """Called with the new name that the interface has in the same namespace."""
        self._name = config.name  # as the kernel has it now
        self._make_endpoint = make_endpoint
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._succession = Succession(config, keeper or Keeper(), self._loop)
        self._stop = stop
        self._on_failure = on_failure
        self._actions = actions
        self._stack = contextlib.AsyncExitStack()
        self._failed = False
        self._readiness = Readiness(config.endpoint)
        self._link: Link | None = None
        self._duplicates = Duplicates(config.name, self._loop)
        self._leases = Leases(config.name, lambda: self.mtu, self.set_mtu)
        self._proxies = ProxyTable(config.proxy, self._note_proxies, self._kernel_proxies)

    async def start(self) -> None:
        """Return when the interface exists and probes its addresses; leave nothing behind on an error."""
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()

    def unfollow(self) -> None:
        """Stop following the kernel: the interface ends soon."""
        self._is_closed = True
        self._side.close()
        self._duplicates.close()

    async def close(self) -> None:
        """End the interface, and leave behind what the keeper keeps alone. Safe to repeat."""
        await self._succession.leave(self._executor)
        self._is_closed = True
        if self._carrier_timer is not None:
            self._carrier_timer.cancel()  # a timer keeps the data path, and so the TUN, in existence
        await self._stack.aclose()
        self.on_closed()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        config = self.config
        check_room(config.name, config.endpoint.queues)
        self._tun = stack.enter_context(self._open_tun())
        callbacks = Callbacks(
            on_address=self._threadsafe(self._verdict),
            on_failure=self._threadsafe(self._fail),
            on_mtu=self._threadsafe(self._note_mtu),
            on_link=self._threadsafe(self._note_link),
            on_lease=self._threadsafe(self._note_lease),
            on_lease6=self._threadsafe(self._note_lease6),
        )
        self.endpoint = self._make_endpoint(config, self._tun, callbacks, self._succession.kept())
        stack.callback(self.endpoint.close)
        try:
            await open_when_ready(config, self.endpoint, self._executor, self._stop)
        except IpoibuError:
            self._note_link(False, None)
            raise
        self._spec().check()
        self._side = self._make_side(self._spec())
        stack.callback(self._close_side)
        stack.callback(self._leases.close)
        if self._succession.before is not None:
            kept = self._side.netlink.link(config.name)
            if kept is not None:
                self._interface.note_mode(kept)
        self._interface.configure()
        self._succession.clear_up(self._interface)
        self._readiness.begin(self._side.addresses())
        self._link = self._side.start()
        if self._link is None:
            raise NoSuchDevice("the interface left its network namespace before it was up")
        self._leases.begin(self._interface)
        stack.callback(self._duplicates.close)
        actions: dict[str, Action] = dict(self._actions)
        actions |= Changes(self, self._executor).actions | pings(config.name, self.endpoint.aping)
        actions |= NeighbourChanges(self.endpoint, self._executor).actions
        actions |= self._proxies.actions
        self._control = ControlServer(
            config.name, self.endpoint, self._executor, actions, mtu=lambda: self.mtu
        )
        stack.push_async_callback(self._control.close)
        await self._control.start()
        drop_log = DropLog(config.name, self.endpoint, self._executor)
        stack.push_async_callback(drop_log.close)
        drop_log.start()
        self._succession.begin(self._tun, self.endpoint, self._interface)

    def _open_tun(self) -> Tun:
        """Take over the TUN that an earlier process has left, with its carrier, or make one without."""
        config = self.config
        tun = self._succession.take_tun()
        if tun is not None:
            self._carrier_timer = self._loop.call_later(KEPT_CARRIER_S, self._drop_kept_carrier)
            return tun
        queues = config.endpoint.queues
        if config.tun == "attach":
            tun = Tun.attach(config.name, super_frames=config.offload, queues=queues)
        else:
            is_tap = config.endpoint.ethernet is not None
            tun = Tun.open(config.name, super_frames=config.offload, queues=queues, tap=is_tap)
        with contextlib.suppress(OSError):  # an old kernel
            tun.set_carrier(False)  # no carrier before the join, as the kernel's ib_ipoib
        return tun

    def _drop_kept_carrier(self) -> None:
        if not self._is_link_up:
            self._note_link(False, None)

    def forget(self) -> None:
        """Leave nothing to the next process: the interface ends for good."""
        self._is_closed = True
        self._succession.forget()

    def _close_side(self) -> None:
        self._side.close()

    def _make_side(self, spec: InterfaceSpec) -> KernelSide:
        netlink = Netlink(self._namespace)
        try:
            make: type[KernelInterface] = KernelInterface
            stack: EndpointContract | NoStack = self.endpoint
            if self.config.tun == "attach":
                make = AttachedInterface
            elif self.config.endpoint.ethernet is not None:
                make, stack = TapInterface, NoStack()
            self._interface = make(spec, netlink)
            return KernelSide(
                self._interface,
                netlink,
                stack,
                self._proxies.wanted,
                loop=self._loop,
                on_failure=self._cannot_follow,
                follow=self._follow,
            )
        except BaseException:
            netlink.close()
            raise

    def _spec(self) -> InterfaceSpec:
        datagram_mtu = self.endpoint.datagram_mtu
        return InterfaceSpec(
            name=self.config.name,
            mtu_bytes=self.endpoint.mtu,
            guid=self.endpoint.port.guid,
            addresses=self.config.address,
            routes=self.config.route,
            datagram_mtu_bytes=datagram_mtu if datagram_mtu != self.endpoint.mtu else None,
            takes_superframes=self.config.offload,
            train_bytes=self.endpoint.port.train_bytes,
        )

    async def settle(self) -> None:
        """Wait until the interface is usable (`Readiness`) and has a lease if DHCP is to give one, or until
        `stop`."""
        until_s = self._loop.time() + LEASE_WAIT_S
        await self._wait_for(self._readiness.usable, VERDICTS_S)
        endpoint, leases = self.config.endpoint, self._leases
        clients = (
            ("DHCP", endpoint.dhcp, leases.had_one),
            ("DHCPv6", endpoint.dhcp6, leases.had_one6),
        )
        for kind, client, had_one in clients:
            if client is None or self._stop.is_set():
                continue
            await self._wait_for(had_one, max(0.0, until_s - self._loop.time()))
            if not had_one.is_set() and not self._stop.is_set():
                _log.warning(
                    "%s: no lease of %s yet: the interface waits on", self.config.name, kind
                )

    async def check_addresses(self) -> None:
        """Wait until the endpoint has probed every address, or until `stop`."""
        await self._wait_for(self._readiness.checked, VERDICTS_S)

    async def _wait_for(self, event: asyncio.Event, timeout_s: float) -> None:
        """Wait for `event`, or until `stop`."""
        waits = {asyncio.create_task(e.wait()) for e in (event, self._stop)}
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def summary(self) -> str:
        addresses = [str(entry["address"]) for entry in self.endpoint.show()["addresses"]]
        return (
            f"{self.config.name}: up, hwaddr {self.endpoint.hwaddr}, mtu {self.endpoint.mtu},"
            f" addresses {' '.join(addresses) or 'none'}"
        )

    @property
    def is_here(self) -> bool:
        """Return whether the interface is in the namespace of the process, to which it may come back."""
        return self._namespace.is_here

    # What changes while it runs

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def current_name(self) -> str:
        """The name that the kernel has for it now."""
        return self._name

    def follow_parent(self, name: str) -> None:
        """The parent has another name now."""
        self._control.parent = name

    @property
    def parts(self) -> Mapping[str, object]:
        """What the options change, by the first word of `Change.call`."""
        return {
            "endpoint": self.endpoint,
            "interface": self,
            "proxies": self._proxies,
            "log": LogLevel(),
        }

    @property
    def mtu(self) -> int:
        """Return the MTU of the kernel's interface."""
        link = self._link
        return link.mtu_bytes if link is not None else self.endpoint.mtu

    def set_mtu(self, mtu_bytes: int | None) -> None:
        """Give the kernel's interface this MTU, or that of the link."""
        if mtu_bytes is None:
            mtu_bytes = self._interface.spec.mtu_bytes
        self._interface.set_mtu(mtu_bytes)
        if self._link is not None:  # the kernel's notice comes later
            self._link = replace(self._link, mtu_bytes=mtu_bytes)

    def set_addresses(self, addresses: Sequence[IpInterface]) -> str:
        """Replace the addresses of the configuration; return how they differ."""
        before = self._interface.spec
        self._change(replace(before, addresses=tuple(addresses)))
        return difference(before.addresses, addresses)

    def set_routes(self, routes: Sequence[RouteSpec]) -> str:
        """Replace the routes of the configuration; return how they differ."""
        before = self._interface.spec
        self._change(replace(before, routes=tuple(routes)))
        return difference(before.routes, routes)

    def _change(self, spec: InterfaceSpec) -> None:
        if not self.is_here:
            raise LinkError("the interface has moved to another network namespace")
        self._interface.change(spec)
        self._succession.note_changed()

    def _kernel_proxies(self) -> set[IpAddress]:
        return self._side.kernel_proxies()

    def _note_proxies(self) -> None:
        self._side.note_proxies()

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
        if self._is_closed:
            return
        if duplicate:
            self._duplicates.note_lost(address, self._interface)
        elif self._duplicates.won(address):
            self._interface.keep(address)
        self._succession.note_judged(address, duplicate)
        self._readiness.note_judged(address, is_duplicate=duplicate)

    def _note_mtu(self, mtu_bytes: int) -> None:
        if self._link is None or self._is_closed:
            return  # `configure` comes later, and uses this MTU
        try:
            self._interface.follow_mtu(mtu_bytes, self._link)
        except NoSuchDevice:
            pass  # it is moving: `_follow_to` sets this MTU
        except IpoibuError as error:
            self._fail(str(error))

    def _note_lease(self, lease: Lease | None) -> None:
        self._succession.note_lease(4, lease)
        if not self._is_closed:
            self._leases.note_lease(lease)

    def _note_lease6(self, lease: Lease6 | None) -> None:
        self._succession.note_lease(6, lease)
        if not self._is_closed:
            self._leases.changed6(lease)

    def _note_link(self, is_up: bool, speed_mbps: int | None) -> None:
        if self._is_closed:
            return  # the next process goes on with the carrier
        self._is_link_up = is_up
        if is_up:
            self._readiness.note_link_up()
        if is_up and self._link is not None:
            self._succession.note_changed()  # the queue pair may be another one
        name = self.config.name
        if is_up and self._link is not None:
            self._duplicates.retry_all(self._interface)
        try:
            if is_up:
                with self._namespace.inet_socket() as control:
                    set_speed(control, self._name, speed_mbps)
        except (
            OSError,
            IpoibuError,
        ) as error:  # an old kernel, or the owner of a TUN without a capability
            _log.info("%s: the kernel does not show the speed of the port: %s", name, error)
        try:
            self._tun.set_carrier(is_up)
        except OSError as error:  # an old kernel; the link works without
            _log.info("%s: the kernel does not show the state of the port: %s", name, error)

    def _follow(self, link: Link | None) -> None:
        if link is None:
            self._move_soon()
            return
        if link.name != self._name:
            self._note_renamed(link.name)
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
        if link.master != before.master or (link.up and not before.up):
            self.endpoint.rewired()
            self.on_rewired()
        # While the interface is down, or its MTU below 1280, it has no IPv6 addresses and loses routes.
        # The kernel sets it down and up when it enters or leaves a VRF.
        was_down = not before.carries_ipv6 or (link.was_down and link.up)
        if not was_down and link.carries_ipv6:
            self._interface.note_mode(link)
        if was_down and link.carries_ipv6:
            _log.warning("%s: the interface is up again", link.name)
        if (was_down or link.master != before.master) and link.carries_ipv6:
            self._interface.restore()

    # Another network namespace, another name

    def _cannot_follow(self, reason: str) -> None:
        """A request to the kernel failed, as it does when the interface has just left the namespace."""
        if self._namespace.is_here:
            self._fail(reason)
        else:
            self._move_soon(reason)

    def _move_soon(self, reason: str | None = None) -> None:
        self._loop.call_soon(self._move, self._side, reason)

    def _move(self, left: KernelSide, reason: str | None = None) -> None:
        """Follow the interface from `left` to the namespace where it is now; it ends if the interface is
        gone, or with `reason` if it has not moved."""
        if self._failed or self._is_closed or left is not self._side:
            return
        try:
            namespace = self._locate()
            if reason is not None and namespace.inode() == self._namespace.inode():
                raise LinkError(reason)
            self._follow_to(namespace)
        except NoSuchDevice:
            # The interface moves or changes its name meanwhile; `_locate` fails if it is gone.
            self._loop.call_later(MOVE_RETRY_S, self._move, self._side)
        except (IpoibuError, OSError) as error:
            self._fail(str(error))

    def _current_name(self) -> str:
        try:
            return self._tun.current_name()
        except OSError as error:
            raise LinkError("the interface is gone: another program removed it") from error

    def _locate(self) -> Namespace:
        self._current_name()
        if self._helper is None:
            raise NotPermitted(
                "the interface moved to another network namespace: to follow it there, `ipoibu up`"
                " needs CAP_SYS_ADMIN and CAP_NET_BROADCAST at its start, and Linux 5.2"
                " (docs/use/software.md)"
            )
        return self._helper.locate(self._tun.fd)

    def _follow_to(self, namespace: Namespace) -> None:
        """Begin anew in `namespace`: the kernel has set the interface down, without addresses and routes."""
        self._side.close()
        self._side.withdraw()
        self._duplicates.close()
        self._namespace = namespace
        name = self._current_name()
        spec = replace(self._interface.spec, name=name, addresses=(), routes=())
        self._side = self._make_side(spec)
        self._link = self._side.start()
        if self._link is None:
            raise NoSuchDevice(name)
        self._leases.begin(self._interface)
        self._name = name
        self._succession.follow(self._interface)
        _log.warning("%s: moved to another network namespace, as %s", self.config.name, name)
        self._control.move(name, namespace)
        if self._link.carries_ipv6:  # another program has set it up already
            self._interface.restore()

    def _note_renamed(self, name: str) -> None:
        _log.warning("%s: its name is %s now", self._name, name)
        self._name = name
        self._interface.spec = replace(self._interface.spec, name=name)
        self._control.move(name, self._namespace)
        self.on_renamed(name)
