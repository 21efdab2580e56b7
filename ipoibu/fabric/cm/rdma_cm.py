# SPDX-License-Identifier: BSD-2-Clause
"""Connections by the kernel's rdma_cm: of a RoCE port of an RDMA device, whose queue pair 1 is the kernel's.

    ASKING     -> ADDR_RESOLVED, ROUTE_RESOLVED, CONNECT_RESPONSE ->  REPLIED  -> Confirm ->  ESTABLISHED
    REQUESTED  -> Accept ->  ACCEPTED  -> ESTABLISHED ->  ESTABLISHED

whatever else the kernel says of an identifier ends it, and so does its silence while we ask. rdma_cm
patiently repeats a request for a minute; we go by datagram long before that, and ask again later.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from itertools import count
from typing import ClassVar, Final

from ipoibu.addr import Gid, PKey
from ipoibu.errors import LinkError
from ipoibu.fabric.cm.librdmacm import (
    Address,
    CmEvent,
    CmEventType,
    CmId,
    EventChannel,
    SocketAddress,
)
from ipoibu.fabric.cm.service import CmService
from ipoibu.limits import CM_ROUND, CONNECTIONS_PER_PORT_MAX, RDMACM_ANSWER_S, RDMACM_RESOLVE_S
from ipoibu.proto.rc_events import (
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
_CAUSES: Final = {
    CmEventType.ADDR_ERROR: Cause.ADDRESS,
    CmEventType.ROUTE_ERROR: Cause.ADDRESS,
    CmEventType.UNREACHABLE: Cause.NO_ANSWER,
    CmEventType.CONNECT_ERROR: Cause.NO_ANSWER,
    CmEventType.DISCONNECTED: Cause.DISCONNECTED,
    CmEventType.DEVICE_REMOVAL: Cause.BROKEN,
}


class _Phase(enum.Enum):
    ASKING = "no answer yet"
    REPLIED = "the policy thinks about the answer"
    REQUESTED = "the policy thinks about the request"
    ACCEPTED = "the peer has to confirm"
    ESTABLISHED = "both may send"
    LEAVING = "the peer is being told"


@dataclass(slots=True)
class _Attempt:
    handle: Handle
    id: CmId
    phase: _Phase
    connect: Connect | None = None
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """Of packets on connections; a code stands for 4.096 µs times 2 to its power (C11)."""

    ack_timeout: int
    retries: int
    rnr_retries: int


class RdmaCm(CmService):
    """A `CmService` for one port of one device.

    `address` is the port's now, asked for whenever it is needed; `device` what rdma_cm has to find
    behind it. `LinkError` or `NotPermitted`: there is no rdma_cm for us.
    """

    forms: ClassVar[tuple[ServiceForm, ...]] = (ServiceForm.RDMACM,)

    def __init__(
        self, device: str, address: Callable[[], SocketAddress], patience: Patience
    ) -> None:
        super().__init__()
        self._device, self._address, self._patience = device, address, patience
        self._channel = EventChannel()
        self._passive = count()
        self._listeners: dict[int, CmId] = {}
        self._by_handle: dict[Handle, _Attempt] = {}
        self._by_id: dict[CmId, _Attempt] = {}
        self._start()

    def _filenos(self) -> tuple[int, ...]:
        return (self._channel.fileno(),)

    def _release(self) -> None:
        self._channel.close()

    # ---- inputs: the kernel's, the clock's, the policy's

    def _serve(self) -> float | None:
        event = None
        for _ in range(CM_ROUND):
            event = self._channel.event()
            if event is None:
                break
            with self._guarded(f"{event.type.name} of rdma_cm"):
                self._event(event)
        now = time.monotonic()
        due = [it for it in self._by_id.values() if it.deadline is not None]
        for attempt in due:
            if attempt.deadline is not None and attempt.deadline <= now:
                self._end(attempt, Cause.NO_ANSWER)
        if event is not None:
            return 0.0  # there may be more
        deadlines = [it.deadline for it in self._by_id.values() if it.deadline is not None]
        return max(0.0, (min(deadlines) - now) * 1000 + 1) if deadlines else None

    def _event(self, event: CmEvent) -> None:
        if event.type is CmEventType.CONNECT_REQUEST:
            self._requested(event)
            return
        attempt = self._by_id.get(event.id)
        if attempt is None:
            if event.type is CmEventType.DEVICE_REMOVAL:
                self._counts["cm_device_removed"] += 1  # a listener's; the port notices by itself
            return
        if attempt.phase is _Phase.LEAVING:
            if event.type in (CmEventType.DISCONNECTED, CmEventType.TIMEWAIT_EXIT):
                self._forget(attempt)
            return
        try:
            self._proceed(attempt, event)
        except OSError as error:
            _log.info("a connection cannot go on: %s", error)
            self._end(attempt, Cause.BROKEN)

    def _proceed(self, attempt: _Attempt, event: CmEvent) -> None:
        match event.type, attempt.phase:
            case CmEventType.ADDR_RESOLVED, _Phase.ASKING:
                attempt.id.resolve_route(_RESOLVE_MS)
            case CmEventType.ROUTE_RESOLVED, _Phase.ASKING:
                assert attempt.connect is not None, "who asks is active"
                attempt.id.connect(
                    attempt.connect.qpn,
                    attempt.connect.private,
                    retries=self._patience.retries,
                    rnr_retries=self._patience.rnr_retries,
                    has_srq=True,
                )
            case CmEventType.CONNECT_RESPONSE, _Phase.ASKING:
                attempt.phase, attempt.deadline = _Phase.REPLIED, None
                self._tell(Replied(attempt.handle, attempt.id.attributes(), event.private))
            case CmEventType.ESTABLISHED, _Phase.ACCEPTED:
                attempt.phase = _Phase.ESTABLISHED
                self._tell(Established(attempt.handle))
            case CmEventType.REJECTED, _:
                cause = CAUSES.get(event.status, Cause.INCOMPATIBLE)
                self._end(attempt, cause, event.status)
            case kind, _ if kind in _CAUSES:
                self._end(attempt, _CAUSES[kind])
            case _:
                self._counts["cm_unexpected"] += 1

    def _requested(self, event: CmEvent) -> None:
        attempt = _Attempt(Handle(Role.PASSIVE, next(self._passive)), event.id, _Phase.REQUESTED)
        service_id = next(
            (port for port, it in self._listeners.items() if it is event.listener), None
        )
        if service_id is None:  # it went meanwhile
            event.id.close()
            return
        self._add(attempt)
        try:
            request = Requested(
                attempt.handle,
                Gid.of_ip(event.id.target.ip),
                service_id,
                event.id.attributes(),
                event.private,
            )
        except (OSError, LinkError) as error:
            _log.info("a request cannot be answered: %s", error)
            self._forget(attempt)
            return
        self._tell(request)

    def _ask(self, request: Request) -> None:
        if isinstance(request, Connect):
            self._connect(request)
            return
        attempt = self._by_handle.get(request.handle)
        if attempt is None:
            return
        try:
            match request:
                case Confirm(handle):
                    attempt.id.establish()
                    attempt.phase = _Phase.ESTABLISHED
                    self._tell(Established(handle))
                case Accept(_, qpn, private):
                    attempt.phase = _Phase.ACCEPTED
                    attempt.id.accept(
                        qpn, private, rnr_retries=self._patience.rnr_retries, has_srq=True
                    )
                case Reject(_, _, private):
                    attempt.id.reject(private)
                    self._forget(attempt)
                case Disconnect(handle):
                    self._leave(attempt)
        except OSError as error:
            _log.info("%s: %s", type(request).__name__.lower(), error)
            self._end(attempt, Cause.BROKEN)

    def _connect(self, request: Connect) -> None:
        """In steps: the kernel looks for the address, then the route, then asks the peer."""
        attempt: _Attempt | None = None
        try:
            attempt = _Attempt(request.handle, self._create(), _Phase.ASKING, request)
            self._add(attempt)
            attempt.deadline = time.monotonic() + RDMACM_ANSWER_S
            ours, theirs = self._addresses(request)
            attempt.id.bind(ours, ack_timeout=self._patience.ack_timeout)
            attempt.id.resolve_address(theirs, _RESOLVE_MS)
        except OSError as error:
            _log.info("no connection to %s: %s", request.destination.gid, error)
            if attempt is not None:
                self._end(attempt, Cause.BROKEN)
            else:
                self._tell(Ended(request.handle, Cause.BROKEN))

    def _create(self) -> CmId:
        return self._channel.create()

    def _addresses(self, request: Connect) -> tuple[Address, Address]:
        """Ours and the peer's."""
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
                "`rdma resource show cm_id` tells whose it is"
            ) from error
        except BaseException:
            listener.close()
            raise
        return listener

    # ---- ends

    def _end(self, attempt: _Attempt, cause: Cause, reason: int = 0) -> None:
        self._forget(attempt)
        self._tell(Ended(attempt.handle, cause, reason))

    def _leave(self, attempt: _Attempt) -> None:
        """What is established is told so; anything less, the end of the identifier says."""
        self._by_handle.pop(attempt.handle, None)
        if attempt.phase is not _Phase.ESTABLISHED:
            self._forget(attempt)
            return
        attempt.phase, attempt.deadline = _Phase.LEAVING, time.monotonic() + RDMACM_ANSWER_S
        attempt.id.disconnect()

    def _say_farewell(self) -> None:
        for attempt in list(self._by_id.values()):
            self._forget(attempt)

    def _add(self, attempt: _Attempt) -> None:
        self._by_handle[attempt.handle] = self._by_id[attempt.id] = attempt

    def _forget(self, attempt: _Attempt) -> None:
        self._by_handle.pop(attempt.handle, None)
        if self._by_id.pop(attempt.id, None) is not None:
            attempt.id.close()
