# SPDX-License-Identifier: BSD-2-Clause
"""An interface's dealings with the subnet administrator: the engine's questions become requests, the
answers its inputs.

Everything here runs on the interface's loop; the requests themselves on that of the port's `SaClient`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from ipoibu.addr import Gid, PKey
from ipoibu.endpoint.allmulticast import STATE as ALL_GROUPS_STATE
from ipoibu.endpoint.allmulticast import AllMulticast
from ipoibu.endpoint.heavy_flush import HeavyFlush
from ipoibu.errors import IpoibuError, LinkError, NotPermitted, UsageError
from ipoibu.fabric.base import Fabric
from ipoibu.fabric.partition import provision
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.sa.flush import Flush
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.ib import PartitionParams, PortInfo
from ipoibu.limits import ENCAP_LEN
from ipoibu.proto.effects import Attach, Detach, Effect, FindPath, JoinToSend, LeaveToSend
from ipoibu.proto.engine import Engine
from ipoibu.proto.link_params import CONTROLLED_QKEY
from ipoibu.proto.partition_line import partition_line
from ipoibu.proto.sa_errors import InvalidRequest, NoAnswer, NoRecords
from ipoibu.proto.sa_path import SaPath
from ipoibu.proto.sa_records import link_params, path_from_record, path_to_group
from ipoibu.wire import mgid
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.notice import Notice, Trap

_log = logging.getLogger(__name__)

Request = Attach | Detach | FindPath | JoinToSend | LeaveToSend
EFFECTS: Final = (Attach, Detach, FindPath, JoinToSend, LeaveToSend)


def params_of(
    port: SharedPort,
    *,
    pkey: PKey,
    qkey: int | None,
    mtu_bytes: int | None,
    partitions: Path | None,
) -> PartitionParams:
    """What the link is like: by the subnet administrator where there is one, else as configured."""
    if port.sa is None:
        params = provision.link_params(
            port.info, pkey=pkey, qkey=qkey, mtu_bytes=mtu_bytes, partitions=partitions
        )
        _permit(params, f"{port.info.device}/{port.info.port}", port.may_control)
        return params
    if partitions is not None:
        raise UsageError(
            f"{port.info.device}: the subnet administrator tells the link's parameters, "
            f"not {partitions}"
        )
    return join_link(
        port.sa,
        port.info,
        pkey=pkey,
        qkey=qkey,
        mtu_bytes=mtu_bytes,
        may_control=port.may_control,
    )


def leave_link(port: SharedPort, pkey: PKey) -> None:
    """Undo `params_of`, for an interface that did not come up."""
    sa, group = port.sa, mgid.broadcast(pkey.full)
    if sa is not None and (group, JoinState.FULL_MEMBER) in sa.held:
        sa.submit(lambda: sa.leave(group))


def join_link(
    sa: SaClient,
    port: PortInfo,
    *,
    pkey: PKey,
    qkey: int | None,
    mtu_bytes: int | None,
    may_control: Callable[[], bool],
) -> PartitionParams:
    """Join the broadcast group of `pkey`'s link, which tells all of its parameters (B1); waits for it.

    `LinkError` if the port is not in the partition, cannot carry the link's MTU (B2) or the SA
    refuses or is silent; `UsageError` for options that contradict the link; `NotPermitted` for a
    controlled Q_Key (B3) unless `may_control`.
    """
    return sa.submit(
        lambda: joined_link(
            sa, port, pkey=pkey, qkey=qkey, mtu_bytes=mtu_bytes, may_control=may_control
        )
    ).result()


async def joined_link(
    sa: SaClient,
    port: PortInfo,
    *,
    pkey: PKey,
    qkey: int | None,
    mtu_bytes: int | None,
    may_control: Callable[[], bool],
) -> PartitionParams:
    """As `join_link`, on the client's own loop."""
    place = f"{port.device}/{port.port}"
    sa.check_port()
    own = own_pkey(sa, pkey)
    if own is None:
        guid = int.from_bytes(port.guid, "big")
        raise LinkError(
            f"{place}: no P_Key {pkey.full}; it has: {sa.info.pkeys_text}; "
            f"the subnet manager gives it with: {partition_line(pkey, guid=guid)}"
        )
    group = mgid.broadcast(pkey.full)
    if (group, JoinState.FULL_MEMBER) in sa.held:
        # The SA counts a port's membership once: whoever left first would end the other's, too.
        raise UsageError(f"{place}: there is an interface in partition {pkey.full} already")
    record = await sa.join(group)
    try:
        params = link_params(record)
        _check(params, place, port, qkey=qkey, mtu_bytes=mtu_bytes)
        _permit(params, place, may_control)
    except IpoibuError:
        await sa.leave(group)
        raise
    return replace(params, is_limited=not own & 0x8000)


def own_pkey(sa: SaClient, pkey: PKey) -> PKey | None:
    """The port's key for the partition, the full one if it has both; None if it is not in it."""
    keys = [key for key in sa.info.pkeys if key.full == pkey.full and key & 0x7FFF]
    return max(keys, default=None)


def _check(
    params: PartitionParams,
    place: str,
    port: PortInfo,
    *,
    qkey: int | None,
    mtu_bytes: int | None,
) -> None:
    if params.mtu_bytes > port.active_mtu_bytes:
        raise LinkError(
            f"{place} carries an InfiniBand MTU of {port.active_mtu_bytes}, the link of "
            f"{params.pkey} has {params.mtu_bytes}: raise the port's, or lower mtu= of the partition"
        )
    if qkey not in (None, params.qkey):
        raise UsageError(f"{place}: the link's Q_Key is {params.qkey:#x}, not {qkey:#x}")
    largest = params.mtu_bytes - ENCAP_LEN
    if mtu_bytes is not None and mtu_bytes > largest:
        raise UsageError(f"{place}: the link carries an MTU of {largest}, not {mtu_bytes}")


def pkey_place(sa: SaClient, pkey: PKey) -> tuple[int, PKey] | None:
    """Where the port's key for the partition is, and which it is: what a queue pair is bound to."""
    own = own_pkey(sa, pkey)
    return None if own is None else (sa.info.pkeys.index(own), own)


def _permit(params: PartitionParams, place: str, may_control: Callable[[], bool]) -> None:
    """B3: before anything is made, and by name."""
    if params.qkey & CONTROLLED_QKEY and not may_control():
        raise NotPermitted(
            f"{place}: the link's Q_Key {params.qkey:#x} is a controlled one (bit 31), which "
            "needs CAP_NET_RAW; or give the partition another: Q_Key=0x0b1b"
        )


class Subnet:
    """One interface's part.

    `perform` gets the engine's effects. For a heavy flush: `sever` ends the data path, `find` asks on the
    SA client's loop what the link is like now, `resume` makes a data path for that.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sa: SaClient,
        engine: Engine,
        fabric: Fabric,
        params: PartitionParams,
        *,
        perform: Callable[[Iterable[Effect]], None],
        counts: Counter[str],
        sever: Callable[[], None],
        find: Callable[[], Coroutine[Any, Any, PartitionParams]],
        resume: Callable[[PartitionParams], Fabric],
        all_groups: bool = False,
    ) -> None:
        self._loop = loop
        self._sa = sa
        self._engine = engine
        self._fabric = fabric
        self._params = params
        self._broadcast = mgid.broadcast(params.pkey, params.scope)
        self._perform = perform
        self._resume_with = resume
        self._sever = sever
        self._received: set[Gid] = set()  # by the engine's wish
        self._senders: dict[Gid, Gid] = {}  # by group: which one its packets go to (M1)
        self._sent_to: Counter[Gid] = Counter()  # of how many groups the packets go there
        self._counts = counts
        self._all = self._all_groups(params) if all_groups else None
        self._pkey_place = pkey_place(sa, params.pkey)
        info = sa.info
        self._renewal = HeavyFlush(
            loop,
            f"{info.device}/{info.port}, P_Key {params.pkey}",
            counts,
            sever=self._end_path,
            find=lambda: asyncio.wrap_future(sa.submit(find)),
            resume=self._resume,
            abandon=lambda: self._later(lambda: self._sa.leave(self._broadcast)),
        )
        self._tasks: dict[tuple[str, Gid], asyncio.Task[None]] = {}
        self._stop_listening = sa.listen(self._heard)

    def close(self) -> None:
        """Ask for nothing any more; what is held was left by the engine's own `Detach`."""
        self._stop_listening()
        self._renewal.close()
        self._close_all()
        for task in self._tasks.values():
            task.cancel()

    # ---- effects

    def request(self, effect: Request) -> None:
        match effect:
            case Attach(group):
                self._begin("join", group, self._join(group))
            case JoinToSend(group, detour):
                self._begin("send", group, self._join_to_send(group, detour))
            case FindPath(gid):
                self._begin("path", gid, self._find_path(gid))
            case Detach(group):
                self._end("join", group)
                self._stop_receiving(group)
                self._later(lambda: self._sa.leave(group))
            case LeaveToSend(group):
                self._end("send", group)
                self._send_by(group, None)

    async def _join(self, group: Gid) -> None:
        params = None if group == self._broadcast else self._params
        try:
            record = await self._sa.join(group, params=params)
            if group == self._broadcast and not self._is_same_link(record):
                return
            self._fabric.attach(group, record.mlid or 0)
            self._received.add(group)
        except LinkError as error:
            self._refused(group, error)
        else:
            found = path_to_group(record)
            self._perform(self._engine.attached(self._now(), group, found))
            if self._all is not None and group == self._broadcast:
                self._all.open()

    def _refused(self, group: Gid, error: LinkError) -> None:
        """An SA that is silent takes nothing away that we have: its return is a flush. A word of it does."""
        if (group, JoinState.FULL_MEMBER) in self._sa.held:
            # Held is the broadcast group before it is received, too: no flush would ask for it again.
            if isinstance(error, NoAnswer) and group in self._received:
                return
            self._stop_receiving(group)
            self._later(lambda: self._sa.leave(group))
        self._perform(self._engine.attach_failed(self._now(), group, str(error)))

    async def _join_to_send(self, group: Gid, detour: Gid | None) -> None:
        def join(to: Gid) -> Coroutine[Any, Any, Any]:
            return self._sa.join_to_send(to, self._params)

        async def join_either() -> Any:
            if group not in self._senders:
                self._send_by(group, group)
            try:
                record = await join(group)
            except (InvalidRequest, NoRecords):  # an SA that lets only receivers create groups
                if detour is None:
                    raise
                self._send_by(group, detour)
                return await join(detour)
            self._send_by(group, group)
            return record

        await self._find(group, join_either(), path_to_group)

    def _send_by(self, group: Gid, to: Gid | None) -> None:
        """The group's packets go to `to` from now on: we leave where they went before, unless those of
        another group go there, too."""
        before = self._senders.pop(group, None)
        if to is not None:
            self._senders[group] = to
            self._sent_to[to] += 1
        if before is not None:
            self._sent_to[before] -= 1
            if not self._sent_to[before]:
                del self._sent_to[before]
                self._later(lambda: self._sa.leave_to_send(before))

    async def _find_path(self, gid: Gid) -> None:
        asked = self._sa.path(gid, self._params.pkey)
        await self._find(gid, asked, lambda path: path_from_record(path, self._fabric.qpn))

    async def _find(
        self, gid: Gid, asked: Coroutine[Any, Any, Any], path: Callable[[Any], SaPath]
    ) -> None:
        try:
            record = await asked
        except LinkError as error:
            self._perform(self._engine.not_found(self._now(), gid, str(error)))
        else:
            self._perform(self._engine.found(self._now(), gid, path(record)))

    def _is_same_link(self, record: McMemberRecord) -> bool:
        """A link with another MTU or Q_Key needs another queue pair. Whatever else is another is so for all
        groups of the link: they have to be left by everybody before they can be made with it."""
        now = replace(link_params(record), is_limited=self._params.is_limited)
        changed = [
            f"{field.name} {getattr(now, field.name)}"
            for field in fields(now)
            if getattr(now, field.name) != getattr(self._params, field.name)
        ]
        if changed:
            self._renewal.demand(f"the link has {', '.join(changed)} now")
        return not changed

    def _stop_receiving(self, group: Gid) -> None:
        self._received.discard(group)
        if self._all is None or group not in self._all.held:
            self._fabric.detach(group)

    # ---- all groups of the link

    def _all_groups(self, params: PartitionParams) -> AllMulticast:
        def attach(record: McMemberRecord) -> None:
            assert record.mgid is not None, "an answer has every field"
            self._fabric.attach(record.mgid, record.mlid or 0)

        def detach(group: Gid) -> None:
            if group not in self._received:
                self._fabric.detach(group)
            self._later(lambda: self._sa.leave(group, ALL_GROUPS_STATE))

        return AllMulticast(
            self._loop,
            self._sa,
            params,
            self._counts,
            attach=attach,
            detach=detach,
        )

    def _close_all(self) -> None:
        if self._all is not None:
            self._all.close()

    def others(self) -> tuple[Gid, ...]:
        """The groups that are received for a router's sake alone."""
        held = self._all.held if self._all is not None else ()
        return tuple(group for group in held if group not in self._received)

    # ---- changes

    def _heard(self, change: Flush | Notice) -> None:
        try:
            if isinstance(change, Notice):
                self._loop.call_soon_threadsafe(self._noticed, change)
            else:
                self._loop.call_soon_threadsafe(self._flush, change)
        except RuntimeError:  # the interface is closed
            _log.debug("%s after the end", change)

    def _noticed(self, notice: Notice) -> None:
        exists = notice.trap is Trap.GROUP_CREATED
        if self._all is not None:
            self._all.noticed(notice.gid, exists=exists)
        self._perform(self._engine.group_changed(self._now(), notice.gid, exists=exists))

    def _flush(self, flush: Flush) -> None:
        now = self._now()
        if self._renewal.is_under_way:
            self._renewal.demand(flush.name)
        elif flush is Flush.LIGHT:
            self._perform(self._engine.sa_changed(now))
            if self._all is not None:
                self._all.refresh()
        elif flush is Flush.HEAVY:
            self._look_for_pkey()
        else:
            self._close_all()
            self._perform(self._engine.port_event(now, "down"))
            self._perform(self._engine.port_event(now, "up"))

    def _look_for_pkey(self) -> None:
        """As the kernel: a table that has our P_Key where it was is no concern of ours."""
        before, after = self._pkey_place, pkey_place(self._sa, self._params.pkey)
        if after == before:
            return
        if after is None:
            why = f"P_Key {self._params.own_pkey} was taken from the port"
        else:
            why = f"P_Key {after[1]} is at index {after[0]} now"
        self._renewal.demand(why)

    def _end_path(self) -> None:
        self._close_all()
        self._sever()

    def _resume(self, params: PartitionParams) -> None:
        self._pkey_place = pkey_place(self._sa, params.pkey)
        self._fabric = self._resume_with(params)
        self._params = params
        self._broadcast = mgid.broadcast(params.pkey, params.scope)
        if self._all is not None:
            self._all = self._all_groups(params)

    # ---- tasks

    def _now(self) -> float:
        return self._loop.time()

    def _begin(self, kind: str, gid: Gid, work: Coroutine[Any, Any, None]) -> None:
        self._end(kind, gid)
        key = kind, gid
        task = self._tasks[key] = self._loop.create_task(work)
        task.add_done_callback(lambda done: self._ended(key, done))

    def _end(self, kind: str, gid: Gid) -> None:
        task = self._tasks.pop((kind, gid), None)
        if task is not None:
            task.cancel()

    def _ended(self, key: tuple[str, Gid], task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, IpoibuError):  # a defect of ours: one request is lost
                _log.error("%s %s failed", *key, exc_info=error)
            else:
                _log.debug("%s %s: %s", *key, error)

    def _later(self, question: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What needs no answer: on the port's loop, which outlives ours."""

        def ended(done: Any) -> None:
            if not done.cancelled() and done.exception() is not None:
                _log.info("%s", done.exception())

        self._sa.submit(question).add_done_callback(ended)
