# SPDX-License-Identifier: BSD-2-Clause
"""A subnet administrator in memory: groups, paths, tables in segments, reports; and faults on demand.

The rules of joining are OpenSM's, as far as they matter to a client. `FakeSa` is the SA,
`FakePort` the `MadPort` of one host; datagrams go through at once, in the order of sending.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from ipoibu.base.addr import Gid, PKey
from ipoibu.fabric.sa.mad_port import MadIn, MadPortInfo, MadTo
from ipoibu.wire import mad, mcmember, mgid, notice, pathrecord, rmpp, sa
from ipoibu.wire.mad import Method
from ipoibu.wire.mcmember import Component, JoinState, McMemberRecord
from ipoibu.wire.notice import Notice, Trap
from ipoibu.wire.pathrecord import PathRecord
from ipoibu.wire.sa import Attribute, Capability2, ClassPortInfo, SaMad, Status

SA_LID: Final = 1
TABLE_LEN: Final = 56  # records in a table begin at multiples of 8 bytes
CREATES: Final = JoinState.FULL_MEMBER | JoinState.SEND_ONLY_FULL_MEMBER
_NEEDED: Final = (
    Component.MGID
    | Component.PORT_GID
    | Component.QKEY
    | Component.TRAFFIC_CLASS
    | Component.PKEY
    | Component.SL
    | Component.FLOW_LABEL
    | Component.JOIN_STATE
)
_NO_STATE: Final = JoinState(0)


def port_gid(number: int) -> Gid:
    """Return the GID of the n-th host."""
    return Gid(bytes.fromhex("fe80000000000000") + number.to_bytes(8, "big"))


@dataclass(slots=True)
class _Sending:
    """A table under way to a host: `window` is the last segment that the SA may send."""

    segments: list[SaMad]
    sent: int = 0
    window: int = 1


@dataclass(slots=True)
class _Group:
    record: McMemberRecord
    members: dict[Gid, JoinState] = field(default_factory=dict)


class Host(Protocol):
    """A host of the SA: a `FakePort`, or a relay of its datagrams."""

    info: MadPortInfo

    def deliver(self, message: SaMad) -> None: ...


class FakeSa:
    """Answers all `FakePort`s made with it."""

    def __init__(self) -> None:
        self.is_deaf = False
        """While set, the SA does not answer, like a killed subnet manager."""
        self.spoil: Callable[[SaMad], list[SaMad]] = lambda answer: [answer]
        """The copies of an answer: none to lose it, two to send it twice."""
        self.capability2 = Capability2.SEND_ONLY_FULL_MEMBER
        self.groups: dict[Gid, _Group] = {}
        self.path_mtus: dict[Gid, int] = {}
        """The InfiniBand MTUs of paths to a port, if not 2048."""
        self.subscribers: set[tuple[Trap, int]] = set()
        self.acknowledged: list[int] = []
        self.seen: list[SaMad] = []
        self._ports: dict[int, Host] = {}
        self._sending: dict[tuple[int, int], _Sending] = {}
        self._reports = 0

    def forget(self) -> None:
        """Forget all members, like a subnet manager restarted without its cache."""
        self.groups.clear()
        self.subscribers.clear()

    def make_broadcast(self, pkey: PKey, **fields: int) -> Gid:
        """Make the broadcast group of a partition with the flag `ipoib`, by default with OpenSM's
        parameters."""
        gid = mgid.broadcast(pkey)
        base = McMemberRecord(
            mgid=gid,
            port_gid=Gid(bytes(16)),
            qkey=0x0B1B,
            mlid=mcmember.MLID_MIN + len(self.groups),
            mtu_bytes=2048,
            traffic_class=0,
            pkey=pkey.full,
            rate=3,
            lifetime=18,
            sl=0,
            flow_label=0,
            hop_limit=0,
            scope=2,
            join_state=_NO_STATE,
            proxy=False,
        )
        self.groups[gid] = _Group(replace(base, **fields))  # type: ignore[arg-type]
        return gid

    def report(self, event: Notice, times: int = 1) -> None:
        """Report to every subscriber, `times` times, like an SA that receives no acknowledgement."""
        self._reports += 1
        message = SaMad(Method.REPORT, Attribute.NOTICE, self._reports, data=event.pack())
        for trap, lid in sorted(self.subscribers):
            if trap == event.trap:
                for _ in range(times):
                    self._ports[lid].deliver(message)

    # -- what comes in ---------------------------------------------------------------------------

    def plug(self, port: Host) -> None:
        self._ports[port.info.lid] = port

    def receive(self, port: Host, raw: bytes) -> None:
        request = sa.parse_untrusted(raw)
        self.seen.append(request)
        if self.is_deaf:
            return
        if request.method == Method.REPORT_RESPONSE:
            self.acknowledged.append(request.tid)
        elif request.rmpp.type is not rmpp.Type.NONE:
            self._go_on(port, request)
        elif request.method == Method.GET_TABLE:
            self._table(port, request)
        else:
            answer = self._answer(port, request)
            for one in self.spoil(answer):
                port.deliver(one)

    def _answer(self, port: Host, request: SaMad) -> SaMad:
        method = Method.DELETE_RESPONSE if request.method == Method.DELETE else Method.GET_RESPONSE
        head = SaMad(method, request.attribute, request.tid, mask=request.mask)
        try:
            match request.method, request.attribute:
                case Method.GET, Attribute.CLASS_PORT_INFO:
                    return replace(head, data=ClassPortInfo(0x2602, self.capability2, 16).pack())
                case Method.SET, Attribute.MC_MEMBER_RECORD:
                    return replace(head, data=self._join(port, request).pack())
                case Method.DELETE, Attribute.MC_MEMBER_RECORD:
                    self._leave(request)
                    return replace(head, data=request.data)
                case Method.GET, Attribute.MC_MEMBER_RECORD:
                    return replace(head, data=self._find(port, request).pack())
                case Method.GET, Attribute.PATH_RECORD:
                    return replace(head, data=self._path(port, request).pack())
                case Method.SET, Attribute.INFORM_INFO:
                    inform = notice.inform_untrusted(request.data)
                    entry = Trap(inform.trap), port.info.lid
                    if inform.subscribe:
                        self.subscribers.add(entry)
                    else:
                        self.subscribers.discard(entry)
                    return replace(head, data=request.data)
                case _:
                    return replace(head, status=Status.BAD_ATTRIBUTE)
        except _Refused as refused:
            return replace(head, status=refused.status, data=request.data)

    # -- groups and paths ------------------------------------------------------------------------

    def _join(self, port: Host, request: SaMad) -> McMemberRecord:
        asked = mcmember.request_untrusted(request.data, request.mask)
        assert asked.mgid is not None
        assert asked.port_gid is not None
        state = asked.join_state or _NO_STATE
        group = self.groups.get(asked.mgid)
        if group is None:
            if not state & CREATES:
                raise _Refused(Status.REQUEST_INVALID)
            if request.mask & _NEEDED != _NEEDED:
                raise _Refused(Status.INSUFFICIENT_COMPONENTS)
            group = self.groups[asked.mgid] = _Group(
                replace(
                    asked,
                    mlid=mcmember.MLID_MIN + len(self.groups),
                    mtu_bytes=asked.mtu_bytes or 2048,
                    join_state=_NO_STATE,
                    port_gid=Gid(bytes(16)),
                )
            )
        elif asked.mtu_bytes not in (None, group.record.mtu_bytes) or asked.rate not in (
            None,
            group.record.rate,
        ):
            raise _Refused(Status.REQUEST_INVALID)
        if not port.info.has_pkey(PKey(group.record.pkey or 0)):
            raise _Refused(Status.REQUEST_INVALID)
        state |= group.members.get(asked.port_gid, _NO_STATE)
        group.members[asked.port_gid] = state
        return replace(group.record, port_gid=asked.port_gid, join_state=state)

    def _leave(self, request: SaMad) -> None:
        asked = mcmember.request_untrusted(request.data, request.mask)
        assert asked.mgid is not None
        assert asked.port_gid is not None
        group = self.groups.get(asked.mgid)
        state = asked.join_state or _NO_STATE
        held = group.members.get(asked.port_gid, _NO_STATE) if group else _NO_STATE
        if group is None or not state or state & ~held:
            raise _Refused(Status.REQUEST_INVALID)
        group.members[asked.port_gid] = held & ~state
        if not group.members[asked.port_gid]:
            del group.members[asked.port_gid]

    def _find(self, port: Host, request: SaMad) -> McMemberRecord:
        asked = mcmember.request_untrusted(request.data, request.mask)
        assert asked.mgid is not None
        group = self.groups.get(asked.mgid)
        if group is None or not port.info.has_pkey(PKey(group.record.pkey or 0)):
            raise _Refused(Status.NO_RECORDS)
        if asked.port_gid is not None and asked.port_gid not in group.members:
            raise _Refused(Status.NO_RECORDS)
        return group.record

    def _path(self, port: Host, request: SaMad) -> PathRecord:
        asked = pathrecord.query_untrusted(request.data)
        for lid, other in self._ports.items():
            if other.info.gid == asked.dgid and other.info.has_pkey(asked.pkey):
                mtu_bytes = self.path_mtus.get(asked.dgid, 2048)
                return PathRecord(
                    asked.dgid, asked.sgid, lid, port.info.lid, asked.pkey, 0, mtu_bytes, 3, 18
                )
        raise _Refused(Status.NO_RECORDS)

    # -- tables ----------------------------------------------------------------------------------

    def _table(self, port: Host, request: SaMad) -> None:
        pkey = mcmember.request_untrusted(request.data, request.mask).pkey
        records = [
            group.record.pack().ljust(TABLE_LEN, b"\0")
            for group in self.groups.values()
            if pkey in (None, group.record.pkey)
        ]
        table = b"".join(records)
        parts = [table[at : at + sa.DATA_LEN] for at in range(0, len(table), sa.DATA_LEN)] or [b""]
        segments = []
        for number, part in enumerate(parts, 1):
            first, last = number == 1, number == len(parts)
            payload_bytes = len(part) + sa.OWN_HEADER_LEN if last else 0
            segments.append(
                SaMad(
                    Method.GET_TABLE_RESPONSE,
                    request.attribute,
                    request.tid,
                    rmpp=rmpp.data(number, payload_bytes, first=first, last=last),
                    record_bytes=TABLE_LEN,
                    data=part,
                )
            )
        sending = self._sending[port.info.lid, request.tid] = _Sending(segments)
        self._send(port, sending)

    def _go_on(self, port: Host, request: SaMad) -> None:
        """The host acknowledged or aborted: send the segments that it does not have."""
        key = port.info.lid, request.tid
        sending = self._sending.get(key)
        if sending is None:
            return
        if request.rmpp.type is not rmpp.Type.ACK:
            del self._sending[key]
            return
        sending.sent = request.rmpp.data1
        sending.window = request.rmpp.data2
        if sending.sent >= len(sending.segments):
            del self._sending[key]
        else:
            self._send(port, sending)

    def resend(self) -> None:
        """Send the window again, as a sender does without an ACK."""
        for (lid, _), sending in list(self._sending.items()):
            sending.sent = max(0, sending.window - 64)
            self._send(self._ports[lid], sending)

    def _send(self, port: Host, sending: _Sending) -> None:
        todo = sending.segments[sending.sent : sending.window]
        sending.sent += len(todo)
        for segment in todo:
            for one in self.spoil(segment):
                port.deliver(one)


class _Refused(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


class FakePort:
    """A host's port: `host` is its number, from 2, and its LID."""

    def __init__(self, fake_sa: FakeSa, host: int = 2, pkeys: tuple[int, ...] = (0xFFFF,)) -> None:
        self.hears_unasked = True
        self.info = MadPortInfo(
            "fake0", 1, True, host, SA_LID, 0, port_gid(host), tuple(PKey(key) for key in pkeys)
        )
        self.sent: list[tuple[SaMad, MadTo, float]] = []
        self._fake_sa = fake_sa
        self._received: deque[MadIn] = deque()
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        fake_sa.plug(self)

    @property
    def is_closed(self) -> bool:
        return self._read_fd < 0

    def look(self) -> MadPortInfo:
        return self.info

    def fileno(self) -> int:
        return self._read_fd

    def send(self, raw: bytes, to: MadTo, wait_s: float) -> None:
        self.sent.append((sa.parse_untrusted(raw), to, wait_s))
        if to.lid == SA_LID:
            self._fake_sa.receive(self, raw)

    def deliver(self, message: SaMad, lid: int = SA_LID) -> None:
        """Let the host receive a message."""
        self.deliver_raw(message.pack(), lid)

    def deliver_raw(self, raw: bytes, lid: int = SA_LID, status: int = 0) -> None:
        if not self.is_closed:
            self._received.append(MadIn(raw, lid, mad.GSI_QPN, status))
            os.write(self._write_fd, b"\0")

    def receive(self) -> MadIn | None:
        if not self._received:
            return None
        os.read(self._read_fd, 1)
        return self._received.popleft()

    def close(self) -> None:
        if not self.is_closed:
            os.close(self._read_fd)
            os.close(self._write_fd)
            self._read_fd = self._write_fd = -1
