# SPDX-License-Identifier: BSD-2-Clause
"""The multicast groups of one port at the SA: joins, leaves, look-ups, and the list of memberships.

Joins and leaves of one group run one after the other, because the SA keeps only the last of them. A
cancelled join may have reached the SA, so we leave the group again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import BadFrame, LinkError
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.sa.transport import SaTransport
from ipoibu.proto.sa.errors import InvalidRequest, SaError, refusal
from ipoibu.proto.sa.records import check_group
from ipoibu.proto.sa.transaction import Answer
from ipoibu.wire import mcmember, mgid, sa
from ipoibu.wire.mad import Method
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.sa import Attribute

_log = logging.getLogger(__name__)

GroupMembership = tuple[Gid, JoinState]
_SENDERS: Final = (JoinState.SEND_ONLY_FULL_MEMBER, JoinState.SEND_ONLY_NON_MEMBER)


class Memberships:
    """Every method runs on the transport's loop; `SaClient` describes the public ones.

    `kernel` returns the partitions in which the kernel has an interface on the port.
    """

    def __init__(self, transport: SaTransport, kernel: Callable[[], frozenset[PKey]]) -> None:
        self._transport = transport
        self._kernel = kernel
        self._held: dict[GroupMembership, PartitionParams | None] = {}
        self._locks: WeakValueDictionary[Gid, asyncio.Lock] = WeakValueDictionary()
        self.leaving: set[asyncio.Task[None]] = set()
        """The tasks that undo cancelled joins."""

    @property
    def held(self) -> tuple[GroupMembership, ...]:
        return tuple(self._held)

    # ---- joins and leaves

    async def join(
        self, group: Gid, join_state: JoinState, params: PartitionParams | None
    ) -> McMemberRecord:
        async with self._lock(group):
            return await self._become((group, join_state), params)

    async def join_to_send(self, group: Gid, params: PartitionParams) -> McMemberRecord:
        async with self._lock(group):
            state = JoinState.SEND_ONLY_NON_MEMBER
            if (await self._transport.class_port_info()).has_send_only_full_member:
                state = JoinState.SEND_ONLY_FULL_MEMBER
            return await self._become((group, state), params)

    async def leave(self, group: Gid, join_state: JoinState) -> None:
        held = (group, join_state)
        # At once: whoever joins from now on waits for the lock behind us.
        self._held.pop(held, None)
        async with self._lock(group):
            await self._give_up(held)

    async def leave_to_send(self, group: Gid) -> None:
        async with self._lock(group):
            for state in _SENDERS:
                if (group, state) in self._held:
                    await self._give_up((group, state))

    async def rejoin(self) -> dict[GroupMembership, SaError]:
        refused: dict[GroupMembership, SaError] = {}
        broadcast = [held for held in self._held if is_broadcast(held[0])]
        others = [held for held in self._held if held not in broadcast]
        for batch in broadcast, others:
            outcomes = await all_of(self._join_again(held) for held in batch)
            for held, outcome in zip(batch, outcomes, strict=True):
                if outcome is not None:
                    refused[held] = outcome
        return refused

    # ---- look-ups

    async def group(self, group: Gid) -> McMemberRecord:
        return await self._group(McMemberRecord(mgid=group), "look up", group)

    async def membership(self, group: Gid) -> McMemberRecord:
        record = McMemberRecord(mgid=group, port_gid=self._transport.info.gid)
        return await self._group(record, "membership of", group)

    async def groups(self, pkey: PKey | None) -> tuple[McMemberRecord, ...]:
        asked = self._transport.asked("list groups", None, pkey)
        record = McMemberRecord(pkey=None if pkey is None else pkey.full)
        return await self._transport.ask(
            Method.GET_TABLE,
            Attribute.MC_MEMBER_RECORD,
            record,
            asked,
            partial(_table_untrusted, record),
        )

    # ---- inside

    def _lock(self, group: Gid) -> asyncio.Lock:
        return self._locks.setdefault(group, asyncio.Lock())

    async def _become(
        self, held: GroupMembership, params: PartitionParams | None
    ) -> McMemberRecord:
        """Join, holding the group's lock."""
        try:
            record = await self._join(self._record(held, params))
        except asyncio.CancelledError:
            self._leave_later(held)
            raise
        self._held[held] = params
        return record

    async def _give_up(self, held: GroupMembership) -> None:
        """Leave, holding the group's lock."""
        self._held.pop(held, None)
        await self._leave(held)

    async def _join_again(self, held: GroupMembership) -> None:
        async with self._lock(held[0]):
            if held in self._held:
                await self._join(self._record(held, self._held[held]))

    def _leave_later(self, held: GroupMembership) -> None:
        """Undo a join that may have reached the SA, unless we joined the group before, or have joined it
        again by then."""
        if self._transport.is_closed or held in self._held:
            return

        async def leave() -> None:
            async with self._lock(held[0]):
                if held not in self._held:
                    await self._leave(held)

        def ended(task: asyncio.Task[None]) -> None:
            self.leaving.discard(task)
            if not task.cancelled() and task.exception() is not None:
                _log.debug("after a cancelled join: %s", task.exception())

        task = asyncio.get_running_loop().create_task(leave())
        self.leaving.add(task)
        task.add_done_callback(ended)

    # ---- requests

    def _record(self, held: GroupMembership, params: PartitionParams | None) -> McMemberRecord:
        group, join_state = held
        record = McMemberRecord(
            mgid=group,
            port_gid=self._transport.info.gid,
            pkey=_pkey_of(group),
            join_state=join_state,
        )
        if params is None:
            return record
        return replace(
            record,
            qkey=params.qkey,
            mtu_bytes=params.mtu_bytes,
            traffic_class=params.traffic_class,
            rate=params.rate or None,  # 0: the rate is unknown; the SA takes the port's
            sl=params.sl,
            flow_label=params.flow_label,
            hop_limit=params.hop_limit,
        )

    async def _join(self, record: McMemberRecord) -> McMemberRecord:
        asked = self._transport.asked("join", record.mgid, record.pkey, record)
        try:
            return await self._transport.ask(
                Method.SET,
                Attribute.MC_MEMBER_RECORD,
                record,
                asked,
                partial(_record_untrusted, record),
            )
        except InvalidRequest as error:
            # The SA does not say which field is wrong, but its record of the group shows that.
            existing = await self._existing(record)
            raise refusal(error.status, replace(asked, group=existing)) from None

    async def _existing(self, record: McMemberRecord) -> McMemberRecord | None:
        assert record.mgid is not None, "a join names its group"
        try:
            return await self.group(record.mgid)
        except SaError:
            return None

    async def _leave(self, held: GroupMembership) -> None:
        group, join_state = held
        pkey = _pkey_of(group)
        if pkey.full in self._kernel():
            self._transport.counts["sa_leave_kept"] += 1
            return
        port_gid = self._transport.info.gid
        record = McMemberRecord(mgid=group, port_gid=port_gid, join_state=join_state)
        asked = self._transport.asked("leave", group, pkey)
        await self._transport.ask(
            Method.DELETE, Attribute.MC_MEMBER_RECORD, record, asked, lambda _: None
        )

    async def _group(self, record: McMemberRecord, what: str, group: Gid) -> McMemberRecord:
        asked = self._transport.asked(what, group, _pkey_of(group))
        return await self._transport.ask(
            Method.GET,
            Attribute.MC_MEMBER_RECORD,
            record,
            asked,
            partial(_record_untrusted, record),
        )


def _pkey_of(group: Gid) -> PKey:
    """Return the P_Key of a group, whose GID names its partition: RFC 4391 §4 (G1)."""
    try:
        return mgid.parse_untrusted(group).pkey
    except BadFrame as error:
        raise LinkError(f"{group} is not a group of IP over InfiniBand") from error


def is_broadcast(group: Gid) -> bool:
    """Return whether a group of IP over InfiniBand is the broadcast group; `BadFrame` for others."""
    parts = mgid.parse_untrusted(group)
    return group == mgid.broadcast(parts.pkey, parts.scope)


def _record_untrusted(asked: McMemberRecord, answer: Answer) -> McMemberRecord:
    record = mcmember.parse_untrusted(answer.data)
    check_group(record, replace(asked, pkey=_pkey_of(asked.mgid) if asked.mgid else asked.pkey))
    return record


def _table_untrusted(asked: McMemberRecord, answer: Answer) -> tuple[McMemberRecord, ...]:
    records = sa.records_untrusted(answer.data, answer.record_bytes, mcmember.RECORD_LEN)
    groups = tuple(mcmember.parse_untrusted(record) for record in records)
    for group in groups:
        check_group(group, asked)
    return groups


async def all_of(jobs: Iterable[Coroutine[Any, Any, Any]]) -> list[SaError | None]:
    """Wait for all jobs; return for each the error with which the SA refused it, or None."""
    outcomes = await asyncio.gather(*jobs, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, SaError):
            raise outcome
    return [outcome if isinstance(outcome, SaError) else None for outcome in outcomes]
