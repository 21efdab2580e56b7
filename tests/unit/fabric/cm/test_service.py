# SPDX-License-Identifier: BSD-2-Clause
"""Two ports' communication managers, whose queue pairs 1 deliver to each other at once."""

from __future__ import annotations

import contextlib
import os
import queue
from collections import deque
from collections.abc import Iterator

import pytest

from ipoibu.base.addr import DEFAULT_PKEY, Gid, PKey, Qpn
from ipoibu.base.ib import Destination
from ipoibu.fabric.cm.gsi_cm import GsiCm
from ipoibu.fabric.cm.service import CmService, Subscriber
from ipoibu.proto.cm.cm import CmConfig, MadSource
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
    Replied,
    Requested,
    Role,
)
from ipoibu.wire.mad import GSI_QPN
from tests.doubles.packets import until

WAIT_S = 10.0
SERVICE = 0x1000000000000042
GIDS = (Gid.parse("fe80::1"), Gid.parse("fe80::2"))


class Mailbox:
    """Queue pair 1 of a port on a wire with one other."""

    def __init__(self, gid: Gid) -> None:
        self.gid = gid
        self.peer: Mailbox | None = None
        self.closed = False
        self._fd = os.eventfd(0, os.EFD_NONBLOCK)
        self._inbox: deque[tuple[MadSource, bytes]] = deque()

    @property
    def fd(self) -> int:
        return self._fd

    @property
    def address(self) -> tuple[Gid, int]:
        return self.gid, 0

    def wait_ms(self) -> float | None:
        return None

    def arm(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def put(self, sgid: Gid, raw: bytes) -> None:
        self._inbox.append((MadSource(Qpn(GSI_QPN), sgid), raw))
        os.eventfd_write(self._fd, 1)

    def send(self, destination: Destination, pkey: PKey, raw: bytes) -> bool:
        assert (destination.qpn, pkey, len(raw)) == (GSI_QPN, DEFAULT_PKEY, 256)
        if self.peer is None or destination.gid != self.peer.gid:
            return False
        self.peer.put(self.gid, raw)
        return True

    def receive(self) -> tuple[MadSource, bytes] | None:
        return self._inbox.popleft() if self._inbox else None

    def close(self) -> None:
        self.closed = True


class Interface:
    """An interface: records its events and replies to them."""

    def __init__(self, port: CmService, service_ids: frozenset[int]) -> None:
        self.port = port
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.subscriber: Subscriber = port.subscribe(service_ids, self.events.put)

    def next(self) -> Event:
        return self.events.get(timeout=WAIT_S)


@pytest.fixture
def ports() -> Iterator[tuple[CmService, CmService, Mailbox, Mailbox]]:
    one, other = (Mailbox(gid) for gid in GIDS)
    one.peer, other.peer = other, one
    managers = [
        GsiCm(box, CmConfig(gid=box.gid, ca_guid=n, path_mtu_bytes=2048))
        for n, box in enumerate((one, other), 1)
    ]
    yield managers[0], managers[1], one, other
    for manager in managers:
        manager.close()
    assert one.closed
    assert other.closed


def _connect(interface: Interface, serial: int = 1, service_id: int = SERVICE) -> Handle:
    handle = Handle(Role.ACTIVE, serial)
    destination = Destination(GIDS[1], Qpn(0x42))
    request = Connect(handle, destination, service_id, Qpn(0x111), 2048, b"hello")
    interface.port.request(interface.subscriber, request)
    return handle


def _establish(asker: Interface, listener: Interface) -> tuple[Handle, Handle]:
    handle = _connect(asker)
    requested = listener.next()
    assert isinstance(requested, Requested)
    assert requested.private.startswith(b"hello")
    accept = Accept(requested.handle, Qpn(0x222), b"welcome")
    listener.port.request(listener.subscriber, accept)
    replied = asker.next()
    assert isinstance(replied, Replied)
    assert replied.attributes.destination.qpn == 0x222
    asker.port.request(asker.subscriber, Confirm(handle))
    assert asker.next() == Established(handle)
    assert listener.next() == Established(requested.handle)
    return handle, requested.handle


def test_two_interfaces_connect_and_part(
    ports: tuple[CmService, CmService, Mailbox, Mailbox],
) -> None:
    asker, listener = Interface(ports[0], frozenset()), Interface(ports[1], frozenset((SERVICE,)))
    handle, theirs = _establish(asker, listener)
    asker.port.request(asker.subscriber, Disconnect(handle))
    ended = listener.next()
    assert isinstance(ended, Ended)
    assert (ended.handle, ended.cause) == (theirs, Cause.DISCONNECTED)


def test_a_request_goes_to_the_interface_that_listens_there(
    ports: tuple[CmService, CmService, Mailbox, Mailbox],
) -> None:
    asker = Interface(ports[0], frozenset())
    other = Interface(ports[1], frozenset((SERVICE + 1,)))
    listener = Interface(ports[1], frozenset((SERVICE,)))
    _establish(asker, listener)
    assert other.events.empty()


def test_a_service_that_nobody_has_is_named(
    ports: tuple[CmService, CmService, Mailbox, Mailbox],
) -> None:
    asker = Interface(ports[0], frozenset())
    handle = _connect(asker)
    ended = asker.next()
    assert isinstance(ended, Ended)
    assert (ended.handle, ended.cause) == (handle, Cause.NO_SERVICE)


def test_an_interface_that_leaves_says_farewell_and_hears_no_more(
    ports: tuple[CmService, CmService, Mailbox, Mailbox],
) -> None:
    asker, listener = Interface(ports[0], frozenset()), Interface(ports[1], frozenset((SERVICE,)))
    _establish(asker, listener)
    listener.port.unsubscribe(listener.subscriber)
    assert isinstance(asker.next(), Ended)
    handle = _connect(asker, serial=2)
    ended = asker.next()
    assert isinstance(ended, Ended)
    assert (ended.handle, ended.cause) == (handle, Cause.NO_SERVICE)
    assert listener.events.empty()


def test_a_port_that_closes_says_farewell(
    ports: tuple[CmService, CmService, Mailbox, Mailbox],
) -> None:
    asker, listener = Interface(ports[0], frozenset()), Interface(ports[1], frozenset((SERVICE,)))
    _establish(asker, listener)
    ports[1].close()
    assert isinstance(asker.next(), Ended)
    listener.port.request(listener.subscriber, Disconnect(Handle(Role.ACTIVE, 9)))  # ignored


def test_garbage_is_counted_and_the_manager_goes_on(
    ports: tuple[CmService, CmService, Mailbox, Mailbox],
) -> None:
    asker, listener = Interface(ports[0], frozenset()), Interface(ports[1], frozenset((SERVICE,)))
    for raw in (bytes(256), b"\xff" * 256, b""):
        ports[3].put(GIDS[0], raw)
    until(lambda: sum(ports[1].counters().values()) == 3)
    _establish(asker, listener)
    assert not ports[1].counters()["defect"]
