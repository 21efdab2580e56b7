# SPDX-License-Identifier: BSD-2-Clause
"""The connections of a mesh, over a kernel and a core that the test plays."""

from __future__ import annotations

import errno
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Iterator
from ipaddress import IPv4Address, ip_address
from types import SimpleNamespace
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid, HwAddr, IpAddress, PKey, Qpn
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import IWARP, PortInfo
from ipoibu.fabric.cm.librdmacm import CmEventType, SocketAddress
from ipoibu.fabric.mesh import connections as mesh_connections
from ipoibu.fabric.mesh.connections import MeshConnections
from ipoibu.proto.mesh.mesh import MeshConfig
from ipoibu.wire import mesh
from ipoibu.wire.mesh import Greeting, Locator
from tests.unit.fabric.cm.test_rdma_cm import Channel, Id

WAIT_S: Final = 10.0
READY, CONTROL, BROKEN, GONE = 1, 2, 3, 4
T = CmEventType
PEER: Final = Locator(ip_address("10.0.0.2"), 4792)
GROUP: Final = Gid.parse("ff12:401b:ffff::1")
INFO: Final = PortInfo("siw0", 1, Gid.parse("fe80::1"), bytes(8), 65524, IWARP, "lo")


def greeting(number: int) -> Greeting:
    hwaddr = HwAddr(Qpn(number), Gid.parse(f"fe80::{number:x}"))
    return Greeting(hwaddr, 65520, 32, PKey(0xFFFF), 4792)


class Core:
    """In place of the compiled mesh; records the calls."""

    def __init__(self) -> None:
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.calls: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.events: deque[tuple[int, int, bytes]] = deque()

    def __getattr__(self, name: str) -> Any:
        def note(*arguments: Any, **_: Any) -> None:
            self.calls.put((name, *arguments))

        return note

    def next_event(self) -> tuple[int, int, bytes] | None:
        if not self.events:
            try:
                os.eventfd_read(self.event_fd)
            except BlockingIOError:
                return None
        return self.events.popleft() if self.events else None

    def emit(self, handle: int, what: int, message: bytes = b"") -> None:
        self.events.append((handle, what, message))
        os.eventfd_write(self.event_fd, 1)

    def take(self, *wanted: str) -> list[tuple[Any, ...]]:
        calls = [self.calls.get(timeout=WAIT_S) for _ in wanted]
        assert [call[0] for call in calls] == list(wanted), calls
        return calls


class Device:
    name = "siw0"
    cmd_fd = 5

    def __init__(self) -> None:
        self.destroyed: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def raise_rc(self, qp: Any, port: int, index: int) -> None:
        pass

    def fail(self, qp: Any) -> None:
        pass

    def destroy(self, qp: Any) -> None:
        self.destroyed.put(qp)


class Desk:
    def __init__(self) -> None:
        self.core, self.device = Core(), Device()
        self.room = 8
        arguments: Any = (self.device, INFO, self.core, self.create, MeshConfig(greeting(0x50)))
        self.connections = MeshConnections(*arguments)
        self.listeners = [Channel.now.next(), Channel.now.next()]
        for listener in self.listeners:
            listener.take("bind", "listen")

    def create(self) -> Any:
        self.room -= 1
        if self.room < 0:
            raise LinkError("no queue pair is left")
        return SimpleNamespace(qp_num=0x100 + self.room)

    def dial(self) -> tuple[int, Id]:
        """Dial a peer, up to the kernel's request to it."""
        self.connections.seeds({PEER})
        cm_id = Channel.now.next()
        assert cm_id.take("resolve") == [("resolve", SocketAddress(PEER.ip, PEER.port))]
        Channel.now.emit(T.ADDR_RESOLVED, cm_id)
        cm_id.take("route")
        Channel.now.emit(T.ROUTE_RESOLVED, cm_id)
        ((_, handle, _),) = self.core.take("add")
        self.core.emit(handle, READY)
        ((_, _, private, _),) = cm_id.take("connect")
        assert private == greeting(0x50).pack()
        return handle, cm_id

    def meet(self) -> tuple[int, Id]:
        handle, cm_id = self.dial()
        Channel.now.emit(T.ESTABLISHED, cm_id, private=greeting(0x60).pack())
        self.core.take("name", "send_control", "send_control")
        for thread in threading.enumerate():
            if thread.name == f"ipoibu-dial-{handle}":
                thread.join(WAIT_S)  # else closing now would give the connection up
        return handle, cm_id


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    module = SimpleNamespace(
        MESH_READY=READY, MESH_CONTROL=CONTROL, MESH_BROKEN=BROKEN, MESH_GONE=GONE
    )
    monkeypatch.setattr(mesh_connections, "EventChannel", Channel)
    monkeypatch.setitem(sys.modules, "ipoibu._verbs", module)
    monkeypatch.setattr(Id, "device", "siw0")
    made = Desk()
    yield made
    made.connections.close()
    made.connections.close()


def test_it_listens_for_both_families(desk: Desk) -> None:
    assert Channel.now.made.empty()
    assert desk.connections.peers() == []


def test_a_peer_is_dialed_in_the_kernels_steps_and_parted_from(desk: Desk) -> None:
    handle, cm_id = desk.meet()
    (row,) = desk.connections.peers()
    assert (row["role"], row["state"], row["locator"]) == ("active", "live", str(PEER))
    assert row["peer"] == str(greeting(0x60).hwaddr)
    desk.core.emit(handle, BROKEN)
    desk.core.take("remove")
    cm_id.take("disconnect")
    assert desk.device.destroyed.empty()  # the core may still use it
    desk.core.emit(handle, GONE)
    desk.core.take("forget")
    cm_id.take("close")
    assert desk.device.destroyed.get(timeout=WAIT_S)
    assert Channel.now.next()  # the mesh dials it again later


def test_a_request_is_accepted_when_its_receives_are_there(desk: Desk) -> None:
    asked = Id(Channel.now)
    asked.target = SocketAddress(IPv4Address("10.0.0.3"), 999)
    private = greeting(0x70).pack()
    Channel.now.emit(T.CONNECT_REQUEST, asked, listener=desk.listeners[0], private=private)
    (_, handle, _), named = desk.core.take("add", "name")
    assert named[3:] == (0x70, 32, False)
    assert asked.calls.empty()
    desk.core.emit(handle, READY)
    assert asked.take("accept")[0][2] == greeting(0x50).pack()
    Channel.now.emit(T.ESTABLISHED, asked)
    desk.core.take("send_control", "send_control")
    (row,) = desk.connections.peers()
    assert (row["role"], row["locator"]) == ("passive", "10.0.0.3:4792")


def test_garbage_is_rejected_with_our_greeting(desk: Desk) -> None:
    asked = Id(Channel.now)
    Channel.now.emit(T.CONNECT_REQUEST, asked, listener=desk.listeners[0], private=b"garbage")
    assert asked.take("reject", "close")[0] == ("reject", greeting(0x50).pack())
    assert desk.connections.counters()["mesh_greeting"] == 1


def test_messages_and_memberships_go_both_ways(desk: Desk) -> None:
    learned: queue.SimpleQueue[tuple[HwAddr, tuple[IpAddress, ...]]] = queue.SimpleQueue()
    desk.connections.listen(lambda *what: learned.put(what), lambda _: None)
    handle, _ = desk.meet()
    desk.connections.note_joined(GROUP)
    desk.connections.note_left(GROUP)
    desk.connections.announce([ip_address("10.9.0.1")])
    assert [
        call[2][0] for call in desk.core.take("send_control", "send_control", "send_control")
    ] == [2, 3, 6]
    (everything,) = mesh.groups(mesh.Operation.GROUPS, [GROUP])
    desk.core.emit(handle, CONTROL, everything)
    assert desk.core.take("groups") == [("groups", handle, [GROUP.raw])]
    desk.core.emit(handle, CONTROL, next(mesh.groups(mesh.Operation.LEAVE, [GROUP])))
    assert desk.core.take("group") == [("group", handle, GROUP.raw, False)]
    desk.core.emit(handle, CONTROL, mesh.addresses([ip_address("10.9.0.2")]))
    assert learned.get(timeout=WAIT_S) == (greeting(0x60).hwaddr, (ip_address("10.9.0.2"),))


@pytest.mark.parametrize("step", ["resolve", "route", "connect"])
def test_what_the_kernel_refuses_is_tried_again(desk: Desk, step: str) -> None:
    Channel.now.errors[step] = errno.ECONNREFUSED
    desk.connections.seeds({PEER})
    cm_id = Channel.now.next()
    cm_id.take("resolve")
    if step != "resolve":
        Channel.now.emit(T.ADDR_RESOLVED, cm_id)
        cm_id.take("route")
    if step == "connect":
        Channel.now.emit(T.ROUTE_RESOLVED, cm_id)
        ((_, handle, _),) = desk.core.take("add")
        desk.core.emit(handle, READY)
        cm_id.take("connect")
        desk.core.take("remove")
        desk.core.emit(handle, GONE)
        cm_id.take("disconnect")
    cm_id.take("close")
    assert Channel.now.next()
    assert desk.connections.counters()["mesh_failed"] >= 1


def test_a_device_without_room_tries_again(desk: Desk) -> None:
    desk.room = 0
    desk.connections.seeds({PEER})
    cm_id = Channel.now.next()
    for kind in (T.ADDR_RESOLVED, T.ROUTE_RESOLVED):
        Channel.now.emit(kind, cm_id)
    cm_id.take("resolve", "route", "close")
    assert Channel.now.next()


@pytest.mark.parametrize("refused", ["raise_rc", "add"])
def test_a_queue_pair_that_the_core_never_had_is_destroyed_at_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "out of memory")

    monkeypatch.setattr(
        desk.device if refused == "raise_rc" else desk.core, refused, refuse, raising=False
    )
    desk.connections.seeds({PEER})
    cm_id = Channel.now.next()
    for kind in (T.ADDR_RESOLVED, T.ROUTE_RESOLVED):
        Channel.now.emit(kind, cm_id)
    cm_id.take("resolve", "route", "close")
    assert desk.device.destroyed.get(timeout=WAIT_S)
    assert desk.core.calls.empty()  # it would not answer


def test_a_net_device_that_has_another_name_now_ends_the_attempt_alone(
    monkeypatch: pytest.MonkeyPatch, desk: Desk
) -> None:
    monkeypatch.setattr(desk.connections, "_netdev", "not-there")
    desk.connections.seeds({Locator(ip_address("fe80::2"), 4792), PEER})
    made = [Channel.now.next(), Channel.now.next()]
    assert sorted(it.calls.get(timeout=WAIT_S)[0] for it in made) == ["close", "resolve"]
    assert desk.connections.counters()["mesh_failed"] >= 1  # a second attempt may have failed, too


def test_another_device_is_not_taken(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Id, "device", "rxe0")
    desk.connections.seeds({PEER})
    cm_id = Channel.now.next()
    Channel.now.emit(T.ADDR_RESOLVED, cm_id)
    cm_id.take("resolve", "close")
    assert desk.connections.counters()["mesh_failed"] == 1


def test_a_call_that_blocks_stops_nobody_and_is_given_up_at_the_end(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """siw connects its TCP within rdma_connect; until that ends, rdma_disconnect waits for it."""
    gate = threading.Event()
    calm = Id.connect

    def slow(self: Id, *arguments: Any, **more: Any) -> None:
        calm(self, *arguments, **more)
        gate.wait(WAIT_S)

    monkeypatch.setattr(Id, "connect", slow)
    monkeypatch.setattr(Id, "disconnect", lambda self: gate.wait(WAIT_S))
    handle, cm_id = desk.dial()
    Channel.now.emit(T.UNREACHABLE, cm_id)
    desk.core.take("remove")
    desk.core.emit(handle, GONE)
    desk.connections.note_joined(GROUP)  # the lock is free
    assert desk.device.destroyed.empty()
    gate.set()
    desk.core.take("forget")
    cm_id.take("close")
    assert desk.device.destroyed.get(timeout=WAIT_S)


def test_the_end_destroys_what_is_there(desk: Desk) -> None:
    desk.meet()
    desk.connections.close()
    assert desk.device.destroyed.get(timeout=WAIT_S)
    assert Channel.now.closed
    desk.connections.note_joined(GROUP)  # ignored
