# SPDX-License-Identifier: BSD-2-Clause
"""Requests to the subnet administrator (SA), sans-IO: requests go in, datagrams and answers come out.

Every attempt has a transaction id of its own, because Linux refuses to send an id whose answer it still
waits for. An answer to an earlier attempt is as good as any. Without an answer the client sends a request
again after a time that doubles, with jitter. Requests beyond the allowed number wait in a queue.

The client also keeps track of whether the SA answers at all. It asks a silent SA for its ClassPortInfo
until the SA answers again: a restarted subnet manager has forgotten all memberships, so every member has to
join again.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import (
    SA_ATTEMPTS,
    SA_JITTER,
    SA_OUTSTANDING_MAX,
    SA_PROBE_MAX_S,
    SA_PROBE_MIN_S,
    SA_QUEUE_MAX,
    SA_RECENT_MAX,
    SA_TIMEOUT_S,
)
from ipoibu.proto.effects import Count
from ipoibu.proto.machine.backoff import Backoff
from ipoibu.proto.machine.table import Machine, Table
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.sa.rmpp import Progress, Transfer
from ipoibu.proto.sa.transaction import (
    MACHINE,
    Action,
    Answer,
    Failure,
    Input,
    Query,
    State,
    Transaction,
)
from ipoibu.wire import mad, notice, rmpp, sa
from ipoibu.wire.mad import Method
from ipoibu.wire.notice import Notice
from ipoibu.wire.sa import Attribute, SaMad, Status


class Service(enum.Enum):
    ANSWERING = "answering"
    SILENT = "silent"


class ServiceInput(enum.Enum):
    ANSWERED = "the SA answered a request"
    UNANSWERED = "the client gave a request up"
    TIMEOUT = "the probe timer expired"


class ServiceAction(enum.Enum):
    REPORT_SILENT = "report that the SA does not answer"
    REPORT_RETURNED = "report that the SA answers again"
    PROBE = "ask the SA for its ClassPortInfo"
    ARM = "start the probe timer"


_V, _VI, _VA = Service, ServiceInput, ServiceAction

# fmt: off
SERVICE: Final = Table("SA", Service.ANSWERING, {
    (_V.ANSWERING, _VI.ANSWERED):   (_V.ANSWERING, ()),
    (_V.ANSWERING, _VI.UNANSWERED): (_V.SILENT, (_VA.REPORT_SILENT, _VA.ARM)),
    (_V.SILENT, _VI.ANSWERED):      (_V.ANSWERING, (_VA.REPORT_RETURNED,)),
    (_V.SILENT, _VI.UNANSWERED):    (_V.SILENT, ()),
    (_V.SILENT, _VI.TIMEOUT):       (_V.SILENT, (_VA.PROBE, _VA.ARM)),
})
# fmt: on


@dataclass(frozen=True, slots=True)
class Pace:
    """The client's time-outs and limits; `timeout_s` is for the first attempt and doubles with each retry."""

    timeout_s: float = SA_TIMEOUT_S
    attempts: int = SA_ATTEMPTS
    outstanding: int = SA_OUTSTANDING_MAX
    queue: int = SA_QUEUE_MAX
    probe_min_s: float = SA_PROBE_MIN_S
    probe_max_s: float = SA_PROBE_MAX_S

    def jittered(self, seconds: float, rng: random.Random) -> float:
        return seconds * rng.uniform(1 - SA_JITTER, 1 + SA_JITTER)

    @property
    def longest_s(self) -> float:
        """Return the time from the first attempt after which a request without an answer ends at the
        latest."""
        return self.timeout_s * ((1 << self.attempts) - 1) * (1 + SA_JITTER)


PACE: Final = Pace()


@dataclass(frozen=True, slots=True)
class SaAddress:
    """The sender of a datagram."""

    lid: int
    qpn: int = mad.GSI_QPN


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send `raw`, to the SA unless it answers `to`.

    An answer may come for `wait_s`; 0 if we expect none.
    """

    raw: bytes
    wait_s: float = 0.0
    to: SaAddress | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    key: Hashable
    answer: Answer


@dataclass(frozen=True, slots=True)
class Failed:
    key: Hashable
    failure: Failure


@dataclass(frozen=True, slots=True)
class Reported:
    """An event of a subscription, which the client has acknowledged."""

    notice: Notice


class Change(enum.Enum):
    """The SA's change between silence and answers."""

    SILENT = "silent"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class SaChanged:
    """The SA has stopped answering, or answers again."""

    change: Change


SaEffect = Transmit | Answered | Failed | Reported | SaChanged | Count

_FAILURES: Final = {
    Input.SPENT: Failure.TIMEOUT,
    Input.BROKEN: Failure.BROKEN,
    Input.STOPPED: Failure.STOPPED,
}
_PROGRESS: Final = {
    Progress.REPEATED: Input.REPEATED,
    Progress.GROWN: Input.GROWN,
    Progress.WINDOW: Input.WINDOW,
    Progress.WHOLE: Input.WHOLE,
    Progress.BROKEN: Input.BROKEN,
}
_PROBE: Final = Query(Method.GET, Attribute.CLASS_PORT_INFO)


@dataclass(slots=True)
class _Sa:
    """The SA as this client sees it; `probing` spaces the probes while the SA does not answer."""

    probing: Backoff
    state: Service = SERVICE.initial
    answered_s: float = float("-inf")  # the time of its latest answer


class SaRequests:
    """All requests of one client; the caller names a request by a `key`, which is unique while the request
    is under way."""

    def __init__(self, rng: random.Random, pace: Pace = PACE) -> None:
        self.pace = pace
        self.sa_lid = 0
        """The SA's LID, 0 if unknown; the client drops datagrams from other LIDs. See `note_moved`."""
        self._rng = rng
        self._timers = Timers()
        self._effects: list[SaEffect] = []
        self._requests: dict[Hashable, Transaction] = {}
        self._queue: deque[Transaction] = deque()
        self._outstanding = 0
        self._by_tid: dict[int, Transaction] = {}
        self._recent: OrderedDict[int, bool] = OrderedDict()  # tid: whether the SA has answered
        self._reports: OrderedDict[tuple[SaAddress, int, Notice], None] = OrderedDict()
        # Linux and umad2sim overwrite parts of the upper half; the lower half is our key.
        self._tid_high = rng.getrandbits(32) << 32
        self._tid_low = itertools.count(rng.getrandbits(32))
        self._sa = _Sa(Backoff(pace.probe_min_s, pace.probe_max_s))
        self._machine = Machine(MACHINE, self._timers, self._ring)
        self._sa_machine = Machine(SERVICE, self._timers, self._ring_probe)

    @property
    def is_answering(self) -> bool:
        return self._sa.state is Service.ANSWERING

    def __len__(self) -> int:
        return len(self._requests)

    # -- inputs ----------------------------------------------------------------------------------

    def request(self, now: float, key: Hashable, query: Query) -> list[SaEffect]:
        """Send a request; `Answered` or `Failed` with its `key` ends it, unless `cancel` comes first."""
        if key in self._requests:
            raise ValueError(f"request {key!r} is under way already")
        if len(self._queue) >= self.pace.queue:
            self._count("sa_queue_full")
            self._effects.append(Failed(key, Failure.QUEUE_FULL))
        else:
            self._enqueue(now, Transaction(key, query, self.pace.attempts))
        return self._take()

    def cancel(self, now: float, key: Hashable) -> list[SaEffect]:
        """Forget a request, if it is under way."""
        request = self._requests.get(key)
        if request is not None:
            self._feed(now, request, Input.CANCEL)
        return self._take()

    def note_moved(self, now: float, sa_lid: int) -> list[SaEffect]:
        """Note the SA's LID; what waits for an SA at another LID goes to this one at once."""
        before, self.sa_lid = self.sa_lid, sa_lid
        if sa_lid not in (before, 0):
            for request in list(self._requests.values()):
                if request.state is not State.QUEUED:
                    self._feed(now, request, Input.MOVED)
        return self._take()

    def stop(self, now: float) -> list[SaEffect]:
        """Forget every request, and whether the SA answers."""
        self._queue.clear()
        for request in list(self._requests.values()):
            if request.state is State.QUEUED:
                del self._requests[request.key]
            else:
                self._feed(now, request, Input.CANCEL)
        self._sa_machine.cancel(None)
        return self._take()

    def note_received(self, now: float, peer: SaAddress, raw: bytes) -> list[SaEffect]:
        """Take a datagram. Count a bad one; it never raises an error."""
        try:
            self._note_received_untrusted(now, peer, sa.parse_untrusted(raw))
        except BadFrame as error:
            self._count(error.reason)
        return self._take()

    def deadline(self) -> float | None:
        """Return the time of the next call of `timer`; None without one."""
        return self._timers.deadline()

    def timer(self, now: float) -> list[SaEffect]:
        self._timers.run(now)
        return self._take()

    # -- datagrams from the SA ------------------------------------------------------------------

    def _note_received_untrusted(self, now: float, peer: SaAddress, received: SaMad) -> None:
        if self.sa_lid and peer.lid != self.sa_lid:
            self._count("sa_foreign")
            return
        if received.method == Method.REPORT:
            self._report_untrusted(peer, received)
        else:
            self._answer(now, received)

    def _answer(self, now: float, received: SaMad) -> None:
        tid = received.tid & 0xFFFFFFFF
        request = self._by_tid.get(tid)
        if request is None and tid not in self._recent:
            self._count("sa_unexpected")
            return
        self._sa.answered_s = now
        self._feed_sa(now, ServiceInput.ANSWERED)
        if request is None:
            self._late(tid, received)
        elif (received.method, received.attribute) != (request.response, request.query.attribute):
            self._count("sa_unexpected")
        elif received.rmpp.type is rmpp.Type.DATA:
            self._segment(now, request, tid, received)
        elif received.rmpp.type is not rmpp.Type.NONE:
            self._feed(now, request, Input.STOPPED)
        elif received.status == Status.BUSY:
            self._count("sa_busy")
            self._feed(now, request, Input.BUSY)
        else:
            request.answer = Answer(received.status, received.data, received.record_bytes)
            self._feed(now, request, Input.ANSWER)

    def _segment(self, now: float, request: Transaction, tid: int, received: SaMad) -> None:
        if request.transfer is not None and request.transfer_tid != tid:
            self._count("sa_duplicate")  # another attempt's transfer is under way
            return
        transfer = request.transfer or Transfer()
        progress = transfer.add(received.rmpp, received.data)
        if progress is Progress.IGNORED:
            return
        request.transfer, request.transfer_tid = transfer, tid
        if progress is Progress.WHOLE:
            request.answer = Answer(received.status, transfer.data, received.record_bytes)
        elif progress is Progress.REPEATED:
            self._count("sa_duplicate")
        self._feed(now, request, _PROGRESS[progress])

    def _late(self, tid: int, received: SaMad) -> None:
        self._count("sa_duplicate" if self._recent[tid] else "sa_late")
        if received.rmpp.type is rmpp.Type.DATA and received.rmpp.is_last:
            # our last ACK was lost, or the sender does not know yet that we gave the request up
            segment = received.rmpp.data1
            self._send_rmpp(received.method, received.attribute, tid, rmpp.ack(segment, segment))

    def _report_untrusted(self, peer: SaAddress, received: SaMad) -> None:
        """Acknowledge every report, because the SA repeats it until then, but report the event only
        once."""
        response = SaMad(
            Method.REPORT_RESPONSE, received.attribute, received.tid, data=received.data
        )
        self._effects.append(Transmit(response.pack(), to=peer))
        if received.attribute != Attribute.NOTICE:
            self._count("sa_unexpected")
            return
        event = notice.notice_untrusted(received.data)
        report = peer, received.tid, event  # a restarted SA begins with the same ids
        if report in self._reports:
            self._count("sa_duplicate")
            return
        self._reports[report] = None
        if len(self._reports) > SA_RECENT_MAX:
            self._reports.popitem(last=False)
        self._effects.append(Reported(event))

    # -- requests --------------------------------------------------------------------------------

    def _enqueue(self, now: float, request: Transaction) -> None:
        self._requests[request.key] = request
        self._queue.append(request)
        self._next(now)

    def _next(self, now: float) -> None:
        while self._queue and self._outstanding < self.pace.outstanding:
            self._feed(now, self._queue.popleft(), Input.TURN)

    def _feed(self, now: float, request: Transaction, fed: Input) -> None:
        before, actions = self._machine.feed(request, request.key, fed)
        if fed is Input.TURN:
            self._outstanding += 1
            request.since_s = now
        for action in actions:
            self._act(now, request, fed, action)
        if request.state is State.DONE:
            self._forget(now, request, before)

    def _act(self, now: float, request: Transaction, fed: Input, action: Action) -> None:
        match action:
            case Action.RESTART:
                request.elsewhere, request.since_s = len(request.tids), now
                request.transfer = None
            case Action.SEND:
                self._send(request)
            case Action.ARM:
                self._machine.arm(request.key, now + self._timeout_s(request))
            case Action.ACKNOWLEDGE:
                assert request.transfer is not None, "only a segment asks for an ACK"
                self._send_rmpp_of(request, request.transfer.ack)
            case Action.ABORT:
                assert request.transfer is not None, "only a transfer is aborted"
                fault = request.transfer.fault or rmpp.Status.TOTAL_TIME_TOO_LONG
                self._send_rmpp_of(request, rmpp.abort(fault))
                request.transfer = None
            case Action.FINISH:
                if not request.is_probe:
                    assert request.answer is not None, (
                        "the answer is set before ANSWER or WHOLE is fed"
                    )
                    self._effects.append(Answered(request.key, request.answer))
            case Action.GIVE_UP:
                if not request.is_probe:
                    self._count("sa_failed")
                    self._effects.append(Failed(request.key, _FAILURES[fed]))
                # the SA is not silent if it answered other requests meanwhile
                if fed is Input.SPENT and self._sa.answered_s < request.since_s:
                    self._feed_sa(now, ServiceInput.UNANSWERED)

    def _forget(self, now: float, request: Transaction, before: State) -> None:
        del self._requests[request.key]
        if before is State.QUEUED:
            self._queue.remove(request)
            return
        for tid in request.tids:
            del self._by_tid[tid]
            self._recent[tid] = request.answer is not None
            if len(self._recent) > SA_RECENT_MAX:
                self._recent.popitem(last=False)
        self._outstanding -= 1
        self._next(now)

    def _ring(self, now: float, key: Hashable) -> None:
        request = self._requests[key]
        is_spent = request.attempted >= request.attempts
        self._feed(now, request, Input.SPENT if is_spent else Input.TIMEOUT)

    def _timeout_s(self, request: Transaction) -> float:
        if request.state is State.RECEIVING:
            return self.pace.timeout_s
        doubled = self.pace.timeout_s * (1 << request.attempted - 1)
        return self.pace.jittered(doubled, self._rng)

    def _send(self, request: Transaction) -> None:
        tid = next(self._tid_low) & 0xFFFFFFFF
        if request.tids:
            self._count("sa_retry")
        request.tids.append(tid)
        self._by_tid[tid] = request
        query = request.query
        packed = SaMad(
            query.method, query.attribute, self._tid_high | tid, mask=query.mask, data=query.data
        ).pack()
        self._effects.append(Transmit(packed, self.pace.longest_s))

    def _send_rmpp_of(self, request: Transaction, header: rmpp.Rmpp) -> None:
        query = request.query
        self._send_rmpp(request.response, query.attribute, request.transfer_tid, header)

    def _send_rmpp(self, method: int, attribute: int, tid: int, header: rmpp.Rmpp) -> None:
        """Send an RMPP reply, whose method is that of the message that it answers, with the response bit
        inverted."""
        packed = SaMad(method ^ mad.RESPONSE, attribute, self._tid_high | tid, rmpp=header).pack()
        self._effects.append(Transmit(packed))

    # -- the SA itself ---------------------------------------------------------------------------

    def _feed_sa(self, now: float, fed: ServiceInput) -> None:
        before, actions = self._sa_machine.feed(self._sa, None, fed)
        if self._sa.state is not before:
            self._sa.probing.reset()
        for action in actions:
            match action:
                case ServiceAction.REPORT_SILENT:
                    self._effects.append(SaChanged(Change.SILENT))
                case ServiceAction.REPORT_RETURNED:
                    self._effects.append(SaChanged(Change.RETURNED))
                case ServiceAction.PROBE:
                    self._probe(now)
                case ServiceAction.ARM:
                    wait_s = self.pace.jittered(self._sa.probing.next_s(), self._rng)
                    self._sa_machine.arm(None, now + wait_s)

    def _probe(self, now: float) -> None:
        """Send one attempt ahead of the queue, whose requests get no answer anyway."""
        key = object()
        probe = self._requests[key] = Transaction(key, _PROBE, attempts=1, is_probe=True)
        self._feed(now, probe, Input.TURN)

    def _ring_probe(self, now: float, _: None) -> None:
        self._feed_sa(now, ServiceInput.TIMEOUT)

    # -- effects ---------------------------------------------------------------------------------

    def _count(self, reason: str) -> None:
        self._effects.append(Count(reason))

    def _take(self) -> list[SaEffect]:
        effects, self._effects = self._effects, []
        return effects
