# SPDX-License-Identifier: BSD-2-Clause
"""The run loop of one interface: TUN, endpoint, mirror and control socket, from start to clean end.

Order of start: TUN (its name is the lock on the interface), endpoint, kernel configuration, mirror,
control socket; the end runs backwards. The TUN is closed last and takes the interface with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, Protocol

from ipoibu.addr import HwAddr, IpAddress
from ipoibu.daemon.config import InterfaceConfig
from ipoibu.daemon.control import ControlServer, Observed
from ipoibu.daemon.notify import notify
from ipoibu.errors import IpoibuError, LinkError
from ipoibu.fabric.base import PortInfo
from ipoibu.host.interface import Interface, InterfaceSpec
from ipoibu.host.mirror import Mirror, Stack
from ipoibu.host.netlink import Link, Netlink
from ipoibu.host.tun import Tun
from ipoibu.limits import DAD_TRANSMITS, IPV6_MIN_MTU, RETRANS_TIMER_S

# How long to wait for the verdicts on the first addresses: the probes, and as much again for
# delays.
VERDICTS_S: Final = 2 * (DAD_TRANSMITS * RETRANS_TIMER_S + 1.0)

P = ParamSpec("P")

_log = logging.getLogger(__name__)


class RunnableEndpoint(Stack, Observed, Protocol):
    """What the daemon needs of `ipoibu.endpoint.Endpoint`."""

    @property
    def port(self) -> PortInfo: ...
    @property
    def hwaddr(self) -> HwAddr: ...
    @property
    def mtu(self) -> int: ...
    def open(self) -> None: ...
    def close(self) -> None: ...


OnAddress = Callable[[IpAddress, bool], None]
OnFailure = Callable[[str], None]
MakeEndpoint = Callable[[InterfaceConfig, Tun, OnAddress, OnFailure], RunnableEndpoint]


def real_endpoint(
    config: InterfaceConfig, tun: Tun, on_address: OnAddress, on_failure: OnFailure
) -> RunnableEndpoint:
    """The endpoint over the TUN device; imports the native extension."""
    from ipoibu._core import TunDevice
    from ipoibu.endpoint import Endpoint, EndpointConfig

    device, port = config.device
    endpoint_config = EndpointConfig(
        name=config.name,
        device=device,
        port=port,
        pkey=config.pkey,
        mtu=config.mtu,
        faults=config.faults,
    )
    return Endpoint(
        endpoint_config,
        device=TunDevice(tun.fd, tun.offload),
        on_address=on_address,
        on_failure=on_failure,
    )


class Daemon:
    """One interface in the foreground. `run` returns after SIGINT or SIGTERM, or raises why it
    ended.

    `announce` gets the one line that says the interface is up.
    """

    def __init__(
        self,
        config: InterfaceConfig,
        *,
        make_endpoint: MakeEndpoint = real_endpoint,
        announce: Callable[[str], None] = print,
    ) -> None:
        self._config = config
        self._make_endpoint = make_endpoint
        self._announce = announce
        self._failure: str | None = None
        self._pending: set[IpAddress] = set()  # IPv6 addresses still being probed
        self._link: Link | None = None
        self._resume: asyncio.TimerHandle | None = None

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._verdicts = asyncio.Event()
        self._loop.set_exception_handler(self._defect)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._stop.set)
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            if not self._stop.is_set():
                self._announce(self._summary())
                notify("READY=1\nSTATUS=up")
                await self._stop.wait()
            notify("STOPPING=1")
        if self._failure is not None:
            raise LinkError(f"{self._config.name}: {self._failure}")

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        config = self._config
        executor = stack.enter_context(ThreadPoolExecutor(2, "control"))
        tun = stack.enter_context(Tun.open(config.name, super_frames=config.offload))
        self._endpoint = self._make_endpoint(
            config, tun, self._threadsafe(self._verdict), self._threadsafe(self._fail)
        )
        stack.callback(self._endpoint.close)
        await self._loop.run_in_executor(executor, self._endpoint.open)
        netlink = stack.enter_context(Netlink())
        self._interface = Interface(self._spec(), netlink)
        self._interface.spec.check()
        self._mirror = Mirror(self._interface.index, self._endpoint, netlink)
        stack.callback(self._mirror.close)
        self._interface.configure()
        self._pending = {a.ip for a in netlink.addresses(self._interface.index) if a.version == 6}
        self._link = self._mirror.refresh()
        self._watch()
        stack.callback(self._unwatch)
        control = ControlServer(config.name, self._endpoint, executor)
        stack.push_async_callback(control.close)
        await control.start()
        await self._addresses_checked()

    def _spec(self) -> InterfaceSpec:
        return InterfaceSpec(
            name=self._config.name,
            mtu_bytes=self._endpoint.mtu,
            guid=self._endpoint.port.guid,
            addresses=self._config.address,
            routes=self._config.route,
        )

    def _summary(self) -> str:
        held = [str(entry["address"]) for entry in self._endpoint.show()["addresses"]]
        return (
            f"{self._config.name}: up, hwaddr {self._endpoint.hwaddr}, mtu {self._endpoint.mtu},"
            f" addresses {' '.join(held) or 'none'}"
        )

    # What happens while it runs; all of it on the event loop's thread

    def _threadsafe(self, call: Callable[P, None]) -> Callable[P, None]:
        def post(*args: P.args, **kwargs: P.kwargs) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody to tell
                self._loop.call_soon_threadsafe(functools.partial(call, *args, **kwargs))

        return post

    def _defect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An exception that nobody caught: one line, whereas asyncio would print a traceback."""
        error = context.get("exception")
        text = f"{type(error).__name__}: {error}" if error else context["message"]
        _log.error("%s: internal error: %s", self._config.name, text, exc_info=_traceback(error))

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        self._stop.set()

    def _verdict(self, address: IpAddress, duplicate: bool) -> None:
        if duplicate:
            _log.error("%s: %s is another station's address: removed", self._config.name, address)
            try:
                self._interface.drop(address)
            except IpoibuError as error:
                _log.error("%s: %s", self._config.name, error)
        self._pending.discard(address)
        if not self._pending:
            self._verdicts.set()

    async def _addresses_checked(self) -> None:
        """Up means usable: wait until no IPv6 address is being probed any more, or we are to
        stop."""
        if not self._pending:
            return
        waits = {asyncio.create_task(e.wait()) for e in (self._verdicts, self._stop)}
        await asyncio.wait(waits, timeout=VERDICTS_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _look(self) -> None:
        try:
            if not self._mirror.changed():
                return
            began = time.monotonic()
            link = self._mirror.refresh()
            took_s = time.monotonic() - began
        except (IpoibuError, OSError) as error:
            self._fail(str(error))
            return
        if link is None:
            self._fail("the interface was removed by someone else")
            return
        self._follow(link)
        # Listing a large table takes long: spend at most half of the time on it.
        self._unwatch()
        self._resume = self._loop.call_later(took_s, self._watch)

    def _unwatch(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._mirror.fileno())

    def _watch(self) -> None:
        self._loop.add_reader(self._mirror.fileno(), self._look)

    def _follow(self, link: Link) -> None:
        before, self._link = self._link, link
        if before is None:
            return
        if before.up and not link.up:
            _log.warning("%s: set down by someone else: no traffic", link.name)
        try:
            self._interface.hold_mtu(link)
        except IpoibuError as error:
            _log.error("%s: %s", link.name, error)
        # Going down, or below 1280 bytes, costs the interface its IPv6 addresses and some routes.
        if _whole(link) and not _whole(before):
            _log.warning("%s: up again", link.name)
            self._interface.restore()


def _traceback(error: BaseException | None) -> BaseException | None:
    return error if _log.isEnabledFor(logging.DEBUG) else None


def _whole(link: Link) -> bool:
    return link.up and link.mtu_bytes >= IPV6_MIN_MTU
