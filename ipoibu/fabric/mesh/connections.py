# SPDX-License-Identifier: BSD-2-Clause
"""The connections of a mesh: carries out the effects of `proto.mesh` by librdmacm and pyverbs.

    dial:    address, route, queue pair, its receives (READY), connect, ESTABLISHED
    accept:  CONNECT_REQUEST, queue pair, its receives (READY), accept, ESTABLISHED
    part:    the core releases the queue pair (GONE); we destroy it, and the core forgets it

On iWARP the receives are posted before the connection exists, because the peer may send at once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.addr import Qpn
from ipoibu.base.errors import IpoibuError, LinkError
from ipoibu.base.ib import PortInfo
from ipoibu.base.limits import CM_ROUND, MESH_PEERS_MAX, RDMACM_RESOLVE_S
from ipoibu.fabric.cm.librdmacm import CmEvent, CmEventType, CmId, EventChannel, SocketAddress
from ipoibu.fabric.mesh.mesh_worker import MeshWorker
from ipoibu.fabric.verbs.native import native
from ipoibu.fabric.verbs.objects import VerbsDevice
from ipoibu.proto.mesh.effects import (
    Accept,
    Dial,
    Handle,
    Hangup,
    MeshEffect,
    Name,
    Refuse,
    SendControl,
)
from ipoibu.proto.mesh.mesh import MeshConfig
from ipoibu.wire.mesh import Locator

if TYPE_CHECKING:
    from ipoibu._verbs import VerbsMesh

_log = logging.getLogger(__name__)

_RESOLVE_MS: Final = round(RDMACM_RESOLVE_S * 1000)
_CORE_EVENTS_MAX: Final = 256  # events of the core in one round
_IGNORED: Final = (CmEventType.TIMEWAIT_EXIT, CmEventType.ADDR_CHANGE)


@dataclass(slots=True)
class _Wire:
    """One connection, or an attempt at one. `is_ours`: we sent the request.

    `is_dialing`: a thread is inside the kernel's connect call; meanwhile we do not touch the identifier.
    """

    handle: Handle
    id: CmId
    is_ours: bool
    is_introduced: bool = False
    qp: Any = None
    is_leaving: bool = False
    is_dialing: bool = False
    is_over: bool = False


class MeshConnections(MeshWorker):
    """Runs the mesh of an iWARP device."""

    def __init__(
        self,
        device: VerbsDevice,
        info: PortInfo,
        core: VerbsMesh,
        create: Callable[[], Any],
        config: MeshConfig,
    ) -> None:
        """Begin to listen, or raise `LinkError`."""
        super().__init__(core, config, info.netdev)
        self._device, self._info, self._core, self._create = device, info, core, create
        self._module = native()
        self._wires: dict[Handle, _Wire] = {}
        self._by_id: dict[CmId, _Wire] = {}
        self._channel = EventChannel()
        try:
            for any_address in (IPv4Address(0), IPv6Address(0)):  # rdma_cm knows no mapped ones
                listener = self._channel.create()
                listener.bind(SocketAddress(any_address, config.ours.port))
                listener.listen(MESH_PEERS_MAX)
        except BaseException as error:
            self._channel.close()
            if isinstance(error, OSError):
                raise LinkError(
                    f"{info.device}/{info.port}: port {config.ours.port} of RDMA-CM: {error.strerror}"
                ) from error
            raise
        self._start()

    # ---- the thread

    def _filenos(self) -> tuple[int, ...]:
        return self._channel.fileno(), self._core.event_fd

    def _serve(self) -> float | None:
        more = False
        for _ in range(CM_ROUND):
            event = self._channel.event()
            more = event is not None
            if event is None:
                break
            with self._guarded(f"{event.type.name} of the mesh"):
                self._event(event)
        for _ in range(_CORE_EVENTS_MAX):
            core_event = self._core.next_event()
            more |= core_event is not None
            if core_event is None:
                break
            with self._guarded("a message of the mesh"):
                self._core_event(*core_event)
        with self._guarded("a timer of the mesh"):
            self._effects.run_timer(time.monotonic())
        if more:
            return 0.0
        return self._effects.wait_ms(time.monotonic())

    def _disconnect_all(self) -> None:
        for wire in self._wires.values():
            if wire.qp is not None:
                self._device.fail(wire.qp)

    def _release(self) -> None:
        """Free everything. The pump has stopped, so that no GONE will come."""
        self._effects.stop()
        given_up = [wire for wire in self._wires.values() if wire.is_dialing]
        for wire in self._wires.values():
            if wire.is_dialing:
                continue
            wire.id.close()
            if wire.qp is not None:
                self._device.destroy(wire.qp)
        self._wires.clear()
        if given_up:  # the kernel ends these with the process
            place = self._info.device
            _log.info("%s: the mesh ends before %d connections are complete", place, len(given_up))
            return
        self._channel.close()

    # ---- events of the kernel

    def _event(self, event: CmEvent) -> None:
        if event.type is CmEventType.CONNECT_REQUEST:
            self._note_requested(event)
            return
        wire = self._by_id.get(event.id)
        if wire is None or wire.is_leaving or event.type in _IGNORED:
            return
        now = time.monotonic()
        match event.type:
            case CmEventType.ADDR_RESOLVED:
                self._try(wire, lambda: self._route(wire))
            case CmEventType.ROUTE_RESOLVED:
                self._try(wire, lambda: self._prepare(wire))
            case CmEventType.ESTABLISHED if wire.is_ours:
                self._effects.perform(self._mesh.note_opened(now, wire.handle, event.private))
            case CmEventType.ESTABLISHED:
                self._effects.perform(self._mesh.note_established(now, wire.handle))
            case _:
                _log.debug("mesh: %s (%d) of %d", event.type.name, event.status, wire.handle)
                self._lose(wire, event.private)

    def _note_requested(self, event: CmEvent) -> None:
        handle = self._mesh.new_handle()
        self._wires[handle] = self._by_id[event.id] = _Wire(handle, event.id, False)
        source = event.id.target.ip
        self._effects.perform(
            self._mesh.note_requested(time.monotonic(), handle, source, event.private)
        )

    def _route(self, wire: _Wire) -> None:
        if wire.id.device != self._device.name:
            raise LinkError(f"rdma_cm goes there by {wire.id.device}, not {self._device.name}")
        wire.id.resolve_route(_RESOLVE_MS)

    def _prepare(self, wire: _Wire) -> None:
        """Create a queue pair. The core posts its receives, and READY follows."""
        qp = self._create()
        try:
            self._device.raise_rc(qp, self._info.port, 0)
            self._core.add(wire.handle, qp, cmd_fd=self._device.cmd_fd)
        except BaseException:  # the core does not have the queue pair
            self._device.destroy(qp)
            raise
        wire.qp = qp

    def _try(self, wire: _Wire, act: Callable[[], None]) -> None:
        try:
            act()
        except (OSError, IpoibuError) as error:
            place = self._info.device
            _log.info("%s: connection %d of the mesh failed: %s", place, wire.handle, error)
            self._counts["mesh_failed"] += 1
            self._lose(wire)

    def _lose(self, wire: _Wire, private: bytes = b"") -> None:
        self._part(wire)
        self._effects.perform(self._mesh.note_ended(time.monotonic(), wire.handle, private))

    # ---- events of the core

    def _core_event(self, handle: Handle, kind: int, message: bytes) -> None:
        wire = self._wires.get(handle)
        module = self._module
        if wire is None:
            return
        if kind == module.MESH_GONE:
            self._destroy(wire)
        elif wire.is_leaving:
            return
        elif kind == module.MESH_READY:
            self._try(wire, lambda: self._ready(wire))
        elif kind == module.MESH_CONTROL:
            self._effects.perform(self._mesh.control(time.monotonic(), handle, message))
        elif kind == module.MESH_BROKEN:
            self._lose(wire)

    def _ready(self, wire: _Wire) -> None:
        if wire.is_ours:
            wire.is_dialing = True
            name = f"ipoibu-dial-{wire.handle}"
            threading.Thread(target=self._dialing, args=(wire,), name=name, daemon=True).start()
        else:
            qpn = Qpn(wire.qp.qp_num)
            wire.id.accept(qpn, self._greeting, rnr_retries=0, has_srq=False)

    def _dialing(self, wire: _Wire) -> None:
        """Connect on a thread: siw opens its TCP connection in the call, which may take minutes."""
        failure: OSError | None = None
        try:
            qpn = Qpn(wire.qp.qp_num)
            greeting = self._greeting_to(wire.is_introduced)
            wire.id.connect(qpn, greeting, retries=0, rnr_retries=0, has_srq=False)
        except OSError as error:
            failure = error
        with self._lock:
            wire.is_dialing = False
            if self._closing:
                return  # close() gave up on this connection
            if wire.is_over:
                self._destroy(wire)
            elif failure is not None and not wire.is_leaving:
                place = self._info.device
                _log.info("%s: connection %d of the mesh failed: %s", place, wire.handle, failure)
                self._counts["mesh_failed"] += 1
                self._lose(wire)
            self._wake()

    # ---- effects

    def _carry_out(self, effect: MeshEffect) -> None:
        core = self._core
        match effect:
            case Dial(handle, locator, is_introduced):
                self._dial(handle, locator, is_introduced)
            case Accept(handle):
                wire = self._wires[handle]
                self._try(wire, lambda: self._prepare(wire))
            case Refuse(handle):
                self._refuse(self._wires[handle])
            case Hangup(handle):
                self._part(self._wires[handle])
            case Name(handle, greeting, speaks_first):
                if self._is_known(handle):
                    peer = greeting.hwaddr
                    core.name(handle, peer.gid.raw, peer.qpn, greeting.window, speaks_first)
            case SendControl(handle, message):
                if self._is_known(handle):
                    core.send_control(handle, message)

    def _is_known(self, handle: Handle) -> bool:
        wire = self._wires.get(handle)
        return wire is not None and wire.qp is not None and not wire.is_leaving

    def _dial(self, handle: Handle, locator: Locator, is_introduced: bool) -> None:
        try:
            wire = _Wire(handle, self._channel.create(), True, is_introduced)
        except OSError as error:
            _log.warning(
                "%s: cannot connect to the peer at %s: %s", self._info.device, locator, error
            )
            self._effects.perform(self._mesh.note_ended(time.monotonic(), handle))
            return
        self._wires[handle] = self._by_id[wire.id] = wire
        self._try(wire, lambda: wire.id.resolve_address(self._target(locator), _RESOLVE_MS))

    def _target(self, locator: Locator) -> SocketAddress:
        return SocketAddress(locator.ip, locator.port, self._scope(locator))

    def _refuse(self, wire: _Wire) -> None:
        with contextlib.suppress(OSError):  # the peer is gone
            wire.id.reject(self._greeting)
        self._destroy(wire)

    def _part(self, wire: _Wire) -> None:
        """Begin to end the connection and ignore its events. GONE follows when the core has released it."""
        if wire.is_leaving:
            return
        wire.is_leaving = True
        if wire.qp is None:
            self._destroy(wire)
            return
        if not wire.is_dialing:  # a disconnect would wait for the connect call to end
            with contextlib.suppress(OSError):  # the connection is not established, or has ended
                wire.id.disconnect()
        self._device.fail(wire.qp)
        try:
            self._core.remove(wire.handle)
        except OSError:
            _log.exception(
                "%s: cannot remove connection %d of the mesh before the interface ends",
                self._info.device,
                wire.handle,
            )

    def _destroy(self, wire: _Wire) -> None:
        wire.is_over = True
        if wire.is_dialing:
            return
        self._wires.pop(wire.handle, None)
        self._by_id.pop(wire.id, None)
        wire.id.close()
        if wire.qp is not None:
            self._device.destroy(wire.qp)
            wire.qp = None
            # Out of memory: closing the interface frees the buffers.
            with contextlib.suppress(OSError):
                self._core.forget(wire.handle)
