# SPDX-License-Identifier: BSD-2-Clause
"""The life of an endpoint: it opens its device, runs the engine on a thread, and closes both."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ipoibu import _core
from ipoibu.base.closing import Closing
from ipoibu.base.errors import Closed, NoSuchDevice, NotReady, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import OPEN_RETRY_S
from ipoibu.endpoint.api.arguments import seconds_of
from ipoibu.endpoint.api.inbox import Inbox
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.datapath.datapath import DataPath, HostDevice, PacketDevice, Pump
from ipoibu.endpoint.handover import Handover
from ipoibu.endpoint.interface.interface import Interface
from ipoibu.endpoint.interface.port_follower import PortFollower
from ipoibu.endpoint.interface.shell import Shell
from ipoibu.endpoint.subnet.ports import Ports, SinglePort
from ipoibu.fabric.base import Port
from ipoibu.fabric.device import open_port
from ipoibu.fabric.link import leave_link
from ipoibu.fabric.loop_thread import LoopThread, submit
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.proto.engine import Engine

if TYPE_CHECKING:
    from ipoibu.endpoint.rails.rails import Rails

_Result = TypeVar("_Result")

Follow = Callable[[Interface], PortFollower]

SETTLE_S: Final = 1.0  # how long cancelled tasks may take to end


class Life(Closing):
    """The part of `Endpoint` that opens and closes, and calls the engine's thread."""

    def __init__(
        self,
        config: EndpointConfig,
        *,
        device: HostDevice | None = None,
        port: Port | None = None,
        callbacks: Callbacks | None = None,
        kept: Handover | None = None,
    ) -> None:
        self.config = config
        self._queue = _core.QueueDevice() if device is None else None
        self._device: PacketDevice = device or self._queue  # type: ignore[assignment]
        if port is not None and config.backups:
            raise UsageError(f"{config.name}: a lent port has no backups")
        self._take_port: Callable[[Handover], SharedPort] = lambda kept: _take(config, port, kept)
        self._parent_rails: Callable[[], Rails] | None = None  # those of a child's parent
        self._kept = kept or Handover()
        self._callbacks = callbacks or Callbacks()
        self._interface: Interface | None = None
        self._thread: LoopThread | None = None
        # Guards opening, closing, and the hand-over of a call to the engine's thread.
        self._life = threading.RLock()
        self._inbox = Inbox()

    @property
    def is_open(self) -> bool:
        return self._interface is not None

    def open(self, wait_s: float = 0.0) -> None:
        """Open the device and start; return when the link's set-up has begun.

        Wait up to `wait_s` seconds for a device that does not exist yet, is down, or whose address is not
        usable yet, as just after `ip link set up`; then raise `NoSuchDevice` or `NotReady`.
        """
        deadline = time.monotonic() + (seconds_of(wait_s, "wait_s") or 0.0)
        while True:
            try:
                self._open()
            except (NotReady, NoSuchDevice):
                if time.monotonic() >= deadline:
                    raise
                time.sleep(OPEN_RETRY_S)
            else:
                return

    def _open(self) -> None:
        self._check_thread()
        with self._life:
            if self._interface is not None:
                raise UsageError(f"{self.config.name}: the endpoint is open already")
            ports, follow = self._open_ports()
            try:
                self._set_up(ports, follow)
            except BaseException:
                ports.close()
                raise

    def _open_ports(self) -> tuple[Ports, Follow]:
        """Open the device, or every one of several, and choose what follows them."""
        if not self.config.backups:
            return SinglePort(self.config, self._take_port(self._kept)), lambda it: PortFollower()
        from ipoibu.endpoint.interface.rail_follower import RailFollower  # few have several
        from ipoibu.endpoint.rails.rails import Rails

        parent = self._parent_rails() if self._parent_rails is not None else None
        rails = Rails.open(self.config, self._kept.port, parent)
        return rails, lambda it: RailFollower(it, rails)

    def _shared_port(self) -> SharedPort:
        return self._opened().port.share()

    def _shared_rails(self) -> Rails:
        from ipoibu.endpoint.rails.rails import Rails

        rails = self._opened().ports
        assert isinstance(rails, Rails), "the endpoint has several devices"
        return rails

    def _set_up(self, ports: Ports, follow: Follow) -> None:
        params = ports.first_link()
        port = ports.port
        try:
            self._start(port, params, ports, follow)
        except BaseException:
            leave_link(port, self.config.pkey)
            raise

    def _start(
        self, port: SharedPort, params: PartitionParams, ports: Ports, follow: Follow
    ) -> None:
        thread = LoopThread(f"ipoibu-{self.config.name}")
        try:
            path = DataPath.open(self.config, port, self._device, params, ports)
            interface = Interface(path, thread.loop, self._callbacks, ports, follow)
        except BaseException:
            thread.loop.close()
            raise
        self._thread, self._interface = thread, interface
        thread.start()
        try:
            self._call(interface.start, self._kept)
            self._kept = Handover()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the groups, stop both threads, and release all resources. Safe to repeat."""
        self._check_thread()
        with self._life:
            interface, thread = self._interface, self._thread
            if interface is None or thread is None:
                return
            try:
                clients = (self.config.dhcp, self.config.dhcp6)
                if any(it is not None and it.is_released for it in clients):
                    submit(thread.loop, interface.release).result()
                self._call(interface.stop)
                submit(thread.loop, _settled).result()
            finally:
                self._interface = None
                thread.stop()
                self._thread = None
                interface.close()
                if self._queue is not None:
                    self._queue.detach()
                interface.close_ports()

    def __enter__(self) -> Self:  # a failure leaves an endpoint that was open already open
        self.open()
        return self

    async def __aenter__(self) -> Self:
        opening = asyncio.ensure_future(asyncio.to_thread(self.open))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:  # the thread goes on: wait, and close the endpoint
            await asyncio.wait([opening])
            if opening.exception() is None:
                await asyncio.to_thread(self.close)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _call(self, function: Callable[..., _Result], *args: Any) -> _Result:
        """Run `function` on the engine's thread and wait for its result."""
        if self._is_on_thread():
            self._opened()
            return function(*args)

        async def run() -> _Result:
            return function(*args)

        with self._life:  # the loop first runs the calls that came before `close`
            loop = self._opened().loop
            future = submit(loop, run)
        return future.result()

    def _opened(self) -> Interface:
        """Return the interface; `Closed` if there is none."""
        interface = self._interface
        if interface is None:
            raise Closed(f"{self.config.name}: the endpoint is not open")
        return interface

    def _is_on_thread(self) -> bool:
        return self._thread is not None and self._thread.is_current

    def _check_thread(self) -> None:
        """Refuse a call on the engine's thread, which would wait for its own end."""
        if self._is_on_thread():
            raise UsageError(f"{self.config.name}: not from a callback, which must not block")

    @property
    def _engine(self) -> Engine:
        return self._opened().engine

    @property
    def _shell(self) -> Shell:
        return self._opened().shell

    @property
    def _pump(self) -> Pump:
        return self._opened().path.pump


async def _settled() -> None:
    """Wait until the cancelled tasks have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=SETTLE_S)


def _take(config: EndpointConfig, lent: Port | None, kept: Handover) -> SharedPort:
    port = lent or open_port(config.device, config.port, kept.port, config.mesh)
    return SharedPort.wrap(port, lent=lent is not None)
