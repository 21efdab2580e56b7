# SPDX-License-Identifier: BSD-2-Clause
"""Connections by rdma_cm, over a kernel that the test plays."""

from __future__ import annotations

import errno
import os
import queue
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid, Qpn
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import Destination, RcAttributes
from ipoibu.fabric.cm import rdma_cm
from ipoibu.fabric.cm.librdmacm import CmEvent, CmEventType, SocketAddress
from ipoibu.fabric.cm.rdma_cm import RcTimeouts, RdmaCm
from ipoibu.proto.rc.events import (
    Accept,
    Cause,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Established,
    Event,
    Handle,
    Reject,
    Replied,
    Requested,
    Role,
)
from ipoibu.wire.cm_code import Reason
from ipoibu.wire.cm_private import ServiceForm, service_id, service_ids
from tests.doubles.event_channel import EventChannel

WAIT_S: Final = 10.0
OURS: Final = SocketAddress(IPv6Address("fe80::1"), scope=7)
PEER: Final = Gid.parse("fe80::2")
QPN: Final = Qpn(0x42)
SERVICE: Final = service_id(ServiceForm.RDMACM, QPN)
PORT: Final = SERVICE & 0xFFFF
ATTRIBUTES: Final = RcAttributes(Destination(PEER, Qpn(0x99)), 2048, 1, 2, 14)
T = CmEventType


class Id:
    """An identifier of the kernel that records the calls."""

    device: str | None = "rxe0"

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.calls: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.closed = False
        self.target = SocketAddress(PEER.ip, 40000)

    def _record(self, *call: Any) -> None:
        self.calls.put(call)
        code = self.channel.errors.get(call[0])
        if code:
            raise OSError(code, os.strerror(code))

    def bind(self, address: SocketAddress, *, ack_timeout: int | None = None) -> None:
        self._record("bind", address)

    def listen(self, backlog: int) -> None:
        self._record("listen")

    def resolve_address(self, target: SocketAddress, timeout_ms: int) -> None:
        self._record("resolve", target)

    def resolve_route(self, timeout_ms: int) -> None:
        self._record("route")

    def connect(self, qpn: Qpn, private: bytes, **retries: Any) -> None:
        self._record("connect", qpn, private, retries["retries"])

    def accept(self, qpn: Qpn, private: bytes, **retries: Any) -> None:
        self._record("accept", qpn, private)

    def establish(self) -> None:
        self._record("establish")

    def reject(self, private: bytes) -> None:
        self._record("reject", private)

    def disconnect(self) -> None:
        self._record("disconnect")

    def attributes(self) -> RcAttributes:
        self._record("attributes")
        return ATTRIBUTES

    def close(self) -> None:
        self.closed = True
        self.calls.put(("close",))

    def take(self, *wanted: str) -> list[tuple[Any, ...]]:
        """Wait for these calls, in order, and return them with their arguments."""
        calls = [self.calls.get(timeout=WAIT_S) for _ in wanted]
        assert [call[0] for call in calls] == list(wanted)
        return calls


class Channel(EventChannel):
    """rdma_cm's event channel; the last one made is `now`."""

    now: Channel

    def __init__(self) -> None:
        super().__init__()
        self.made: queue.SimpleQueue[Id] = queue.SimpleQueue()
        self.errors: dict[str, int] = {}
        self.closed = False
        Channel.now = self

    def create(self) -> Id:
        if code := self.errors.get("create"):
            raise OSError(code, os.strerror(code))
        made = Id(self)
        self.made.put(made)
        return made

    def close(self) -> None:
        self.closed = True
        os.close(self.fd)

    # ---- for the tests

    def emit(
        self,
        kind: T,
        about: Id,
        *,
        listener: Id | None = None,
        status: int = 0,
        private: bytes = b"",
    ) -> None:
        make: Any = CmEvent
        self.add(make(kind, about, listener, status, private, 0x77))

    def next(self) -> Id:
        return self.made.get(timeout=WAIT_S)


class Interface:
    def __init__(self, manager: RdmaCm) -> None:
        self.manager = manager
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.subscriber = manager.subscribe(service_ids(QPN), self.events.put)
        self.listener = Channel.now.next()
        self.listener.take("bind", "listen")

    def hear(self) -> Event:
        return self.events.get(timeout=WAIT_S)

    def connect(self, serial: int = 1) -> tuple[Handle, Id]:
        handle = Handle(Role.ACTIVE, serial)
        request = Connect(handle, Destination(PEER, QPN), SERVICE, Qpn(0x111), 2048, b"hello")
        self.manager.request(self.subscriber, request)
        return handle, Channel.now.next()

    def establish(self) -> tuple[Handle, Id]:
        handle, cm_id = self.connect()
        _, (_, target) = cm_id.take("bind", "resolve")
        assert target == SocketAddress(PEER.ip, PORT, OURS.scope)
        Channel.now.emit(T.ADDR_RESOLVED, cm_id)
        cm_id.take("route")
        Channel.now.emit(T.ROUTE_RESOLVED, cm_id)
        assert cm_id.take("connect") == [("connect", 0x111, b"hello", 5)]
        Channel.now.emit(T.CONNECT_RESPONSE, cm_id, private=b"welcome")
        assert self.hear() == Replied(handle, ATTRIBUTES, b"welcome")
        cm_id.take("attributes")
        self.manager.request(self.subscriber, Confirm(handle))
        cm_id.take("establish")
        assert self.hear() == Established(handle)
        return handle, cm_id

    def requested(self) -> tuple[Handle, Id]:
        asked = Id(Channel.now)
        Channel.now.emit(T.CONNECT_REQUEST, asked, listener=self.listener, private=b"may I")
        requested = self.hear()
        assert isinstance(requested, Requested)
        assert (requested.gid, requested.service_id) == (PEER, SERVICE)
        assert (requested.attributes, requested.private) == (ATTRIBUTES, b"may I")
        asked.take("attributes")
        return requested.handle, asked


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], RdmaCm]]:
    monkeypatch.setattr(rdma_cm, "EventChannel", Channel)
    made: list[RdmaCm] = []

    def manager() -> RdmaCm:
        made.append(RdmaCm("rxe0", lambda: OURS, RcTimeouts(14, 5, 6)))
        return made[-1]

    yield manager
    for each in made:
        each.close()
        assert Channel.now.closed


@pytest.fixture
def interface(make: Callable[[], RdmaCm]) -> Interface:
    return Interface(make())


def test_a_connection_of_ours_is_made_in_the_kernels_steps(interface: Interface) -> None:
    handle, cm_id = interface.establish()
    interface.manager.request(interface.subscriber, Disconnect(handle))
    cm_id.take("disconnect")
    assert not cm_id.closed  # the kernel still has to notify the peer
    Channel.now.emit(T.DISCONNECTED, cm_id)
    cm_id.take("close")
    assert interface.events.empty()


def test_only_rdma_cms_own_service_id_is_listened_on(interface: Interface) -> None:
    assert RdmaCm.forms == (ServiceForm.RDMACM,)
    assert Channel.now.made.empty()


def test_a_request_is_notified_and_accepted(interface: Interface) -> None:
    handle, asked = interface.requested()
    interface.manager.request(interface.subscriber, Accept(handle, Qpn(0x222), b"welcome"))
    assert asked.take("accept") == [("accept", 0x222, b"welcome")]
    Channel.now.emit(T.ESTABLISHED, asked)
    assert interface.hear() == Established(handle)
    Channel.now.emit(T.DISCONNECTED, asked)
    assert interface.hear() == Ended(handle, Cause.DISCONNECTED)
    asked.take("close")


def test_a_request_is_notified_and_rejected(interface: Interface) -> None:
    handle, asked = interface.requested()
    reject = Reject(handle, Reason.NO_RESOURCES, b"full")
    interface.manager.request(interface.subscriber, reject)
    assert asked.take("reject", "close")[0] == ("reject", b"full")


@pytest.mark.parametrize(
    ("kind", "status", "cause"),
    [
        (T.ADDR_ERROR, -errno.ENODEV, Cause.ADDRESS),
        (T.ROUTE_ERROR, -errno.EINVAL, Cause.ADDRESS),
        (T.UNREACHABLE, -errno.ETIMEDOUT, Cause.NO_ANSWER),
        (T.CONNECT_ERROR, -errno.EINVAL, Cause.NO_ANSWER),
        (T.REJECTED, 8, Cause.NO_SERVICE),
        (T.REJECTED, 28, Cause.DECLINED),
        (T.REJECTED, 3, Cause.NO_RESOURCES),
        (T.REJECTED, 999, Cause.INCOMPATIBLE),
        (T.DEVICE_REMOVAL, 0, Cause.BROKEN),
    ],
)
def test_a_failure_ends_the_attempt_with_its_cause(
    interface: Interface, kind: T, status: int, cause: Cause
) -> None:
    handle, cm_id = interface.connect()
    Channel.now.emit(kind, cm_id, status=status)
    ended = interface.hear()
    assert isinstance(ended, Ended)
    assert (ended.handle, ended.cause) == (handle, cause)
    assert ended.reason == (status if kind is T.REJECTED else 0)
    cm_id.take("bind", "resolve", "close")


@pytest.mark.parametrize("step", ["create", "bind", "resolve"])
def test_what_the_kernel_refuses_at_once_ends_the_attempt(interface: Interface, step: str) -> None:
    Channel.now.errors[step] = errno.ENOMEM
    handle = Handle(Role.ACTIVE, 1)
    request = Connect(handle, Destination(PEER, QPN), SERVICE, Qpn(0x111), 2048, b"hello")
    interface.manager.request(interface.subscriber, request)
    assert interface.hear() == Ended(handle, Cause.BROKEN)


@pytest.mark.parametrize("step", ["route", "connect", "attributes"])
def test_what_the_kernel_refuses_later_ends_it_too(interface: Interface, step: str) -> None:
    Channel.now.errors[step] = errno.EINVAL
    handle, cm_id = interface.connect()
    for kind in (T.ADDR_RESOLVED, T.ROUTE_RESOLVED, T.CONNECT_RESPONSE):
        Channel.now.emit(kind, cm_id)
    assert interface.hear() == Ended(handle, Cause.BROKEN)


def test_a_peer_that_does_not_answer_is_given_up(
    interface: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rdma_cm, "RDMACM_ANSWER_S", 0.05)
    handle, cm_id = interface.connect()
    assert interface.hear() == Ended(handle, Cause.NO_ANSWER)
    cm_id.take("bind", "resolve", "close")


def test_a_farewell_that_nobody_answers_does_not_stay(
    interface: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rdma_cm, "RDMACM_ANSWER_S", 0.05)
    handle, asked = interface.requested()
    interface.manager.request(interface.subscriber, Accept(handle, Qpn(0x222), b""))
    Channel.now.emit(T.ESTABLISHED, asked)
    assert interface.hear() == Established(handle)
    interface.manager.request(interface.subscriber, Disconnect(handle))
    asked.take("accept", "disconnect", "close")
    assert interface.events.empty()


def test_a_port_that_is_taken_is_named_and_nothing_stays(
    make: Callable[[], RdmaCm],
) -> None:
    manager = make()
    Channel.now.errors["bind"] = errno.EADDRINUSE
    with pytest.raises(LinkError, match=rf"rxe0: rdma_cm port {PORT} of fe80::1: Address already"):
        manager.subscribe(service_ids(QPN), lambda _: None)
    assert Channel.now.next().closed
    Channel.now.errors.clear()
    Interface(manager)  # a later attempt succeeds


def test_another_device_with_the_same_address_is_not_taken_for_ours(
    make: Callable[[], RdmaCm], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = make()
    monkeypatch.setattr(Id, "device", "mlx5_0")
    with pytest.raises(LinkError, match="rdma_cm takes fe80::1 for mlx5_0"):
        manager.subscribe(service_ids(QPN), lambda _: None)
    assert Channel.now.next().closed


def test_an_interface_that_leaves_says_farewell_and_hears_no_more(interface: Interface) -> None:
    _, cm_id = interface.establish()
    interface.manager.unsubscribe(interface.subscriber)
    cm_id.take("disconnect")
    interface.listener.take("close")
    late = Id(Channel.now)
    Channel.now.emit(T.CONNECT_REQUEST, late, listener=interface.listener)
    late.take("close")
    assert interface.events.empty()


def test_an_event_that_makes_no_sense_is_counted(interface: Interface) -> None:
    handle, cm_id = interface.connect()
    Channel.now.emit(T.ESTABLISHED, cm_id)
    Channel.now.emit(T.MULTICAST_JOIN, cm_id)
    Channel.now.emit(T.REJECTED, cm_id, status=28)
    ended = interface.hear()
    assert isinstance(ended, Ended)
    assert ended.handle == handle
    assert interface.manager.counters()["cm_unexpected"] == 2


def test_a_closed_manager_ends_everything_and_ignores_what_comes(interface: Interface) -> None:
    handle, cm_id = interface.establish()
    interface.manager.close()
    cm_id.take("close")
    interface.manager.request(interface.subscriber, Disconnect(handle))
