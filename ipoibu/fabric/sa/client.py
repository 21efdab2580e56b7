# SPDX-License-Identifier: BSD-2-Clause
"""The subnet administrator's client: groups, paths and events of one InfiniBand port.

One client serves all links of a port. It holds what it joined: after the SA forgot, `rejoin` brings it
back, the broadcast group first (B1). Whoever owns the client listens to `events`, and calls
`reregister` when the device says CLIENT_REREGISTER, LID_CHANGE, PKEY_CHANGE or SM_CHANGE.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from weakref import WeakValueDictionary

from ipoibu.addr import Gid, PKey
from ipoibu.errors import BadFrame, LinkError
from ipoibu.fabric.sa.kernel_ipoib import kernel_partitions
from ipoibu.fabric.sa.transport import Event, SaTransport
from ipoibu.fabric.sa.umad import MadPort, MadPortInfo, UmadPort
from ipoibu.ib import PartitionParams
from ipoibu.proto.sa_errors import Asked, InvalidRequest, NoAnswer, SaError, no_answer, refusal
from ipoibu.proto.sa_requests import PACE, Pace
from ipoibu.proto.sa_transaction import Answer, Failure, Query
from ipoibu.wire import mcmember, mgid, notice, pathrecord, sa
from ipoibu.wire.mad import Method
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.notice import InformInfo, Trap
from ipoibu.wire.pathrecord import PathQuery, PathRecord
from ipoibu.wire.sa import Attribute, ClassPortInfo

_log = logging.getLogger(__name__)

LEAVE_S: Final = 2.0  # how long `aclose` waits for the SA to confirm what we left
_SENDERS: Final = (JoinState.SEND_ONLY_FULL_MEMBER, JoinState.SEND_ONLY_NON_MEMBER)

GroupMembership = tuple[Gid, JoinState]
_T = TypeVar("_T")


class SaClient:
    """Asks the SA; every method on the loop's thread.

    A request ends in a record, or in `Closed` or one of `ipoibu.proto.sa_errors`'s errors, and may be
    cancelled.
    """

    def __init__(
        self,
        port: MadPort,
        *,
        pace: Pace = PACE,
        rng: random.Random | None = None,
        kernel: Callable[[], frozenset[PKey]] = frozenset,
    ) -> None:
        """Take over `port`, which `close` gives back. `kernel` tells in which partitions the kernel has
        an interface on the port."""
        self._exchange = SaTransport(port, pace, rng)
        self._kernel = kernel
        self._held: dict[GroupMembership, PartitionParams | None] = {}
        self._traps: set[Trap] = set()
        self._locks: WeakValueDictionary[Gid, asyncio.Lock] = WeakValueDictionary()
        self._leaving: set[asyncio.Task[None]] = set()

    @classmethod
    def open(cls, device: str, port: int = 1, *, pace: Pace = PACE) -> Self:
        """A client for a port of the kernel; `LinkError`, `NoSuchDevice` or `NotPermitted` says why not."""
        umad = UmadPort(device, port)
        try:
            return cls(umad, pace=pace, kernel=lambda: kernel_partitions(device, port))
        except BaseException:
            umad.close()
            raise

    # ---- life

    def close(self) -> None:
        """End every request (`Closed`) and give the port back; what was joined stays joined."""
        for task in self._leaving:
            task.cancel()
        self._exchange.close()

    async def aclose(self) -> None:
        """Leave what is held and unsubscribe, as far as the SA answers within two seconds; then `close`."""
        jobs: list[Coroutine[Any, Any, None]] = []
        if not self._exchange.is_closed:
            jobs += [self.leave(*held) for held in self._held]
            jobs += [self.unsubscribe(trap) for trap in self._traps]
        tasks = {asyncio.ensure_future(job) for job in jobs} | self._leaving
        try:
            if tasks:
                done, late = await asyncio.wait(tasks, timeout=LEAVE_S)
                for task in late:
                    task.cancel()
                for task in done:
                    if not task.cancelled() and task.exception() is not None:
                        _log.warning("on closing: %s", task.exception())
        finally:
            self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def info(self) -> MadPortInfo:
        """The port as it was when last looked at: at the start, before a retry and by `reregister`."""
        return self._exchange.info

    @property
    def counts(self) -> Counter[str]:
        """The counters that docs/counters.md names `sa_`, and reasons of malformed input."""
        return self._exchange.counts

    @property
    def held(self) -> tuple[GroupMembership, ...]:
        """What was joined and not left, in the order of joining."""
        return tuple(self._held)

    # ---- groups

    async def join(
        self,
        group: Gid,
        join_state: JoinState = JoinState.FULL_MEMBER,
        params: PartitionParams | None = None,
    ) -> McMemberRecord:
        """Become a member of an IPoIB group; the record has all of its parameters.

        Without `params` the group must exist, which is right for the broadcast group (B1, B4). With
        them it is created if it does not (M3); a group that is there must have the same MTU and rate.
        A join that is cancelled is left again.
        """
        async with self._lock(group):
            return await self._become((group, join_state), params)

    async def join_to_send(self, group: Gid, params: PartitionParams) -> McMemberRecord:
        """Become a member that only sends (M1): as Linux does, one that may create the group if the SA
        knows such members, else one that needs somebody who receives."""
        async with self._lock(group):
            state = JoinState.SEND_ONLY_NON_MEMBER
            if (await self.class_port_info()).has_send_only_full_member:
                state = JoinState.SEND_ONLY_FULL_MEMBER
            return await self._become((group, state), params)

    async def leave(self, group: Gid, join_state: JoinState = JoinState.FULL_MEMBER) -> None:
        """Be a member no longer.

        Where the kernel has an interface in the partition, the SA is not told (counted as
        `sa_leave_kept`): it could not tell the kernel's membership from ours (M4).
        """
        async with self._lock(group):
            await self._give_up((group, join_state))

    async def leave_to_send(self, group: Gid) -> None:
        """Undo `join_to_send`, one that is under way, too; as `leave`."""
        async with self._lock(group):
            for state in _SENDERS:
                if (group, state) in self._held:
                    await self._give_up((group, state))

    async def rejoin(self) -> dict[GroupMembership, SaError]:
        """Join everything held again, broadcast groups first, and subscribe again; what was refused.

        What is refused stays held, for the next time.
        """
        refused: dict[GroupMembership, SaError] = {}
        broadcast = [held for held in self._held if _is_broadcast(held[0])]
        others = [held for held in self._held if held not in broadcast]
        for batch in broadcast, others:
            outcomes = await _all(self._join_again(held) for held in batch)
            for held, outcome in zip(batch, outcomes, strict=True):
                if outcome is not None:
                    refused[held] = outcome
        for error in await _all(self.subscribe(trap) for trap in self._traps):
            if error is not None:
                _log.warning("%s", error)
        return refused

    async def group(self, group: Gid) -> McMemberRecord:
        """A group as the SA has it, without joining it; its port GID and join state are zero."""
        return await self._group(McMemberRecord(mgid=group), "look up", group)

    async def membership(self, group: Gid) -> McMemberRecord:
        """The group, if this port is a member of it in any way; `NoRecords` if it is not."""
        record = McMemberRecord(mgid=group, port_gid=self.info.gid)
        return await self._group(record, "membership of", group)

    async def groups(self, pkey: PKey | None = None) -> tuple[McMemberRecord, ...]:
        """All groups that this port may see, of one partition if `pkey` is given."""
        asked = self._asked("list groups", None, pkey)
        record = McMemberRecord(pkey=None if pkey is None else pkey.full)
        answer = await self._ask(Method.GET_TABLE, Attribute.MC_MEMBER_RECORD, record, asked)
        return _read(lambda: _table_untrusted(answer), asked)

    # ---- paths and the SA itself

    async def path(self, dgid: Gid, pkey: PKey) -> PathRecord:
        """The way from this port to another in the partition (B6); `NoRecords` if there is none."""
        query = PathQuery(dgid, self.info.gid, pkey)
        asked = self._asked("path to", dgid, pkey)
        answer = await self._ask(Method.GET, Attribute.PATH_RECORD, query, asked)
        return _read(lambda: pathrecord.parse_untrusted(answer.data), asked)

    async def class_port_info(self) -> ClassPortInfo:
        """What the SA can do."""
        asked = Asked("ask for ClassPortInfo")
        answer = await self._ask(Method.GET, Attribute.CLASS_PORT_INFO, None, asked)
        return _read(lambda: sa.class_port_info_untrusted(answer.data), asked)

    # ---- events

    async def subscribe(self, trap: Trap) -> None:
        """Hear of an event (M2); `LinkError` where another program on the port hears them all."""
        if not self._exchange.hears_unasked:
            raise LinkError(
                f"{self.info.device}/{self.info.port}: another program (ibacm, srp_daemon) takes the "
                "subnet administrator's reports on this port"
            )
        self._traps.add(trap)
        await self._inform(InformInfo(trap))

    async def unsubscribe(self, trap: Trap) -> None:
        self._traps.discard(trap)
        await self._inform(InformInfo(trap, subscribe=False))

    def events(self) -> AsyncIterator[Event]:
        """Notices, and what became of the SA, until the client is closed; for one listener.

        `Change.RETURNED` asks for `rejoin`: the SA may have forgotten everything.
        """
        return self._exchange.events()

    def look(self) -> MadPortInfo:
        """The port as it is now; `LinkError` or `NoSuchDevice` if it went away."""
        return self._exchange.look()

    def reregister(self) -> None:
        """The device says that the SA, the LID or the P_Keys changed: look again, and tell `events`."""
        self._exchange.reregister()

    # ---- requests

    def _record(self, held: GroupMembership, params: PartitionParams | None) -> McMemberRecord:
        group, join_state = held
        record = McMemberRecord(
            mgid=group, port_gid=self.info.gid, pkey=_pkey_of(group), join_state=join_state
        )
        if params is None:
            return record
        return replace(
            record,
            qkey=params.qkey,
            mtu_bytes=params.mtu_bytes,
            traffic_class=params.traffic_class,
            rate=params.rate or None,  # 0: nobody said; the SA takes the port's
            sl=params.sl,
            flow_label=params.flow_label,
            hop_limit=params.hop_limit,
        )

    async def _become(
        self, held: GroupMembership, params: PartitionParams | None
    ) -> McMemberRecord:
        """Join, holding the group's lock."""
        try:
            found = await self._join(self._record(held, params))
        except asyncio.CancelledError:
            self._leave_later(held)
            raise
        self._held[held] = params
        return found

    async def _give_up(self, held: GroupMembership) -> None:
        """Leave, holding the group's lock."""
        self._held.pop(held, None)
        await self._leave(held)

    async def _join(self, record: McMemberRecord) -> McMemberRecord:
        asked = self._asked("join", record.mgid, record.pkey, record)
        try:
            answer = await self._ask(Method.SET, Attribute.MC_MEMBER_RECORD, record, asked)
        except InvalidRequest as error:
            # The SA does not say what is wrong; comparing with the group as it is does.
            found = await self._found(record)
            raise refusal(error.status, replace(asked, found=found)) from None
        return _read(lambda: mcmember.parse_untrusted(answer.data), asked)

    async def _join_again(self, held: GroupMembership) -> None:
        async with self._lock(held[0]):
            if held in self._held:
                await self._join(self._record(held, self._held[held]))

    async def _leave(self, held: GroupMembership) -> None:
        group, join_state = held
        pkey = _pkey_of(group)
        if pkey.full in self._kernel():
            self.counts["sa_leave_kept"] += 1
            return
        record = McMemberRecord(mgid=group, port_gid=self.info.gid, join_state=join_state)
        asked = self._asked("leave", group, pkey)
        await self._ask(Method.DELETE, Attribute.MC_MEMBER_RECORD, record, asked)

    def _leave_later(self, held: GroupMembership) -> None:
        """Undo a join that may have reached the SA, unless it was joined before or is again by then."""
        if self._exchange.is_closed or held in self._held:
            return

        async def leave() -> None:
            async with self._lock(held[0]):
                if held not in self._held:
                    await self._leave(held)

        def ended(task: asyncio.Task[None]) -> None:
            self._leaving.discard(task)
            if not task.cancelled() and task.exception() is not None:
                _log.debug("after a cancelled join: %s", task.exception())

        task = asyncio.get_running_loop().create_task(leave())
        self._leaving.add(task)
        task.add_done_callback(ended)

    def _lock(self, group: Gid) -> asyncio.Lock:
        """Joins and leaves of one group go one after the other: the SA keeps only the last."""
        return self._locks.setdefault(group, asyncio.Lock())

    async def _found(self, record: McMemberRecord) -> McMemberRecord | None:
        assert record.mgid is not None, "a join names its group"
        try:
            return await self.group(record.mgid)
        except SaError:
            return None

    async def _group(self, record: McMemberRecord, what: str, group: Gid) -> McMemberRecord:
        asked = self._asked(what, group, _pkey_of(group))
        answer = await self._ask(Method.GET, Attribute.MC_MEMBER_RECORD, record, asked)
        return _read(lambda: mcmember.parse_untrusted(answer.data), asked)

    async def _inform(self, inform: InformInfo) -> None:
        asked = Asked(f"{'' if inform.subscribe else 'un'}subscribe trap {inform.trap:d}")
        answer = await self._ask(Method.SET, Attribute.INFORM_INFO, inform, asked)
        said = _read(lambda: notice.inform_untrusted(answer.data), asked)
        if said.subscribe != inform.subscribe:
            raise SaError(f"{asked}: the subnet administrator did not do it")

    async def _ask(
        self,
        method: Method,
        attribute: Attribute,
        record: McMemberRecord | PathQuery | InformInfo | None,
        asked: Asked,
    ) -> Answer:
        """The SA's answer, whose status is 0; `SaError` otherwise."""
        mask = 0 if record is None or isinstance(record, InformInfo) else int(record.mask)
        data = b"" if record is None else record.pack()
        answer = await self._exchange.ask(Query(method, attribute, data, mask))
        if isinstance(answer, Failure):
            raise no_answer(answer, asked, self.info.sa_lid)
        if answer.status:
            raise refusal(answer.status, asked)
        return answer

    def _asked(
        self, what: str, gid: Gid | None, pkey: PKey | None, record: McMemberRecord | None = None
    ) -> Asked:
        is_member = None if pkey is None else self.info.has_pkey(pkey)
        return Asked(what, gid, pkey, record, guid=self.info.guid, is_member=is_member)


def _pkey_of(group: Gid) -> PKey:
    """RFC 4391 §4: a group's GID names its partition (G1)."""
    try:
        return mgid.parse_untrusted(group).pkey
    except BadFrame as error:
        raise LinkError(f"{group} is not a group of IP over InfiniBand") from error


def _is_broadcast(group: Gid) -> bool:
    parts = mgid.parse_untrusted(group)  # only such are held
    return group == mgid.broadcast(parts.pkey, parts.scope)


def _table_untrusted(answer: Answer) -> tuple[McMemberRecord, ...]:
    records = sa.records_untrusted(answer.data, answer.record_bytes, mcmember.RECORD_LEN)
    return tuple(mcmember.parse_untrusted(record) for record in records)


def _read(read: Callable[[], _T], asked: Asked) -> _T:
    """What `read` makes of an answer; one that cannot be read is no answer."""
    try:
        return read()
    except BadFrame as error:
        raise NoAnswer(f"{asked}: the subnet administrator's answer is wrong: {error}") from error


async def _all(jobs: Iterable[Coroutine[Any, Any, Any]]) -> list[SaError | None]:
    """Wait for all; for each the error with which it was refused, or None."""
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, SaError):
            raise outcome
    return [outcome if isinstance(outcome, SaError) else None for outcome in outcomes]
