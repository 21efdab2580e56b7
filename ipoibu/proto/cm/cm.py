# SPDX-License-Identifier: BSD-2-Clause
"""A communication manager over the general services queue pair, sans-IO (InfiniBand volume 1, §12.9).

`Cm` finds the connection that a datagram names, keeps the caps, and carries out the actions of the table in
`cm_state`. The policy (`rc_policy`) decides when and with whom to connect; requests and events between the
two are in `rc_events`. `Cm` bounds everything that a peer can set: its time-outs and retries by ours, the
number of its requests by caps, the rate of answers to messages about no connection by a token bucket. It
drops a datagram about a connection unless it comes from the port of the connection's peer.

A peer that uses a queue pair for a second connection has lost the first one (§12.9.8.3.1). `Cm` ends the
first one only when the peer has proven that it receives at its address: its RTU or REP carries our random
id. Until then both exist, so a REQ with a false source ends nothing.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import (
    CM_ANSWERS_BURST,
    CM_ANSWERS_PER_S,
    CM_RESPITE_MAX_S,
    CM_SERVICE_TIMEOUT_CODE,
    CM_TIMEWAIT_S,
)
from ipoibu.proto.cm.connection import (
    Answer,
    CmConfig,
    CmConnection,
    Key,
    MadSource,
    bounded_s,
    is_connectable,
    private,
)
from ipoibu.proto.cm.state import HALF_OPEN, MACHINE, OVER, Action, Input, State
from ipoibu.proto.effects import Count
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.table import Machine
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.rc.events import (
    CAUSES,
    Accept,
    Cause,
    CmEffect,
    Confirm,
    Connect,
    Disconnect,
    Ended,
    Established,
    Handle,
    Reject,
    Request,
    Requested,
    Role,
    SendMad,
)
from ipoibu.wire import cm
from ipoibu.wire.cm_code import About, Reason, seconds
from ipoibu.wire.cm_setup import Rep, Req
from ipoibu.wire.mad import GSI_QPN

__all__ = ["Cm", "CmConfig", "MadSource"]

_ID_BITS: Final = 32
_PSN_BITS: Final = 24
_GUID_LEN: Final = 8

_INPUTS: Final[dict[type, Input]] = {
    Rep: Input.REP,
    cm.Mra: Input.MRA,
    cm.Rtu: Input.RTU,
    cm.Rej: Input.REJ,
    cm.Dreq: Input.DREQ,
    cm.Drep: Input.DREP,
}
_MESSAGE: Final = {
    State.REQ_SENT: Action.SEND_REQ,
    State.MRA_RECEIVED: Action.SEND_REQ,
    State.REP_SENT: Action.SEND_REP,
    State.MRA_REP_RECEIVED: Action.SEND_REP,
    State.DREQ_SENT: Action.SEND_DREQ,
}
"""The message that the manager repeats in each state."""


class Cm:
    """All CM connections of one port; a `ConnectionManager`."""

    def __init__(self, config: CmConfig, rng: random.Random) -> None:
        self.config = config
        self._rng = rng
        self._timers = Timers()
        self._machine = Machine(MACHINE, self._timers, self._ring)
        self._effects: list[CmEffect] = []
        self._services: Mapping[int, PKey] = {}
        self._serials = itertools.count()
        self._tid_high = rng.getrandbits(32) << 32
        self._answers = TokenBucket(CM_ANSWERS_PER_S, CM_ANSWERS_BURST)
        self._by_id: dict[int, CmConnection] = {}
        self._by_handle: dict[Handle, CmConnection] = {}  # the policy has not seen their end yet
        self._by_request: dict[Key, CmConnection] = {}  # passive
        self._by_qpn: dict[Key, CmConnection] = {}  # proven and not over
        self._time_wait: OrderedDict[int, CmConnection] = OrderedDict()  # oldest first
        self._half_open: Counter[Gid] = Counter()

    def __len__(self) -> int:
        """The number of connections in any state, time-wait included."""
        return len(self._by_id)

    def snapshot(self) -> Iterator[tuple[Handle, State]]:
        for conn in self._by_id.values():
            yield conn.handle, conn.state

    # -- inputs ----------------------------------------------------------------------------------

    def listen(self, services: Mapping[int, PKey]) -> None:
        """From now on, take requests for these service IDs in these partitions."""
        self._services = services

    def request(self, now: float, request: Request) -> list[CmEffect]:
        """Carry out a request of the policy; ignore it if its connection is over."""
        if isinstance(request, Connect):
            self._connect(now, request)
        elif (conn := self._by_handle.get(request.handle)) is not None:
            self._continue(now, conn, request)
        return self._take()

    def note_received(self, now: float, source: MadSource, raw: bytes) -> list[CmEffect]:
        """Take a CM datagram that arrived at queue pair 1. Count a bad one; it never raises an error."""
        try:
            tid, message = cm.parse_untrusted(raw)
        except BadFrame as error:
            self._count(error.reason)
            return self._take()
        match message:
            case Req():
                self._req_untrusted(now, source, tid, message)
            case cm.Other():
                self._count("cm_unknown")
            case _:
                self._answer_untrusted(now, source, tid, message)
        return self._take()

    def timer(self, now: float) -> list[CmEffect]:
        self._timers.run(now)
        return self._take()

    def deadline(self) -> float | None:
        """Return the time of the next call of `timer`."""
        return self._timers.deadline()

    def stop(self, now: float) -> list[CmEffect]:
        """End every connection with one message to the peer, forget it, and ignore answers."""
        for conn in list(self._by_handle.values()):
            self._disconnect(now, conn)
        for conn in list(self._by_id.values()):
            self._remove(conn)
        self._services = {}
        return self._take()

    # -- requests of the policy ------------------------------------------------------------------

    def _connect(self, now: float, connect: Connect) -> None:
        if connect.handle in self._by_handle:
            raise ValueError(f"connection {connect.handle} is under way already")
        if not self._make_room():
            self._count("cm_full")
            self._effects.append(Ended(connect.handle, Cause.FULL))
            return
        local_id, wait_s = self._new_id(), seconds(self.config.response_timeout)
        conn = CmConnection(
            handle=connect.handle,
            local_id=local_id,
            gid=connect.destination.gid,
            peer=replace(connect.destination, qpn=Qpn(GSI_QPN)),
            tid=self._tid_high | local_id,
            psn=self._rng.getrandbits(_PSN_BITS),
            wait_s=wait_s,
            hurry_s=wait_s / 2,
            retries=self.config.retries,
            pkey=connect.pkey,
            qpn=connect.qpn,
            connect=connect,
        )
        self._insert(conn)
        self._feed(now, conn, Input.CONNECT)

    def _continue(
        self, now: float, conn: CmConnection, request: Confirm | Accept | Reject | Disconnect
    ) -> None:
        match request:
            case Confirm():
                self._feed(now, conn, Input.CONFIRM)
            case Accept():
                conn.qpn, conn.private = request.qpn, request.private
                self._feed(now, conn, Input.ACCEPT)
            case Reject():
                conn.refusal, conn.private = request.reason, request.private
                self._drop(conn)
                self._feed(now, conn, Input.REJECT)
            case Disconnect():
                self._disconnect(now, conn)

    def _disconnect(self, now: float, conn: CmConnection) -> None:
        conn.refusal, conn.private = Reason.CONSUMER, b""
        if not conn.remote_id:  # only our GUID names the request to the peer, §12.6.7.2
            self._refuse_by_guid(conn)
        self._drop(conn)
        self._feed(now, conn, Input.DISCONNECT)

    # -- messages of peers -----------------------------------------------------------------------

    def _req_untrusted(self, now: float, source: MadSource, tid: int, req: Req) -> None:
        gid = req.primary.local_gid
        known = self._by_request.get((gid, req.ca_guid, req.local_id))
        if known is not None:
            if known.is_from(source):
                self._feed(now, known, Input.REQ)
            else:
                self._count("cm_foreign")
            return
        refusal = self._refusal_untrusted(source, req)
        if refusal is not None:
            self._answer(now, source, source.gid or gid, tid, _refused(req, *refusal))
            return
        psn, local_id = self._rng.getrandbits(_PSN_BITS), self._new_id()
        handle = Handle(Role.PASSIVE, next(self._serials))
        attributes = self.config.requested(source, req, psn)
        conn = CmConnection(
            handle=handle,
            local_id=local_id,
            gid=gid,
            peer=source.answer(gid),
            tid=tid,
            psn=psn,
            wait_s=bounded_s(req.local_timeout),
            hurry_s=bounded_s(req.remote_timeout) / 2,
            retries=min(req.cm_retries, self.config.retries),
            pkey=self._services[req.service_id],
            remote_id=req.local_id,
            remote_guid=req.ca_guid,
            remote_qpn=req.qpn,
            event=Requested(handle, gid, req.service_id, attributes, private(req)),
        )
        self._insert(conn)
        self._by_request[conn.request_key] = conn
        self._feed(now, conn, Input.REQ)

    def _refusal_untrusted(self, source: MadSource, req: Req) -> tuple[Reason, bytes] | None:
        """The reason to refuse a new request before the policy sees it, or None."""
        partition = self._services.get(req.service_id)
        if partition is None:
            return Reason.INVALID_SERVICE_ID, b""
        if req.pkey.full != partition.full:
            return Reason.UNSUPPORTED, b""
        if not req.local_id:  # 0 means none
            return Reason.INVALID_COMM_ID, b""
        refusal = self.config.refusal(source, req)
        if refusal is not None:
            return refusal
        try:
            private(req)
        except BadFrame as error:
            self._count(error.reason)
            return Reason.CONSUMER, b""
        gid = req.primary.local_gid
        if (
            self._half_open.total() >= self.config.half_open_max
            or self._half_open[gid] >= self.config.half_open_per_port_max
        ):
            self._count("cm_half_open_full")
            return Reason.NO_RESOURCES, b""
        if not self._make_room():
            self._count("cm_full")
            return Reason.NO_RESOURCES, b""
        return None

    def _answer_untrusted(self, now: float, source: MadSource, tid: int, message: Answer) -> None:
        conn = self._by_id.get(message.remote_id)
        if isinstance(message, cm.Rej) and message.reason == Reason.TIMEOUT and conn is None:
            conn = self._find_by_guid_untrusted(source, message)
        elif conn is not None and not conn.is_meant_by(message):
            if isinstance(message, cm.Dreq) and conn.remote_id == message.local_id:
                self._count("cm_unexpected")  # a DREP would say that the connection is over
                return
            conn = None
        if conn is None:
            self._answer_unknown(now, source, tid, message)
        elif not conn.is_from(source):
            self._count("cm_foreign")
        elif isinstance(message, Rep):
            self._rep_untrusted(now, source, conn, message)
        else:
            match message:
                case cm.Mra():
                    conn.respite_s = min(seconds(message.service_timeout), CM_RESPITE_MAX_S)
                case cm.Rej():
                    conn.reason = message.reason
                    conn.cause = CAUSES.get(message.reason, Cause.INCOMPATIBLE)
                case cm.Dreq():
                    conn.cause, conn.tid = Cause.DISCONNECTED, tid
            self._feed(now, conn, _INPUTS[type(message)])

    def _rep_untrusted(self, now: float, source: MadSource, conn: CmConnection, rep: Rep) -> None:
        if not conn.remote_id:
            if not rep.local_id or not is_connectable(rep.qpn):
                # The timer repeats the REQ until a valid REP comes, or the retries end.
                self._count("cm_unexpected")
                return
            conn.remote_id, conn.remote_guid = rep.local_id, rep.ca_guid
            conn.remote_qpn, conn.peer = rep.qpn, source.answer(conn.gid)
            stale = self._by_qpn.get(conn.qpn_key)
            if stale is not None:
                self._end_stale(now, stale)
                self._end_stale(now, conn)
                return
            self._by_qpn[conn.qpn_key] = conn
            conn.event = conn.replied(self.config, rep)
        self._feed(now, conn, Input.REP)

    def _find_by_guid_untrusted(self, source: MadSource, rej: cm.Rej) -> CmConnection | None:
        """Find the connection by the peer's GUID: a peer that gives its REQ up does not know our id
        (§12.6.7.2)."""
        guid = int.from_bytes(rej.info[:_GUID_LEN], "big")
        if source.gid is not None:
            return self._by_request.get((source.gid, guid, rej.local_id))
        wanted = (guid, rej.local_id)
        return next((it for key, it in self._by_request.items() if key[1:] == wanted), None)

    def _answer_unknown(self, now: float, source: MadSource, tid: int, message: Answer) -> None:
        """Answer a message about an unknown connection, so that the peer can end it."""
        self._count("cm_unexpected")
        _, actions = MACHINE.step(State.CLOSED, _INPUTS[type(message)])
        if not actions or source.gid is None:
            return
        ours, theirs = message.remote_id, message.local_id
        reply: cm.Spoken = cm.Drep(ours, theirs)
        if Action.SEND_REJ in actions:
            reply = cm.Rej(ours, theirs, About.REP, Reason.INVALID_COMM_ID)
        self._answer(now, source, source.gid, tid, reply)

    def _answer(
        self, now: float, source: MadSource, gid: Gid, tid: int, message: cm.Spoken
    ) -> None:
        if self._answers.take(now):
            answer = SendMad(source.answer(gid), cm.pack(tid, message), source.pkey)
            self._effects.append(answer)
        else:
            self._count("cm_answer_limited")

    # -- one step --------------------------------------------------------------------------------

    def _feed(self, now: float, conn: CmConnection, fed: Input) -> None:
        before, actions = self._machine.feed(conn, conn.local_id, fed)
        if conn.state is not before:
            self._account(conn, before)
        for action in actions:
            self._act(now, conn, before, action)

    def _act(self, now: float, conn: CmConnection, before: State, action: Action) -> None:
        match action:
            case Action.REPORT_REQUESTED | Action.REPORT_REPLIED:
                assert conn.event is not None, "it is set before REQ or REP is fed"
                self._effects.append(conn.event)
                conn.event = None
            case Action.REPORT_ESTABLISHED:
                self._replace_stale(now, conn)
                self._effects.append(Established(conn.handle))
            case Action.REPORT_ENDED:
                self._drop(conn)
                self._effects.append(Ended(conn.handle, conn.cause, conn.reason))
            case Action.DUPLICATE:
                self._count("cm_duplicate")
            case Action.ARM:
                self._machine.arm(conn.local_id, now + self._duration_s(conn))
            case Action.FORGET:
                self._remove(conn)
            case _:
                self._send(conn, before, action)

    def _send(self, conn: CmConnection, before: State, action: Action) -> None:
        message: cm.Spoken
        match action:
            case Action.SEND_REQ:
                message = conn.req(self.config)
            case Action.SEND_REP:
                message = conn.rep(self.config)
            case Action.SEND_RTU:
                message = conn.rtu()
            case Action.SEND_MRA:
                message = conn.mra()
            case Action.SEND_DREQ:
                message, conn.tid = conn.dreq(), self._tid_high | conn.local_id
            case Action.SEND_DREP:
                message = conn.drep()
            case _:
                message = conn.rej(before)
        sends = conn.sends[action] = conn.sends.get(action, 0) + 1
        if sends > 1:
            self._count("cm_retry")
        self._effects.append(SendMad(conn.peer, cm.pack(conn.tid, message), conn.pkey))

    def _ring(self, now: float, local_id: int) -> None:
        conn = self._by_id[local_id]
        message = _MESSAGE.get(conn.state)
        if message is None or conn.sends[message] <= conn.retries:
            conn.refusal, conn.cause = Reason.NO_RESOURCES, Cause.OVERDUE
            self._feed(now, conn, Input.TIMEOUT)
            return
        self._count("cm_spent")
        conn.cause = Cause.NO_ANSWER
        self._refuse_by_guid(conn)
        self._feed(now, conn, Input.SPENT)

    def _duration_s(self, conn: CmConnection) -> float:
        match conn.state:
            case State.MRA_RECEIVED | State.MRA_REP_RECEIVED:
                return conn.respite_s + conn.wait_s
            case State.REQ_RECEIVED | State.REP_RECEIVED:
                return conn.hurry_s
            case State.MRA_SENT | State.MRA_REP_SENT:
                return seconds(CM_SERVICE_TIMEOUT_CODE)
            case State.TIME_WAIT:
                return CM_TIMEWAIT_S
            case _:
                return conn.wait_s

    def _replace_stale(self, now: float, conn: CmConnection) -> None:
        """End the older connection with the queue pair of a peer that has proven itself, if there is
        one."""
        stale = self._by_qpn.get(conn.qpn_key)
        if stale is not None and stale is not conn:
            self._end_stale(now, stale)
        self._by_qpn[conn.qpn_key] = conn

    def _end_stale(self, now: float, stale: CmConnection) -> None:
        self._count("cm_stale")
        stale.refusal, stale.cause = Reason.STALE_CONNECTION, Cause.STALE
        self._feed(now, stale, Input.STALE)

    def _refuse_by_guid(self, conn: CmConnection) -> None:
        conn.refusal, conn.private = Reason.TIMEOUT, b""
        conn.info = self.config.ca_guid.to_bytes(_GUID_LEN, "big")

    # -- the tables ------------------------------------------------------------------------------

    def _account(self, conn: CmConnection, before: State) -> None:
        """Update the tables that depend on the state."""
        after = conn.state
        if (before in HALF_OPEN) != (after in HALF_OPEN):
            self._half_open[conn.gid] += 1 if after in HALF_OPEN else -1
            if not self._half_open[conn.gid]:
                del self._half_open[conn.gid]
        if after in OVER and self._by_qpn.get(conn.qpn_key) is conn:
            del self._by_qpn[conn.qpn_key]
        if after is State.TIME_WAIT:
            self._time_wait[conn.local_id] = conn

    def _insert(self, conn: CmConnection) -> None:
        self._by_id[conn.local_id] = self._by_handle[conn.handle] = conn

    def _drop(self, conn: CmConnection) -> None:
        """The policy has given the connection up: forget its handle."""
        self._by_handle.pop(conn.handle, None)

    def _remove(self, conn: CmConnection) -> None:
        self._drop(conn)
        self._machine.cancel(conn.local_id)
        self._time_wait.pop(conn.local_id, None)
        self._by_request.pop(conn.request_key, None)
        del self._by_id[conn.local_id]

    def _make_room(self) -> bool:
        """Return whether there is room for one more connection; drop the oldest in time-wait to make
        room."""
        if len(self._by_id) < self.config.connections_max:
            return True
        if not self._time_wait:
            return False
        self._count("cm_time_wait_cut")
        self._remove(next(iter(self._time_wait.values())))
        return True

    def _new_id(self) -> int:
        """Return a random id, so that a host off the path cannot forge a peer's messages; 0 means none."""
        while (local_id := self._rng.getrandbits(_ID_BITS)) in self._by_id or not local_id:
            pass
        return local_id

    # -- effects ---------------------------------------------------------------------------------

    def _count(self, reason: str) -> None:
        self._effects.append(Count(reason))

    def _take(self) -> list[CmEffect]:
        effects, self._effects = self._effects, []
        return effects


def _refused(req: Req, reason: Reason, info: bytes) -> cm.Rej:
    return cm.Rej(0, req.local_id, About.REQ, reason, info)
