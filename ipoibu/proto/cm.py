# SPDX-License-Identifier: BSD-2-Clause
"""A communication manager over the general services queue pair, sans-IO (InfiniBand volume 1, §12.9).

`Cm` finds out which connection a datagram is about, keeps the caps, and carries out what the table of
`handshake` says; when and with whom to connect is the policy's (`connection`), which talks to it in the
values of `rc`. Everything that a peer can set is bounded here: its time-outs and retries by ours, the
number of its requests by caps, the rate of answers to what is about no connection by a token bucket.
A datagram about a connection has to come from the port that the connection is with.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from ipoibu.addr import Gid, PKey, Qpn
from ipoibu.errors import BadFrame
from ipoibu.limits import (
    CM_ANSWERS_BURST,
    CM_ANSWERS_PER_S,
    CM_RESPITE_MAX_S,
    CM_SERVICE_TIMEOUT_CODE,
    CM_TIMEWAIT_S,
)
from ipoibu.proto.cm_connection import (
    Answer,
    CmConfig,
    CmConnection,
    Key,
    MadSource,
    bounded_s,
    is_connectable,
    private,
)
from ipoibu.proto.cm_state import HALF_OPEN, MACHINE, OVER, Action, Input, State
from ipoibu.proto.effects import Count
from ipoibu.proto.ratelimit import TokenBucket
from ipoibu.proto.rc_events import (
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
from ipoibu.proto.table import Machine
from ipoibu.proto.timers import Timers
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
"""What is sent again in states that retry."""


class Cm:
    """Every hand-shake of one port; a `rc.ConnectionManager`."""

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
        self._by_handle: dict[Handle, CmConnection] = {}  # those whose end the policy does not know
        self._by_request: dict[Key, CmConnection] = {}  # passive ones
        self._by_qpn: dict[Key, CmConnection] = {}  # those that are not over
        self._time_wait: OrderedDict[int, CmConnection] = OrderedDict()  # the oldest first
        self._half_open: Counter[Gid] = Counter()

    def __len__(self) -> int:
        """Connections in whatever state, those in time-wait too."""
        return len(self._by_id)

    def snapshot(self) -> Iterator[tuple[Handle, State]]:
        for found in self._by_id.values():
            yield found.handle, found.state

    # -- inputs ----------------------------------------------------------------------------------

    def listen(self, services: Mapping[int, PKey]) -> None:
        """Take requests for these service IDs, in these partitions, from now on."""
        self._services = services

    def request(self, now: float, request: Request) -> list[CmEffect]:
        """Do what the policy wants; what is about a connection that is over is ignored."""
        if isinstance(request, Connect):
            self._connect(now, request)
        elif (found := self._by_handle.get(request.handle)) is not None:
            self._continue(now, found, request)
        return self._take()

    def received(self, now: float, source: MadSource, raw: bytes) -> list[CmEffect]:
        """A datagram of the class came to queue pair 1; whatever it holds, nothing is raised."""
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
        """When `timer` has something to do next."""
        return self._timers.deadline()

    def stop(self, now: float) -> list[CmEffect]:
        """One farewell to everybody, then nothing is left; the answers will find nothing."""
        for found in list(self._by_handle.values()):
            self._disconnect(now, found)
        for found in list(self._by_id.values()):
            self._remove(found)
        self._services = {}
        return self._take()

    # -- what the policy wants -------------------------------------------------------------------

    def _connect(self, now: float, connect: Connect) -> None:
        if connect.handle in self._by_handle:
            raise ValueError(f"connection {connect.handle} is under way already")
        if not self._make_room():
            self._count("cm_full")
            self._effects.append(Ended(connect.handle, Cause.FULL))
            return
        local_id, wait_s = self._new_id(), seconds(self.config.response_timeout)
        found = CmConnection(
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
        self._insert(found)
        self._feed(now, found, Input.CONNECT)

    def _continue(
        self, now: float, found: CmConnection, request: Confirm | Accept | Reject | Disconnect
    ) -> None:
        match request:
            case Confirm():
                self._feed(now, found, Input.CONFIRM)
            case Accept():
                found.qpn, found.private = request.qpn, request.private
                self._feed(now, found, Input.ACCEPT)
            case Reject():
                found.refusal, found.private = request.reason, request.private
                self._drop(found)
                self._feed(now, found, Input.REJECT)
            case Disconnect():
                self._disconnect(now, found)

    def _disconnect(self, now: float, found: CmConnection) -> None:
        found.refusal, found.private = Reason.CONSUMER, b""
        if not found.remote_id:  # the peer can know the request by our GUID alone, §12.6.7.2
            self._refuse_by_guid(found)
        self._drop(found)
        self._feed(now, found, Input.DISCONNECT)

    # -- what peers say --------------------------------------------------------------------------

    def _req_untrusted(self, now: float, source: MadSource, tid: int, req: Req) -> None:
        gid = req.primary.local_gid
        again = self._by_request.get((gid, req.ca_guid, req.local_id))
        if again is not None:
            if again.is_from(source):
                self._feed(now, again, Input.REQ)
            else:
                self._count("cm_foreign")
            return
        refusal = self._refusal_untrusted(now, source, req)
        if refusal is not None:
            self._answer(now, source, source.gid or gid, tid, _refused(req, *refusal))
            return
        psn, local_id = self._rng.getrandbits(_PSN_BITS), self._new_id()
        handle = Handle(Role.PASSIVE, next(self._serials))
        attributes = self.config.requested(source, req, psn)
        found = CmConnection(
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
        self._insert(found)
        self._by_request[found.request_key] = found
        self._by_qpn[found.qpn_key] = found
        self._feed(now, found, Input.REQ)

    def _refusal_untrusted(
        self, now: float, source: MadSource, req: Req
    ) -> tuple[Reason, bytes] | None:
        """Why a new request is not even shown to the policy."""
        partition = self._services.get(req.service_id)
        if partition is None:
            return Reason.INVALID_SERVICE_ID, b""
        if req.pkey.full != partition.full:
            return Reason.UNSUPPORTED, b""
        if not req.local_id:  # 0 is what others say when they mean none
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
        stale = self._by_qpn.get((gid, req.ca_guid, req.qpn))
        if stale is not None:  # the peer has lost what we have; it may ask again when that is over
            self._end_stale(now, stale)
            return Reason.STALE_CONNECTION, b""
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
        found = self._by_id.get(message.remote_id)
        if isinstance(message, cm.Rej) and message.reason == Reason.TIMEOUT and found is None:
            found = self._find_by_guid_untrusted(source, message)
        elif found is not None and not found.is_meant_by(message):
            found = None
        if found is None:
            self._stranger(now, source, tid, message)
        elif not found.is_from(source):
            self._count("cm_foreign")
        elif isinstance(message, Rep):
            self._rep_untrusted(now, source, found, message)
        else:
            match message:
                case cm.Mra():
                    found.respite_s = min(seconds(message.service_timeout), CM_RESPITE_MAX_S)
                case cm.Rej():
                    found.reason = message.reason
                    found.cause = CAUSES.get(message.reason, Cause.INCOMPATIBLE)
                case cm.Dreq():
                    found.cause, found.tid = Cause.DISCONNECTED, tid
            self._feed(now, found, _INPUTS[type(message)])

    def _rep_untrusted(self, now: float, source: MadSource, found: CmConnection, rep: Rep) -> None:
        if not found.remote_id:
            if not rep.local_id or not is_connectable(rep.qpn):
                self._count("cm_unexpected")  # asked again until it makes sense, or in vain
                return
            found.remote_id, found.remote_guid = rep.local_id, rep.ca_guid
            found.remote_qpn, found.peer = rep.qpn, source.answer(found.gid)
            stale = self._by_qpn.get(found.qpn_key)
            if stale is not None:
                self._end_stale(now, stale)
                self._end_stale(now, found)
                return
            self._by_qpn[found.qpn_key] = found
            found.event = found.replied(self.config, rep)
        self._feed(now, found, Input.REP)

    def _find_by_guid_untrusted(self, source: MadSource, rej: cm.Rej) -> CmConnection | None:
        """Who gives up asking does not know our id: §12.6.7.2 has it send its GUID."""
        guid = int.from_bytes(rej.info[:_GUID_LEN], "big")
        if source.gid is not None:
            return self._by_request.get((source.gid, guid, rej.local_id))
        wanted = (guid, rej.local_id)
        return next((it for key, it in self._by_request.items() if key[1:] == wanted), None)

    def _stranger(self, now: float, source: MadSource, tid: int, message: Answer) -> None:
        """A message about no connection: a peer that believes in one is told, so that it can end."""
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

    def _feed(self, now: float, found: CmConnection, fed: Input) -> None:
        before, actions = self._machine.feed(found, found.local_id, fed)
        if found.state is not before:
            self._account(found, before)
        for action in actions:
            self._act(now, found, before, action)

    def _act(self, now: float, found: CmConnection, before: State, action: Action) -> None:
        match action:
            case Action.TELL_REQUESTED | Action.TELL_REPLIED:
                assert found.event is not None, "what is told has come before"
                self._effects.append(found.event)
                found.event = None
            case Action.TELL_ESTABLISHED:
                self._effects.append(Established(found.handle))
            case Action.TELL_ENDED:
                self._drop(found)
                self._effects.append(Ended(found.handle, found.cause, found.reason))
            case Action.DUPLICATE:
                self._count("cm_duplicate")
            case Action.ARM:
                self._machine.arm(found.local_id, now + self._duration_s(found))
            case Action.FORGET:
                self._remove(found)
            case _:
                self._send(found, before, action)

    def _send(self, found: CmConnection, before: State, action: Action) -> None:
        message: cm.Spoken
        match action:
            case Action.SEND_REQ:
                message = found.req(self.config)
            case Action.SEND_REP:
                message = found.rep(self.config)
            case Action.SEND_RTU:
                message = found.rtu()
            case Action.SEND_MRA:
                message = found.mra()
            case Action.SEND_DREQ:
                message, found.tid = found.dreq(), self._tid_high | found.local_id
            case Action.SEND_DREP:
                message = found.drep()
            case _:
                message = found.rej(before)
        sends = found.sends[action] = found.sends.get(action, 0) + 1
        if sends > 1:
            self._count("cm_retry")
        self._effects.append(SendMad(found.peer, cm.pack(found.tid, message), found.pkey))

    def _ring(self, now: float, local_id: int) -> None:
        found = self._by_id[local_id]
        message = _MESSAGE.get(found.state)
        if message is None or found.sends[message] <= found.retries:
            found.refusal, found.cause = Reason.NO_RESOURCES, Cause.OVERDUE
            self._feed(now, found, Input.TIMEOUT)
            return
        self._count("cm_spent")
        found.cause = Cause.NO_ANSWER
        self._refuse_by_guid(found)
        self._feed(now, found, Input.SPENT)

    def _duration_s(self, found: CmConnection) -> float:
        match found.state:
            case State.MRA_RECEIVED | State.MRA_REP_RECEIVED:
                return found.respite_s + found.wait_s
            case State.REQ_RECEIVED | State.REP_RECEIVED:
                return found.hurry_s
            case State.MRA_SENT | State.MRA_REP_SENT:
                return seconds(CM_SERVICE_TIMEOUT_CODE)
            case State.TIME_WAIT:
                return CM_TIMEWAIT_S
            case _:
                return found.wait_s

    def _end_stale(self, now: float, stale: CmConnection) -> None:
        self._count("cm_stale")
        stale.refusal, stale.cause = Reason.STALE_CONNECTION, Cause.STALE
        self._feed(now, stale, Input.STALE)

    def _refuse_by_guid(self, found: CmConnection) -> None:
        found.refusal, found.private = Reason.TIMEOUT, b""
        found.info = self.config.ca_guid.to_bytes(_GUID_LEN, "big")

    # -- the tables ------------------------------------------------------------------------------

    def _account(self, found: CmConnection, before: State) -> None:
        """Keep what is counted by state."""
        after = found.state
        if (before in HALF_OPEN) != (after in HALF_OPEN):
            self._half_open[found.gid] += 1 if after in HALF_OPEN else -1
            if not self._half_open[found.gid]:
                del self._half_open[found.gid]
        if after in OVER and self._by_qpn.get(found.qpn_key) is found:
            del self._by_qpn[found.qpn_key]
        if after is State.TIME_WAIT:
            self._time_wait[found.local_id] = found

    def _insert(self, found: CmConnection) -> None:
        self._by_id[found.local_id] = self._by_handle[found.handle] = found

    def _drop(self, found: CmConnection) -> None:
        """The policy is done with it."""
        self._by_handle.pop(found.handle, None)

    def _remove(self, found: CmConnection) -> None:
        self._drop(found)
        self._machine.cancel(found.local_id)
        self._time_wait.pop(found.local_id, None)
        self._by_request.pop(found.request_key, None)
        del self._by_id[found.local_id]

    def _make_room(self) -> bool:
        """Whether there is room for one more; time-wait is shortened for it."""
        if len(self._by_id) < self.config.connections_max:
            return True
        if not self._time_wait:
            return False
        self._count("cm_time_wait_cut")
        self._remove(next(iter(self._time_wait.values())))
        return True

    def _new_id(self) -> int:
        """Random, so that nobody off the path can speak for a peer; 0 means none."""
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
