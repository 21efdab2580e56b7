# SPDX-License-Identifier: BSD-2-Clause
"""Fillings of the tables of connections, meshes and the subnet administrator."""

from __future__ import annotations

import asyncio
import random
import socket
import weakref
from collections import deque
from dataclasses import replace
from ipaddress import ip_address

from ipoibu import _core
from ipoibu.base.addr import RC_FLAG, Gid, PKey, Qpn
from ipoibu.base.limits import (
    CONNECTION_EVICTABLE_S,
    MESH_GROUPS_SHOWN,
    NEIGH_PENDING_TOTAL_BYTES,
    SA_EVENTS_MAX,
    SA_RECENT_MAX,
    UNICAST_CONTACTS_MAX,
    UNICAST_GREETING_MAX,
    UNICAST_PEERS_MAX,
    UNICAST_UNSENT_MAX,
    WAITING_OVERHEAD_BYTES,
)
from ipoibu.base.route import key_of
from ipoibu.fabric.sa.transport import SaTransport
from ipoibu.fabric.unicast.reception import Reception
from ipoibu.fabric.unicast.stream import Stream
from ipoibu.proto.cm.cm import MadSource
from ipoibu.proto.mesh.effects import Accept, Handle
from ipoibu.proto.mesh.mesh import Mesh, MeshConfig
from ipoibu.proto.rc.connection import OpenQp
from ipoibu.proto.rc.events import Accept as CmAccept
from ipoibu.proto.rc.events import Cause, Disconnect, Ended, Established
from ipoibu.proto.sa.requests import PACE, Reported, SaAddress, SaRequests
from ipoibu.proto.sa.rmpp import Progress, Transfer
from ipoibu.proto.sa.transaction import Query
from ipoibu.wire import cm, mesh, rmpp
from ipoibu.wire.cm_setup import Rep
from ipoibu.wire.mad import GSI_QPN, Method
from ipoibu.wire.mesh import Greeting, Locator, Operation
from ipoibu.wire.mesh_stream import FrameKind
from ipoibu.wire.notice import Notice, Trap
from ipoibu.wire.sa import Attribute, SaMad
from tests.doubles import cm_desk, rc_desk
from tests.unit.endpoint.test_rc_shell import Desk
from tests.unit.tables.filling import FEW, HONEST, Filling, default_cap, host4, host6, hwaddr


def _greeting(number: int) -> Greeting:
    return Greeting(hwaddr(number), 65520, 32, PKey(0xFFFF), 4792)


class Connections(Filling):
    """Peers make connections, which carry packets."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = FEW, rc_desk.CONFIG.connections_max
        config = replace(rc_desk.CONFIG, connections_max=self.cap)
        self._desk = rc_desk.Desk(config)

    def add(self, number: int) -> None:
        handle, effects = self._desk.request(hwaddr(number))
        if rc_desk.pick(OpenQp, effects):
            self._desk.open(handle)
            self._desk.event(Established(handle))
        self._forget()

    def _forget(self) -> None:
        self.note(self._desk.effects)
        self._desk.effects.clear()
        self._desk.transitions.clear()

    def __len__(self) -> int:
        return len(self._desk.connections)

    def admits_honest(self) -> bool:
        self._desk.wait(CONNECTION_EVICTABLE_S)
        self._desk.accept(hwaddr(HONEST))
        return any(it.hwaddr == hwaddr(HONEST) for it in self._desk.connections.snapshot(0))


class ConnectionsOfOnePort(Connections):
    def __init__(self) -> None:
        super().__init__()
        self.cap = rc_desk.CONFIG.per_port_max
        self.true_cap = None
        self._desk = rc_desk.Desk()

    def add(self, number: int) -> None:
        self._desk.request(replace(hwaddr(1), qpn=Qpn(0x100 + number)))  # and falls silent
        self._forget()


class FailingPeers(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = FEW, rc_desk.CONFIG.peers_max
        self._desk = rc_desk.Desk(replace(rc_desk.CONFIG, peers_max=self.cap))

    def add(self, number: int) -> None:
        connect = self._desk.ask(hwaddr(number, RC_FLAG))
        self._desk.event(Ended(connect.handle, Cause.NO_ANSWER))
        self.note(self._desk.effects)
        self._desk.effects.clear()
        self._desk.transitions.clear()

    def __len__(self) -> int:
        return len(self._desk.connections._peers)

    def admits_honest(self) -> bool:
        return rc_desk.pick(OpenQp, self._desk.want(hwaddr(HONEST, RC_FLAG))) != []


class CmConnections(Filling):
    """Peers' requests are accepted, confirmed and ended, so that all wait out their time."""

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = FEW, cm_desk.CONFIG.connections_max
        self._desk = cm_desk.Desk(replace(cm_desk.CONFIG, connections_max=self.cap))
        self._are_held = True

    def _request(self, number: int) -> bool:
        gid = Gid(host6(number).packed)
        req = replace(
            cm_desk.REQ,
            local_id=number + 1,
            qpn=Qpn(number + 2),
            primary=replace(cm_desk.REQ.primary, local_gid=gid),
        )
        source = MadSource(Qpn(GSI_QPN), gid)
        reported = cm_desk.reported(self._desk.receive(req, source))
        for requested in reported:
            accept = CmAccept(requested.handle, Qpn(0x100 + number), b"")
            rep = cm_desk.only(self._desk.do(accept))
            assert isinstance(rep, Rep)
            self._desk.receive(cm.Rtu(number + 1, rep.local_id), source)
        self.note(self._desk.effects)
        self._desk.effects.clear()
        return bool(reported)

    def add(self, number: int) -> None:
        self._request(number)

    def __len__(self) -> int:
        return len(self._desk.cm)

    def admits_honest(self) -> bool:
        handle = next(iter(self._desk.cm._by_handle))
        self._desk.do(Disconnect(handle))
        self._desk.wait(60)
        return self._request(HONEST)


class HalfOpenRequests(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = cm_desk.CONFIG.half_open_max
        self._desk = cm_desk.Desk()

    def _request(self, number: int) -> bool:
        gid = Gid(host6(number).packed)
        primary = replace(cm_desk.REQ.primary, local_gid=gid)
        req = replace(cm_desk.REQ, local_id=number + 1, qpn=Qpn(number + 2), primary=primary)
        reported = cm_desk.reported(self._desk.receive(req, MadSource(Qpn(GSI_QPN), gid)))
        self.note(self._desk.effects)
        self._desk.effects.clear()
        return bool(reported)

    def add(self, number: int) -> None:
        self._request(number)

    def __len__(self) -> int:
        return self._desk.cm._half_open.total()

    def admits_honest(self) -> bool:
        self._desk.wait(60)
        return self._request(HONEST)


class _Meshed(Filling):
    """A mesh whose peers dial us; nobody answers where we dial."""

    def __init__(self, peers_max: int, contacts_max: int) -> None:
        super().__init__()
        config = MeshConfig(_greeting(HONEST - 1), peers_max, contacts_max)
        self._mesh = Mesh(config, random.Random(1))

    def _meet(self, number: int) -> Handle | None:
        """Return the handle of a peer that we take."""
        handle = self._mesh.new_handle()
        raw = _greeting(number).pack()
        effects = self._mesh.note_requested(self.now, handle, host4(number), raw)
        is_taken = any(isinstance(it, Accept) for it in effects)
        if is_taken:
            effects += self._mesh.note_established(self.now, handle)
        self.note(effects)
        return handle if is_taken else None

    def _wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (at := self._mesh.deadline()) is not None and at <= until:
            self.now = max(at, self.now)
            self.note(self._mesh.timer(self.now))
        self.now = until


class MeshConnectionTable(_Meshed):
    def __init__(self) -> None:
        super().__init__(256, UNICAST_CONTACTS_MAX)
        self.cap, self.true_cap = 256, UNICAST_PEERS_MAX
        self._first: Handle | None = None

    def add(self, number: int) -> None:
        handle = self._meet(number)
        self._first = self._first or handle
        self.lines = 0  # one for each peer, not for those that are refused

    def __len__(self) -> int:
        return len(self._mesh._connections)

    def admits_honest(self) -> bool:
        assert self._first is not None
        self._mesh.note_ended(self.now, self._first)
        return self._meet(HONEST) is not None


class MeshPlaces(_Meshed):
    """Hosts join and leave: we remember where each listens, and dial it for a while."""

    def __init__(self) -> None:
        super().__init__(64, 256)
        self.cap, self.true_cap = 256, UNICAST_CONTACTS_MAX
        self._peer = self._meet(HONEST - 2)
        self.lines = 0

    def add(self, number: int) -> None:
        self.now += 1
        assert self._peer is not None
        place = Locator(host4(number), 4792)
        for message in mesh.peers([place]):
            self.note(self._mesh.control(self.now, self._peer, message))

    def __len__(self) -> int:
        return len(self._mesh._contacts._all) - 1  # the peer's own place

    def admits_honest(self) -> bool:
        self._wait(3600)
        before = len(self)
        self.add(HONEST)
        return len(self) == before + 1


class MeshGroups(_Meshed):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.cap = MESH_GROUPS_SHOWN
        self._peer = self._meet(1)
        self.lines = 0

    def add(self, number: int) -> None:
        assert self._peer is not None
        mgid = Gid(bytes((0xFF, 0x12)) + bytes(10) + number.to_bytes(4, "big"))
        for message in mesh.groups(Operation.JOIN, [mgid]):
            self.note(self._mesh.control(self.now, self._peer, message))

    def __len__(self) -> int:
        return len(self._mesh._connections[self._peer].groups) if self._peer is not None else 0

    def admits_honest(self) -> bool:
        peer = self._meet(HONEST)
        assert peer is not None
        mgid = Gid(bytes((0xFF, 0x12)) + bytes(14))
        for message in mesh.groups(Operation.JOIN, [mgid]):
            self.note(self._mesh.control(self.now, peer, message))
        return mgid in self._mesh._connections[peer].groups


class ReadPlaces(Filling):
    def __init__(self) -> None:
        super().__init__()
        mesh._locator.cache_clear()
        self.cap = mesh._locator.cache_info().maxsize or 0

    def add(self, number: int) -> None:
        mesh.locators_untrusted(bytes(4) + mesh._ENTRY.pack(6, 4792, host6(number).packed))

    def __len__(self) -> int:
        return mesh._locator.cache_info().currsize

    def admits_honest(self) -> bool:
        raw = bytes(4) + mesh._ENTRY.pack(6, 4792, host6(HONEST).packed)
        return mesh.locators_untrusted(raw) == [Locator(host6(HONEST), 4792)]


class _Still(Reception):
    """Without its thread: the test accepts."""

    def _start(self) -> None: ...


class UngreetedHosts(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = UNICAST_GREETING_MAX
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self._table = _Still(port, None, "soft:lo")
        self._table.add(self)  # type: ignore[arg-type]
        self._place = ("127.0.0.1", port)
        self._callers: list[socket.socket] = []

    def count(self, reason: str) -> int:
        self.counts[reason] += 1
        return self.counts[reason]

    def add(self, number: int) -> None:
        self._callers.append(socket.create_connection(self._place))
        self._table._accept()

    def __len__(self) -> int:
        return len(self._table._guests)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        newest = list(self._table._guests)[-1]
        is_there = newest.stream.source == ip_address("127.0.0.1")
        for caller in self._callers:
            caller.close()
        self._table._release()
        return is_there


class UnsentBytes(Filling):
    entries_each = 4096

    def __init__(self) -> None:
        super().__init__()
        self.cap = UNICAST_UNSENT_MAX
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._peer = socket.create_connection(self._listener.getsockname())
        self._ours, _ = self._listener.accept()
        self._stream = self._open()

    def _open(self) -> Stream:
        return Stream(self._ours, None, is_ours=True)  # not connected yet: nothing is sent

    def add(self, number: int) -> None:
        try:
            self._stream.put(FrameKind.CONTROL, bytes(self.entries_each - 4))
        except OSError:
            self._stream = self._open()

    def __len__(self) -> int:
        return len(self._stream._unsent)

    def admits_honest(self) -> bool:
        self._stream = self._open()
        self._stream.put(FrameKind.CONTROL, b"groups")
        self._stream.writable()
        is_sent = not self._stream.awaits_room
        for each in (self._ours, self._peer, self._listener):
            each.close()
        return is_sent


class _Administered(Filling):
    def __init__(self) -> None:
        super().__init__()
        self._requests = SaRequests(random.Random(1))
        self._requests.sa_lid = 1
        self._query = Query(Method.GET, Attribute.PATH_RECORD, bytes(64), 0x380C)


class SaRequestQueue(_Administered):
    """The SA does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self._requests = SaRequests(random.Random(1), replace(PACE, queue=FEW))
        self.cap, self.true_cap = FEW, PACE.queue
        for number in range(PACE.outstanding):
            self.add(-1 - number)

    def add(self, number: int) -> None:
        self.note(self._requests.request(self.now, number, self._query))

    def __len__(self) -> int:
        return len(self._requests._queue)

    def admits_honest(self) -> bool:
        self.note(self._requests.cancel(self.now, -1))
        before = len(self._requests)
        self.note(self._requests.request(self.now, HONEST, self._query))
        return len(self._requests) == before + 1


class PastSaRequests(_Administered):
    def __init__(self) -> None:
        super().__init__()
        self.cap = SA_RECENT_MAX

    def add(self, number: int) -> None:
        self.note(self._requests.request(self.now, number, self._query))
        self.note(self._requests.cancel(self.now, number))

    def __len__(self) -> int:
        return len(self._requests._recent)

    def admits_honest(self) -> bool:
        newest = next(reversed(self._requests._recent))
        self.add(HONEST)
        return next(reversed(self._requests._recent)) != newest


class SaReports(_Administered):
    def __init__(self) -> None:
        super().__init__()
        self.cap = SA_RECENT_MAX
        self._events = 0

    def add(self, number: int) -> None:
        notice = Notice(Trap.GROUP_CREATED, Gid(bytes((0xFF, 0x12)) + bytes(14)))
        report = SaMad(Method.REPORT, Attribute.NOTICE, number, data=notice.pack())
        effects = self._requests.note_received(self.now, SaAddress(1), report.pack())
        self._events += sum(isinstance(it, Reported) for it in effects)
        self.note(effects)

    def __len__(self) -> int:
        return len(self._requests._reports)

    def admits_honest(self) -> bool:
        before = self._events
        self.add(HONEST)
        return self._events == before + 1


class TransferBytes(Filling):
    entries_each = 200

    def __init__(self) -> None:
        super().__init__()
        self.cap, self.true_cap = 200 * FEW, default_cap(Transfer, "cap_bytes")
        self._begin()

    def _begin(self) -> None:
        self._transfer, self._segment = Transfer(self.cap), 0

    def add(self, number: int) -> None:
        self._segment += 1
        header = rmpp.data(self._segment, 0, first=self._segment == 1, last=False)
        if self._transfer.add(header, number.to_bytes(200, "big")) is Progress.BROKEN:
            self.counts["sa_failed"] += 1  # `SaRequests` ends the request
            self._begin()

    def __len__(self) -> int:
        return 200 * len(self._transfer)

    def admits_honest(self) -> bool:
        self._begin()
        self.add(1)
        return len(self) == 200


class UnreadSaEvents(Filling):
    def __init__(self) -> None:
        super().__init__()
        self.cap = SA_EVENTS_MAX
        self._transport = SaTransport.__new__(SaTransport)
        self._transport.counts = self.counts
        self._transport._events = deque(maxlen=SA_EVENTS_MAX)
        self._transport._event_came = asyncio.Event()

    def add(self, number: int) -> None:
        mgid = Gid(bytes((0xFF, 0x12)) + bytes(10) + number.to_bytes(4, "big"))
        self._transport._put(Notice(Trap.GROUP_CREATED, mgid))

    def __len__(self) -> int:
        return len(self._transport._events)

    def admits_honest(self) -> bool:
        self.add(HONEST)
        newest = self._transport._events[-1]
        return isinstance(newest, Notice) and newest.gid is not None


class WaitingForConnection(Filling):
    """Programs send long packets to hosts that are slow to accept connections."""

    entries_each = 1500 + WAITING_OVERHEAD_BYTES

    def __init__(self) -> None:
        super().__init__()
        self.cap = NEIGH_PENDING_TOTAL_BYTES
        self._desk = Desk()
        self.counts = self._desk.counts
        weakref.finalize(self, self._desk.loop.close)

    def _send(self, host: int, payload: bytes) -> None:
        if host4(host) not in self._desk.driver._by_next_hop:
            self._desk.publish(hwaddr(host, RC_FLAG), host4(host))
        fields = {"next_hop": key_of(host4(host)), "data": payload}
        self._desk.event(_core.EVENT_CONNECTING, **fields)

    def add(self, number: int) -> None:
        self._send(number // 100, bytes(1500))

    def __len__(self) -> int:
        return self._desk.driver._waiting.bytes

    def admits_honest(self) -> bool:
        self._send(HONEST, bytes(1500))
        return self._desk.driver._waiting.count(hwaddr(HONEST)) == 1


FILLINGS: dict[str, type[Filling]] = {
    "packets that wait for connections": WaitingForConnection,
    "connections of one interface": Connections,
    "connections of one port": ConnectionsOfOnePort,
    "peers whose failures count": FailingPeers,
    "connections of the communication manager": CmConnections,
    "half-open requests of peers": HalfOpenRequests,
    "connections of a link of peers": MeshConnectionTable,
    "places where peers may listen": MeshPlaces,
    "groups of one peer, to show": MeshGroups,
    "places as they were read": ReadPlaces,
    "TCP connections of hosts that have not greeted": UngreetedHosts,
    "bytes for a peer that does not read": UnsentBytes,
    "requests to the subnet administrator": SaRequestQueue,
    "past requests to the subnet administrator": PastSaRequests,
    "reports of the subnet administrator": SaReports,
    "bytes of a table of the subnet administrator": TransferBytes,
    "events of the subnet administrator that nobody has read": UnreadSaEvents,
}
