# SPDX-License-Identifier: BSD-2-Clause
"""The daemon: one interface and its children, in the foreground, from start to clean end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotReady
from ipoibu.base.exhaustion import EXHAUSTION
from ipoibu.base.limits import NAMESPACE_LOOK_S
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.control.server import Action
from ipoibu.daemon.handover.keeper import Keeper
from ipoibu.daemon.interface.children import Children
from ipoibu.daemon.interface.contract import HostedContract
from ipoibu.daemon.interface.hosted_interface import HostedInterface, MakeEndpoint
from ipoibu.daemon.interface.reloader import Reloader
from ipoibu.daemon.metrics.metrics import Observation, observe
from ipoibu.daemon.process.descriptors import SHORTAGE, raise_limit
from ipoibu.daemon.process.notify import notify
from ipoibu.daemon.process.terminal import Terminal
from ipoibu.daemon.process.watchdog import Watchdog
from ipoibu.endpoint.callbacks import Callbacks, OnFailure
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.endpoint.handover import Handover
from ipoibu.fabric.loop_thread import Loop
from ipoibu.host.cpu_latency import bounded_cpu_latency
from ipoibu.host.namespace_helper import NamespaceHelper
from ipoibu.host.netns import NetworkNamespace
from ipoibu.host.tun import Tun

if TYPE_CHECKING:
    from ipoibu._core import TapDevice, TunPacketDevice
    from ipoibu.daemon.metrics.metrics_server import MetricsServer
    from ipoibu.endpoint.api.endpoint import Endpoint

EXHAUSTED: Final = "there is no more memory: raise the limit (`ulimit -v`, MemoryMax= of systemd)"

_log = logging.getLogger(__name__)


def real_endpoint(
    config: InterfaceConfig,
    tun: Tun,
    callbacks: Callbacks,
    kept: Handover | None = None,
    device: TunPacketDevice | None = None,
) -> Endpoint:
    """The endpoint over the TUN device; this imports the C core."""
    from ipoibu.endpoint.api.endpoint import Endpoint

    device = device or _device(tun)
    return Endpoint(config.endpoint, device=device, kept=kept, callbacks=callbacks)


def _device(tun: Tun) -> TunPacketDevice:
    from ipoibu._core import TapDevice, TunDevice, TunRing

    if tun.is_tap:
        return TapDevice(tun.fd, tun.offload)
    try:
        return TunRing(tun.fd, tun.offload, tun.more, tun.owned)
    except OSError as error:
        _log.info(
            "%s: the pump makes a system call for each packet of the TUN, as io_uring failed: %s",
            tun.name,
            error,
        )
        return TunDevice(tun.fd, tun.offload, tun.more, tun.owned)


def _join(device: TunPacketDevice, trunk: TunPacketDevice, vlan: int) -> TapDevice:
    """Make a child's TAP a VLAN of its parent's; return it."""
    from ipoibu._core import TapDevice

    assert isinstance(device, TapDevice)
    assert isinstance(trunk, TapDevice)
    device.join(trunk, vlan)
    return device


class Daemon:
    """One interface in the foreground.

    `run` returns after SIGINT, SIGTERM or the end of its terminal, and raises `LinkError` if the interface
    failed. Another SIGHUP reloads the file, if there is one. It calls `announce` with one line when the
    interface is up. Before it starts any thread it calls `confine`, which gives up what the process does
    not need. `executor` has the threads that open endpoints, at least two. `namespace` is the namespace
    that the calling thread has entered: when its name, file or process is gone, the interface ends. With a
    `helper` the daemon follows the interface and its children into other network namespaces.
    """

    def __init__(
        self,
        config: InterfaceConfig,
        *,
        announce: Callable[[str], None] = print,
        confine: Callable[[InterfaceConfig], None] = lambda config: None,
        executor: ThreadPoolExecutor | None = None,
        namespace: NetworkNamespace | None = None,
        helper: NamespaceHelper | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self._helper = helper
        self._keeper = keeper or Keeper()
        self._config = config
        self._namespace = namespace
        self._given = executor
        self._announce = announce
        self._confine = confine
        self._failure: str | None = None
        self._endpoint: Endpoint | None = None
        self._vlans: dict[int | None, TapDevice] = {}
        self._metrics: MetricsServer | None = None
        self._reloader: Reloader | None = None  # while the interface is up

    def run(self) -> None:
        raise_limit()
        self._terminal = Terminal()
        with contextlib.ExitStack() as stack:
            stack.callback(self._terminal.close)
            if self._config.cpu_latency is not None:  # only root may open this device
                stack.enter_context(bounded_cpu_latency(self._config.cpu_latency))
            if self._config.metrics is not None:  # the sandbox permits no later listen(2)
                from ipoibu.daemon.metrics.metrics_server import MetricsServer  # loads a web server

                self._metrics = MetricsServer(self._config.metrics)
                stack.callback(self._metrics.close)
            self._confine(self._config)
            runner = stack.enter_context(asyncio.Runner(loop_factory=Loop))
            stack.enter_context(self._prepared(runner.get_loop()))
            runner.run(self._main())

    @contextlib.contextmanager
    def _prepared(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """End in order when there is no more memory, on whichever thread."""

        def died(arguments: threading.ExceptHookArgs) -> None:
            if not EXHAUSTION.is_one(arguments.exc_value):
                threading.__excepthook__(arguments)

        def ignored(arguments: sys.UnraisableHookArgs) -> None:
            if not EXHAUSTION.is_one(arguments.exc_value):
                sys.__unraisablehook__(arguments)

        def end() -> None:
            loop.call_soon_threadsafe(self._fail, EXHAUSTED)

        line = f"ipoibu: {self._config.name}: {EXHAUSTED}"
        EXHAUSTION.prepare(end, line)
        threading.excepthook, sys.unraisablehook = died, ignored
        try:
            yield
        except MemoryError as error:
            EXHAUSTION.is_one(error)
            raise LinkError(f"{self._config.name}: {EXHAUSTED}") from error
        finally:
            EXHAUSTION.forget()
            threading.excepthook, sys.unraisablehook = (
                threading.__excepthook__,
                sys.__unraisablehook__,
            )

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        loop.set_exception_handler(self._defect)
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._stop.set)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        for number in (signal.SIGUSR1, signal.SIGUSR2):  # by default they end a process
            loop.add_signal_handler(number, self._ignore, signal.Signals(number).name)
        async with contextlib.AsyncExitStack() as stack:
            self._executor = self._given or stack.enter_context(ThreadPoolExecutor(2, "control"))
            children = Children(self._config, self._child)
            actions = {**children.actions, "down": self._down}
            interface = self._interface(self._config, self._parent_endpoint, self._fail, actions)
            interface.on_renamed = children.rename
            interface.on_rewired = lambda: _rewire(children.running)
            children.mode = lambda: interface.endpoint.mode
            reloader = Reloader(interface, children, self._executor)
            actions |= reloader.actions
            try:
                await interface.start()
            except (NotReady, NoSuchDevice):
                if self._stop.is_set():  # while the interface waited for its device
                    return
                raise
            except MemoryError as error:
                EXHAUSTION.is_one(error)  # the end needs the reserve
                raise
            stack.push_async_callback(interface.close)
            stack.push_async_callback(children.close)
            if self._metrics is not None:
                self._metrics.start(lambda: _observations([interface, *children.running]))
                stack.callback(self._metrics.close)
            summaries, _ = await asyncio.gather(children.start(), interface.settle())
            self._keeper.forget_rest()
            if not self._stop.is_set():
                for summary in (interface.summary(), *summaries):
                    self._announce(summary)
                notify("READY=1\nSTATUS=up, checks its addresses")
                self._reloader = reloader
                checks = asyncio.create_task(self._report_verdicts(interface))
                stack.callback(checks.cancel)
                watchdog = Watchdog.of_service(
                    lambda: [
                        (it.name, it.endpoint.aprogress) for it in (interface, *children.running)
                    ]
                )
                async with watchdog or contextlib.nullcontext():
                    await self._note_stopped(interface)
            notify("STOPPING=1")
        if self._failure is not None:
            raise LinkError(f"{self._config.name}: {self._failure}")

    async def _report_verdicts(self, interface: HostedInterface) -> None:
        """Tell the service manager when detection has ended for all addresses."""
        await interface.check_addresses()
        if not self._stop.is_set():
            notify("STATUS=up")

    async def _down(self, request: Mapping[str, Any]) -> object:
        """End, as after SIGTERM."""
        self._stop.set()
        return None

    def _hang_up(self) -> None:
        """SIGHUP: end with the terminal, or reload the file."""
        name, file = self._config.name, self._config.file
        if self._terminal.has_ended:
            self._stop.set()
        elif file is None:
            _log.warning("%s: SIGHUP: there is no configuration file to reload (--config)", name)
        elif self._reloader is None:
            _log.warning("%s: SIGHUP: not before the interface is up", name)
        else:
            _log.warning("%s: SIGHUP: reloads %s", name, file)
            self._reload = asyncio.ensure_future(self._note_reloaded(self._reloader))

    async def _note_reloaded(self, reloader: Reloader) -> None:
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        with contextlib.suppress(IpoibuError):  # the log has it
            await reloader.reload()
        notify("READY=1")

    async def _note_stopped(self, interface: HostedInterface) -> None:
        """Return when the interface has to end."""
        namespace = self._namespace
        look_s = None if namespace is None else NAMESPACE_LOOK_S
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(look_s):
                    await self._stop.wait()
            if namespace is not None and interface.is_here and namespace.is_gone():
                self._fail(f"the network namespace {namespace.text} is gone")

    def _interface(
        self,
        config: InterfaceConfig,
        make_endpoint: MakeEndpoint,
        on_failure: OnFailure,
        actions: Mapping[str, Action],
    ) -> HostedInterface:
        return HostedInterface(
            config,
            make_endpoint,
            self._executor,
            stop=self._stop,
            on_failure=on_failure,
            actions=actions,
            helper=self._helper,
            keeper=self._keeper,
        )

    def _child(
        self, config: InterfaceConfig, on_failure: OnFailure, actions: Mapping[str, Action]
    ) -> HostedInterface:
        child = self._interface(config, self._child_endpoint, on_failure, actions)
        if config.tap_vlan is not None:
            child.on_closed = lambda: self._leave(config.tap_vlan)
        return child

    def _leave(self, vlan: int | None) -> None:
        """The child that had the VLAN has ended: its frames are those of no partition."""
        device = self._vlans.pop(vlan, None)
        if device is not None:
            device.leave()

    def _parent_endpoint(
        self, config: InterfaceConfig, tun: Tun, callbacks: Callbacks, kept: Handover
    ) -> EndpointContract:
        kept = replace(kept, port=self._keeper.port())
        self._device = _device(tun)
        self._endpoint = real_endpoint(config, tun, callbacks, kept, self._device)
        return self._endpoint

    def _child_endpoint(
        self, config: InterfaceConfig, tun: Tun, callbacks: Callbacks, kept: Handover
    ) -> EndpointContract:
        assert self._endpoint is not None  # the request came through its control socket
        device = _device(tun)
        if config.tap_vlan is not None:
            self._vlans[config.tap_vlan] = _join(device, self._device, config.tap_vlan)
        return self._endpoint.share_port(
            config.endpoint, device=device, kept=kept, callbacks=callbacks
        )

    def _defect(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an uncaught exception in one line; asyncio would print a traceback."""
        error = context.get("exception")
        if SHORTAGE.is_one(error):  # of `accept`, which asyncio tries again a second later
            return
        text = f"{type(error).__name__}: {error}" if error else context["message"]
        _log.error("%s: internal error: %s", self._config.name, text, exc_info=_traceback(error))

    def _ignore(self, name: str) -> None:
        _log.warning(
            "%s: %s has no meaning here; `ipoibu show` shows the state", self._config.name, name
        )

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        self._stop.set()


def _rewire(children: Iterable[HostedContract]) -> None:
    """The trunk has other guests, in the VLANs, too."""
    for child in children:
        if child.config.tap_vlan is not None:
            child.endpoint.rewired()


def _observations(interfaces: Iterable[HostedContract]) -> Iterator[Observation]:
    for interface in interfaces:
        with contextlib.suppress(IpoibuError):  # a child that ends meanwhile
            yield {**observe(interface.endpoint), "mtu": interface.mtu}


def _traceback(error: BaseException | None) -> BaseException | None:
    return error if _log.isEnabledFor(logging.DEBUG) else None
