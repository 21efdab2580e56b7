# SPDX-License-Identifier: BSD-2-Clause
"""Asks the SA on an event loop: `ipoibu.proto.sa.requests` over a port's management datagrams."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import BadFrame, Closed, IpoibuError
from ipoibu.base.limits import SA_EVENTS_MAX, SA_PAUSE_S, SA_ROUND
from ipoibu.fabric.effect_loop import TimedEffectLoop
from ipoibu.fabric.sa.mad_port import MadPort, MadPortInfo, MadTo
from ipoibu.proto.effects import Count
from ipoibu.proto.machine.backoff import Repeats
from ipoibu.proto.sa.errors import Asked, NoAnswer, no_answer, refusal
from ipoibu.proto.sa.requests import (
    Answered,
    Change,
    Failed,
    Pace,
    Reported,
    SaAddress,
    SaChanged,
    SaEffect,
    SaRequests,
    Transmit,
)
from ipoibu.proto.sa.transaction import Answer, Failure, Query
from ipoibu.wire import sa
from ipoibu.wire.mad import Method
from ipoibu.wire.mcmember import McMemberRecord
from ipoibu.wire.notice import InformInfo, Notice
from ipoibu.wire.pathrecord import PathQuery
from ipoibu.wire.sa import Attribute, ClassPortInfo

_log = logging.getLogger(__name__)

# A descriptor of umad2sim is no kernel object: epoll cannot wait for it, so a timer reads it.
BUSY_POLL_S: Final = 0.002  # while we expect an answer
IDLE_POLL_S: Final = 0.05

Event = Notice | Change
Record = McMemberRecord | PathQuery | InformInfo
_T = TypeVar("_T")

CLOSED: Final = "the subnet administrator's client was closed"


class SaTransport:
    """Runs the requests of one port; every method runs on the loop's thread.

    `counts` holds the counters of docs/reference/counters.md.
    """

    def __init__(self, port: MadPort, pace: Pace, rng: random.Random | None = None) -> None:
        """Take over `port`, which `close` gives back."""
        self.counts: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._port = port
        self._requests = SaRequests(rng or random.SystemRandom(), pace)
        self._effects = TimedEffectLoop(self._loop, self, self._carry_out)
        self._waiting: set[asyncio.Future[Answer | Failure]] = set()
        self._events: deque[Event] = deque(maxlen=SA_EVENTS_MAX)
        self._event_came = asyncio.Event()
        self._poll: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._send_errors = Repeats()
        self._info = port.look()
        self._requests.sa_lid = self._info.sa_lid
        try:
            self._loop.add_reader(port.fileno(), self._readable)
            self._has_reader = True
        except OSError:
            self._has_reader = False
            self._poll_port()

    @property
    def info(self) -> MadPortInfo:
        """The port as we last saw it: at the start, before a retry and by `reregister`."""
        return self._info

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def hears_unasked(self) -> bool:
        return self._port.hears_unasked

    def close(self) -> None:
        """End every request (`Closed`) and give the port back. Safe to repeat."""
        if self._is_closed:
            return
        self._effects.perform(self._requests.stop(self._loop.time()))
        self._effects.stop()
        self._is_closed = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(Closed(CLOSED))
        for timer in (self._poll, self._pause):
            if timer is not None:
                timer.cancel()
        if self._has_reader:
            self._loop.remove_reader(self._port.fileno())
        self._port.close()
        self._event_came.set()

    async def ask(
        self,
        method: Method,
        attribute: Attribute,
        record: Record | None,
        asked: Asked,
        read: Callable[[Answer], _T],
    ) -> _T:
        """Return what `read` makes of the SA's answer, if its status is 0; the caller may cancel.

        An error of `ipoibu.proto.sa.errors` otherwise, or `Closed`.
        """
        mask = 0 if record is None or isinstance(record, InformInfo) else int(record.mask)
        data = b"" if record is None else record.pack()
        answer = await self._answer(Query(method, attribute, data, mask))
        if isinstance(answer, Failure):
            raise no_answer(answer, asked, self._info.sa_lid)
        if answer.status:
            raise refusal(answer.status, asked)
        try:
            return read(answer)
        except BadFrame as error:
            self.counts[error.reason] += 1
            text = f"{asked}: the subnet administrator's answer is wrong: {error}"
            raise NoAnswer(text) from error

    def asked(
        self, what: str, gid: Gid | None, pkey: PKey | None, record: McMemberRecord | None = None
    ) -> Asked:
        """Describe a request of this port, for error messages."""
        is_member = None if pkey is None else self._info.has_pkey(pkey)
        return Asked(what, gid, pkey, record, guid=self._info.guid, is_member=is_member)

    async def class_port_info(self) -> ClassPortInfo:
        """Return the SA's capabilities."""
        return await self.ask(
            Method.GET,
            Attribute.CLASS_PORT_INFO,
            None,
            Asked("ask for ClassPortInfo"),
            lambda answer: sa.class_port_info_untrusted(answer.data),
        )

    async def _answer(self, query: Query) -> Answer | Failure:
        if self._is_closed:
            raise Closed(CLOSED)
        future: asyncio.Future[Answer | Failure] = self._loop.create_future()
        self._waiting.add(future)
        self._effects.perform(self._requests.request(self._loop.time(), future, query))
        if self._poll is not None:
            self._poll.cancel()
            self._poll_port()
        try:
            return await future
        finally:
            self._waiting.discard(future)
            if not self._is_closed:
                self._effects.perform(self._requests.cancel(self._loop.time(), future))

    async def events(self) -> AsyncIterator[Event]:
        """Yield notices, and changes of the SA, until `close`; for one reader.

        Without a reader the transport drops the oldest events and counts them as `sa_event_lost`.
        """
        while not self._is_closed:
            while self._events:
                yield self._events.popleft()
            self._event_came.clear()
            if not self._is_closed:
                await self._event_came.wait()

    def reregister(self) -> None:
        """The SA, the LID or the P_Keys changed: look at the port, and put `RETURNED` into `events`."""
        self._look()
        self._put(Change.RETURNED)

    # ---- the requests' clock

    def deadline(self) -> float | None:
        return self._requests.deadline()

    def timer(self, now: float) -> list[SaEffect]:
        """A request may go out again: look first where the SA is by now."""
        self._look()
        return self._requests.timer(now)

    # ---- the port

    def look(self) -> MadPortInfo:
        """Look at the port and return its present state; requests go to the LID of its SA from then on,
        also those that wait for an answer from another one."""
        self._info = self._port.look()
        self._effects.perform(self._requests.note_moved(self._loop.time(), self._info.sa_lid))
        return self._info

    def _look(self) -> None:
        try:
            self.look()
        except IpoibuError as error:
            place = f"{self._info.device}/{self._info.port}"
            _log.warning("%s: the SA client cannot read the state of its port: %s", place, error)

    def _poll_port(self) -> None:
        """Read datagrams, now and again soon: the loop cannot watch the descriptor."""
        wait_s = BUSY_POLL_S if len(self._requests) else IDLE_POLL_S
        if self._drain():
            wait_s = SA_PAUSE_S
        if not self._is_closed:
            self._poll = self._loop.call_later(wait_s, self._poll_port)

    def _readable(self) -> None:
        if self._drain() and not self._is_closed:
            self._loop.remove_reader(self._port.fileno())
            self._pause = self._loop.call_later(SA_PAUSE_S, self._watch)

    def _watch(self) -> None:
        self._loop.add_reader(self._port.fileno(), self._readable)

    def _drain(self) -> bool:
        """Read a round of datagrams; return whether there may be more. Any member can send us some, faster
        than we read, and the loop has other work."""
        for _ in range(SA_ROUND):
            received = self._port.receive()
            if received is None:
                return False
            if received.status:
                # a request came back without an answer: our own timers are shorter, and have retried it
                self.counts["sa_unsent"] += 1
                continue
            peer = SaAddress(received.lid, received.qpn)
            self._effects.perform(
                self._requests.note_received(self._loop.time(), peer, received.raw)
            )
        return True

    def _carry_out(self, effect: SaEffect) -> None:
        match effect:
            case Transmit():
                self._transmit(effect)
            case Answered(key, answer):
                _settle(key, answer)
            case Failed(key, failure):
                _settle(key, failure)
            case Reported(report):
                self._put(report)
            case SaChanged(change):
                self._note_sa(change)
            case Count(reason):
                self.counts[reason] += 1

    def _transmit(self, effect: Transmit) -> None:
        info, to = self._info, effect.to
        address = MadTo(info.sa_lid, sl=info.sa_sl, pkey_index=info.sa_pkey_index)
        if to is not None:
            address = MadTo(to.lid, to.qpn, info.sa_sl, info.sa_pkey_index)
        if not address.lid:
            self.counts["sa_unsent"] += 1
            return
        try:
            self._port.send(effect.raw, address, effect.wait_s)
        except OSError as error:
            self.counts["sa_unsent"] += 1
            if self._send_errors.add():
                place = f"{info.device}/{info.port}"
                _log.warning("%s: cannot send a datagram to the SA: %s", place, error)

    def _note_sa(self, change: Change) -> None:
        place, lid = f"{self._info.device}/{self._info.port}", self._info.sa_lid
        if change is Change.SILENT:
            _log.warning("%s: the subnet administrator at LID %d does not answer", place, lid)
        else:
            _log.warning("%s: the subnet administrator at LID %d answers again", place, lid)
        self._put(change)

    def _put(self, event: Event) -> None:
        if len(self._events) == SA_EVENTS_MAX:
            self.counts["sa_event_lost"] += 1
        self._events.append(event)
        self._event_came.set()


def _settle(key: object, outcome: Answer | Failure) -> None:
    assert isinstance(key, asyncio.Future), "the transport names its requests by their futures"
    if not key.done():
        key.set_result(outcome)
