# SPDX-License-Identifier: BSD-2-Clause
"""Connections by the kernel's rdma_cm, for a RoCE port of an RDMA device: the kernel owns its queue pair 1.

    ASKING     -> ADDR_RESOLVED, ROUTE_RESOLVED, CONNECT_RESPONSE ->  REPLIED  -> Confirm ->  ESTABLISHED
    REQUESTED  -> Accept ->  ACCEPTED  -> ESTABLISHED ->  ESTABLISHED

`proto.cm.rdma_cm_state` has the whole table. A failure that the kernel reports ends the connection, and so
does a peer that does not answer in time: packets then go by datagram, and the policy asks again later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from itertools import count
from typing import ClassVar, Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import LinkError
from ipoibu.base.limits import CM_ROUND, CONNECTIONS_PER_PORT_MAX, RDMACM_ANSWER_S, RDMACM_RESOLVE_S
from ipoibu.fabric.cm.librdmacm import (
    Address,
    CmEvent,
    CmEventType,
    CmId,
    EventChannel,
    SocketAddress,
)
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.effect_loop import wait_ms
from ipoibu.proto.cm.rdma_cm_state import MACHINE, Action, Input, State
from ipoibu.proto.machine.table import Machine
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.rc.events import (
    CAUSES,
    Accept,
    Cause,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Established,
    Handle,
    Reject,
    Replied,
    Request,
    Requested,
    Role,
)
from ipoibu.wire.cm_private import ServiceForm
from ipoibu.wire.cm_rdmacm import SERVICE_BASE, is_rdmacm

_log = logging.getLogger(__name__)

_PORT_MASK: Final = 0xFFFF
_RESOLVE_MS: Final = round(RDMACM_RESOLVE_S * 1000)
_INPUTS: Final = {
    CmEventType.ADDR_RESOLVED: Input.ADDR_RESOLVED,
    CmEventType.ROUTE_RESOLVED: Input.ROUTE_RESOLVED,
    CmEventType.CONNECT_RESPONSE: Input.CONNECT_RESPONSE,
    CmEventType.ESTABLISHED: Input.ESTABLISHED,
    CmEventType.REJECTED: Input.REJECTED,
    CmEventType.ADDR_ERROR: Input.UNREACHABLE,
    CmEventType.ROUTE_ERROR: Input.UNREACHABLE,
    CmEventType.UNREACHABLE: Input.UNREACHABLE,
    CmEventType.CONNECT_ERROR: Input.UNREACHABLE,
    CmEventType.DEVICE_REMOVAL: Input.UNREACHABLE,
    CmEventType.DISCONNECTED: Input.DISCONNECTED,
    CmEventType.TIMEWAIT_EXIT: Input.TIMEWAIT_EXIT,
}
"""Any other event is `Input.UNEXPECTED`."""

_CAUSES: Final = {
    CmEventType.ADDR_ERROR: Cause.ADDRESS,
    CmEventType.ROUTE_ERROR: Cause.ADDRESS,
    CmEventType.UNREACHABLE: Cause.NO_ANSWER,
    CmEventType.CONNECT_ERROR: Cause.NO_ANSWER,
    CmEventType.DISCONNECTED: Cause.DISCONNECTED,
    CmEventType.DEVICE_REMOVAL: Cause.BROKEN,
}

_REQUESTS: Final[dict[type[Request], Input]] = {
    Confirm: Input.CONFIRM,
    Accept: Input.ACCEPT,
    Reject: Input.REJECT,
    Disconnect: Input.DISCONNECT,
}


@dataclass(slots=True)
class _Connection:
    """One identifier of the kernel's, with the latest event about it and the latest request.

    `service_id` is the service that the peer asks for; `cause` and `reason` say why the connection ends.
    """

    handle: Handle
    id: CmId
    gid: Gid
    event: CmEvent | None = None
    request: Request | None = None
    service_id: int = 0
    state: State = MACHINE.initial
    cause: Cause = Cause.BROKEN
    reason: int = 0


@dataclass(frozen=True, slots=True)
class RcTimeouts:
    """Timeout and retries of packets on connections; the code n means 4.096 µs times 2 to the n (C11)."""

    ack_timeout: int
    retries: int
    rnr_retries: int


class RdmaCm(CmService):
    """A `CmService` for one port of one device.

    `address` returns the port's present address; rdma_cm has to find `device` behind that address.
    `LinkError` or `NotPermitted`: we cannot use rdma_cm.
    """

    forms: ClassVar[tuple[ServiceForm, ...]] = (ServiceForm.RDMACM,)

    def __init__(
        self, device: str, address: Callable[[], SocketAddress], timeouts: RcTimeouts
    ) -> None:
        super().__init__()
        self._device, self._address, self._timeouts = device, address, timeouts
        self._channel = EventChannel()
        self._passive = count()
        self._listeners: dict[int, CmId] = {}
        self._by_handle: dict[Handle, _Connection] = {}  # the policy knows these
        self._by_id: dict[CmId, _Connection] = {}
        self._timers = Timers()
        self._machine = Machine(MACHINE, self._timers, self._ring)
        self._start()

    def _filenos(self) -> tuple[int, ...]:
        return (self._channel.fileno(),)

    def _release(self) -> None:
        self._channel.close()

    # ---- inputs from the kernel, the clock and the policy

    def _serve(self) -> float | None:
        event = None
        for _ in range(CM_ROUND):
            event = self._channel.event()
            if event is None:
                break
            with self._guarded(f"{event.type.name} of rdma_cm"):
                self._event(event)
        now = time.monotonic()
        self._timers.run(now)
        if event is not None:
            return 0.0  # more events may wait
        return wait_ms(self._timers.deadline(), now)

    def _event(self, event: CmEvent) -> None:
        if event.type is CmEventType.CONNECT_REQUEST:
            self._note_requested(event)
            return
        conn = self._by_id.get(event.id)
        if conn is not None:
            conn.cause, conn.reason = _CAUSES.get(event.type, Cause.BROKEN), 0
            if event.type is CmEventType.REJECTED:
                conn.cause = CAUSES.get(event.status, Cause.INCOMPATIBLE)
                conn.reason = event.status
            conn.event = event
            self._feed(conn, _INPUTS.get(event.type, Input.UNEXPECTED))
        elif event.type is CmEventType.DEVICE_REMOVAL:
            # The event is about a listener; the port detects the removal by itself.
            self._counts["cm_device_removed"] += 1

    def _note_requested(self, event: CmEvent) -> None:
        service_id = next(
            (port for port, it in self._listeners.items() if it is event.listener), None
        )
        if service_id is None:  # the listener was closed meanwhile
            event.id.close()
            return
        try:
            gid = Gid.of_ip(event.id.target.ip)
        except LinkError as error:
            _log.info("%s: refusing a peer's connection: %s", self._device, error)
            event.id.close()
            return
        handle = Handle(Role.PASSIVE, next(self._passive))
        conn = _Connection(handle, event.id, gid, event=event, service_id=service_id)
        self._add(conn)
        self._feed(conn, Input.CONNECT_REQUEST)

    def _ask(self, request: Request) -> None:
        if isinstance(request, Connect):
            self._connect(request)
            return
        conn = self._by_handle.get(request.handle)
        if conn is not None:
            conn.request = request
            self._feed(conn, _REQUESTS[type(request)])

    def _connect(self, request: Connect) -> None:
        """Begin to connect: the kernel resolves the address, then the route, then sends the request."""
        gid = request.destination.gid
        try:
            identifier = self._create()
        except OSError as error:
            _log.info("no connection to %s: %s", gid, error)
            self._notify(Ended(request.handle, Cause.BROKEN))
            return
        conn = _Connection(request.handle, identifier, gid, request=request)
        self._add(conn)
        self._feed(conn, Input.CONNECT)

    # ---- one step

    def _feed(self, conn: _Connection, fed: Input) -> None:
        _, actions = self._machine.feed(conn, conn.id, fed)
        try:
            for action in actions:
                self._act(conn, action)
        except OSError as error:
            _log.info("no connection to %s: %s", conn.gid, error)
            conn.cause, conn.reason = Cause.BROKEN, 0
            self._feed(conn, Input.BROKEN)

    def _ring(self, now: float, identifier: CmId) -> None:
        conn = self._by_id[identifier]
        conn.cause, conn.reason = Cause.NO_ANSWER, 0
        self._feed(conn, Input.TIMEOUT)

    def _act(self, conn: _Connection, action: Action) -> None:
        match action:
            case Action.REPORT_REQUESTED | Action.REPORT_REPLIED:
                self._report(conn)
            case Action.REPORT_ESTABLISHED:
                self._notify(Established(conn.handle))
            case Action.REPORT_ENDED:
                self._notify(Ended(conn.handle, conn.cause, conn.reason))
            case Action.COUNT:
                self._counts["cm_unexpected"] += 1
            case Action.ARM:
                self._machine.arm(conn.id, time.monotonic() + RDMACM_ANSWER_S)
            case Action.RELEASE:
                self._by_handle.pop(conn.handle, None)
            case Action.FORGET:
                self._forget(conn)
            case _:
                self._call(conn.id, conn.request, action)

    def _report(self, conn: _Connection) -> None:
        assert conn.event is not None, "the kernel has reported it"
        attributes, private = conn.id.attributes(), conn.event.private
        if conn.handle.role is Role.ACTIVE:
            self._notify(Replied(conn.handle, attributes, private))
        else:
            self._notify(Requested(conn.handle, conn.gid, conn.service_id, attributes, private))

    def _call(self, identifier: CmId, request: Request | None, action: Action) -> None:
        """Make the kernel carry out the policy's latest request."""
        timeouts = self._timeouts
        match action, request:
            case Action.RESOLVE_ADDRESS, Connect():
                ours, theirs = self._addresses(request)
                identifier.bind(ours, ack_timeout=timeouts.ack_timeout)
                identifier.resolve_address(theirs, _RESOLVE_MS)
            case Action.RESOLVE_ROUTE, Connect():
                identifier.resolve_route(_RESOLVE_MS)
            case Action.SEND_REQUEST, Connect(qpn=qpn, private=private):
                identifier.connect(
                    qpn,
                    private,
                    retries=timeouts.retries,
                    rnr_retries=timeouts.rnr_retries,
                    has_srq=True,
                )
            case Action.SEND_REPLY, Accept(qpn=qpn, private=private):
                identifier.accept(qpn, private, rnr_retries=timeouts.rnr_retries, has_srq=True)
            case Action.SEND_REFUSAL, Reject(private=private):
                identifier.reject(private)
            case Action.ESTABLISH, Confirm():
                identifier.establish()
            case Action.DISCONNECT, Disconnect():
                identifier.disconnect()
            case _:
                raise AssertionError(f"{action} for {request}")

    def _create(self) -> CmId:
        return self._channel.create()

    def _addresses(self, request: Connect) -> tuple[Address, Address]:
        """Return our address and the peer's."""
        ours = self._address()
        peer = request.destination.gid.ip
        port = request.service_id & _PORT_MASK
        scope = ours.scope if isinstance(peer, IPv6Address) and peer.is_link_local else 0
        return ours, SocketAddress(peer, port, scope)

    def _listen(self, services: Mapping[int, PKey]) -> None:
        wanted = {service_id for service_id in services if is_rdmacm(service_id)}
        for service_id in wanted - self._listeners.keys():
            self._listeners[service_id] = self._open_listener(service_id - SERVICE_BASE)
        for service_id in self._listeners.keys() - wanted:
            self._listeners.pop(service_id).close()

    def _open_listener(self, port: int) -> CmId:
        ours = self._address()
        try:
            listener = self._channel.create()
        except OSError as error:
            raise LinkError(f"{self._device}: rdma_cm: {error.strerror}") from error
        try:
            listener.bind(SocketAddress(ours.ip, port, ours.scope))
            if listener.device != self._device:
                raise LinkError(
                    f"{self._device}: rdma_cm takes {ours.ip} for {listener.device or 'no device'}"
                )
            listener.listen(CONNECTIONS_PER_PORT_MAX)
        except OSError as error:
            listener.close()
            raise LinkError(
                f"{self._device}: rdma_cm port {port} of {ours.ip}: {error.strerror}; "
                "`rdma resource show cm_id` shows the program that has it"
            ) from error
        except BaseException:
            listener.close()
            raise
        return listener

    # ---- identifiers

    def _disconnect_all(self) -> None:
        for conn in list(self._by_id.values()):
            self._forget(conn)

    def _add(self, conn: _Connection) -> None:
        self._by_handle[conn.handle] = self._by_id[conn.id] = conn

    def _forget(self, conn: _Connection) -> None:
        """Close the identifier: the kernel notifies the peer if a connection or request was open."""
        self._machine.cancel(conn.id)
        self._by_handle.pop(conn.handle, None)
        if self._by_id.pop(conn.id, None) is not None:
            conn.id.close()
