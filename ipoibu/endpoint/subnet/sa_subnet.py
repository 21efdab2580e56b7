# SPDX-License-Identifier: BSD-2-Clause
"""An interface's part of a subnet with an administrator (SA): the engine's questions become requests
to the SA, and the answers become inputs of the engine.

A packet to an unknown neighbour takes five steps:

1. The pump has no entry for the next hop and sends the packet up as an event; `Shell` feeds it to the
   engine, which keeps it and resolves the hardware address by ARP or ND.
2. The reply names a port whose path is unknown, so the engine returns the effect `FindPath`, and the
   shell hands it to `SaSubnet.request`.
3. `SaSubnet` starts a task on the interface's loop that awaits `SaClient.path`, which runs on the thread
   of the port's SA client.
4. There the sans-IO `SaRequests` gives the query a transaction id and decides when to retry it, and
   `SaTransport` sends its datagrams through the `MadPort` and feeds it the datagrams that come back.
5. The task feeds the path to the engine, whose effects publish the next hop to the pump and send the
waiting packet.

Everything here runs on the interface's loop, except for `_note_change`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ipoibu.base.addr import Gid
from ipoibu.base.errors import IpoibuError, LinkError
from ipoibu.base.ib import PartitionParams
from ipoibu.endpoint.interface_contract import InterfaceContract
from ipoibu.endpoint.subnet.allmulticast import STATE as ALL_GROUPS_STATE
from ipoibu.endpoint.subnet.allmulticast import AllMulticast
from ipoibu.endpoint.subnet.subnet import Request, Subnet
from ipoibu.fabric.flush import Flush
from ipoibu.fabric.sa.link import joined_link, pkey_place
from ipoibu.proto.effects import Attach, Detach, Effect, FindPath, JoinToSend, LeaveToSend
from ipoibu.proto.paths import SaPath
from ipoibu.proto.sa.errors import InvalidRequest, NoAnswer, NoRecords
from ipoibu.proto.sa.records import link_params, path_from_record, path_to_group
from ipoibu.proto.sa.requests import Change
from ipoibu.wire import mgid
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.notice import Notice, Trap

if TYPE_CHECKING:
    from ipoibu.fabric.sa.client import SaClient

_log = logging.getLogger(__name__)


class SaSubnet(Subnet):
    """One interface's requests to the SA, and the SA's reports to it."""

    def __init__(
        self, interface: InterfaceContract, sa: SaClient, received: Collection[Gid] = ()
    ) -> None:
        """The port of `sa` is a member of the groups of `received` already."""
        super().__init__(interface)
        self.sa = sa
        self._loop = interface.loop
        self._engine = interface.engine
        self._received = set(received)  # the groups that the engine wants to receive
        self._senders: dict[Gid, Gid] = {}  # by group: the group that its packets go to (M1)
        self._sent_to: Counter[Gid] = Counter()  # by group: how many groups send by it
        self.note_pkey(interface.params)
        self.note_renewed()
        self._requests: dict[tuple[str, Gid], tuple[Request, asyncio.Task[None]]] = {}
        sa.listen(self._note_change)

    def note_pkey(self, params: PartitionParams) -> None:
        self._pkey_place = pkey_place(self.sa, params.pkey)

    def note_renewed(self) -> None:
        self._all = self._all_multicast() if self._interface.receives_all else None

    def _all_multicast(self) -> AllMulticast:
        return AllMulticast(
            self._interface, self.sa, self._attach_for_router, self._detach_for_router
        )

    @property
    def _params(self) -> PartitionParams:
        return self._interface.params

    @property
    def _broadcast(self) -> Gid:
        return mgid.broadcast(self._params.pkey, self._params.scope)

    @property
    def received(self) -> Collection[Gid]:
        return frozenset(self._received)

    def stop_listening(self) -> None:
        self.sa.unlisten(self._note_change)

    def close(self) -> None:
        self.close_all_groups()
        for _, task in self._requests.values():
            task.cancel()

    def leave_port(self, restart: Callable[[], None]) -> None:
        restart()  # the interface may be joining the link over this port
        self.stop_listening()
        self.close()
        self.leave_link()

    def hand_over(self) -> Sequence[Request]:
        requests = [request for request, _ in self._requests.values()]
        self.stop_listening()
        self.close()
        for group in self._sent_to:
            self._later(partial(self.sa.leave_to_send, group))
        return requests

    # ---- effects

    def request(self, effect: Request) -> Iterable[Effect]:
        match effect:
            case Attach(group):
                self._begin("join", effect, self._join(group))
            case JoinToSend(group, detour):
                self._begin("send", effect, self._join_to_send(group, detour))
            case FindPath(gid):
                self._begin("path", effect, self._find_path(gid))
            case Detach(group):
                self._end("join", group)
                self._stop_receiving(group)
                self._later(lambda: self.sa.leave(group))
            case LeaveToSend(group):
                self._end("send", group)
                self._send_by(group, None)
        return ()

    async def _join(self, group: Gid) -> None:
        params = None if group == self._broadcast else self._params
        try:
            record = await self.sa.join(group, params=params)
            if group == self._broadcast and not self._is_same_link(record):
                return
            self._interface.fabric.attach(group, record.mlid or 0)
            self._received.add(group)
            self._interface.set_received(self._received)
        except LinkError as error:
            self._note_refused(group, error)
        else:
            path = path_to_group(record)
            self._interface.perform(self._engine.note_attached(self._now(), group, path))
            if group == self._broadcast:
                self._interface.note_joined()
                if self._all is not None:
                    self._all.open()

    def _note_refused(self, group: Gid, error: LinkError) -> None:
        """Take a failed join. A silent SA ends no membership, because its return causes a flush; a refusal
        by the SA does."""
        if (group, JoinState.FULL_MEMBER) in self.sa.held:
            # The interface joined the broadcast group before it receives it: no flush would join it again.
            if isinstance(error, NoAnswer) and group in self._received:
                return
            self._stop_receiving(group)
            self._later(lambda: self.sa.leave(group))
        if group == self._broadcast:
            self._interface.avoid_rail(str(error))
        self._interface.perform(self._engine.note_attach_failed(self._now(), group, str(error)))

    async def _join_to_send(self, group: Gid, detour: Gid | None) -> None:
        def join(to: Gid) -> Coroutine[Any, Any, Any]:
            return self.sa.join_to_send(to, self._params)

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
        """Send the group's packets to `to` from now on; leave the group that they went to before, unless
        packets of another group go there, too."""
        before = self._senders.pop(group, None)
        if to is not None:
            self._senders[group] = to
            self._sent_to[to] += 1
        if before is not None:
            self._sent_to[before] -= 1
            if not self._sent_to[before]:
                del self._sent_to[before]
                self._later(lambda: self.sa.leave_to_send(before))

    async def _find_path(self, gid: Gid) -> None:
        asked = self.sa.path(gid, self._params.pkey)
        await self._find(
            gid, asked, lambda path: path_from_record(path, self._interface.fabric.qpn)
        )

    async def _find(
        self, gid: Gid, asked: Coroutine[Any, Any, Any], path: Callable[[Any], SaPath]
    ) -> None:
        try:
            record = await asked
        except LinkError as error:
            self._interface.perform(
                self._engine.sa.note_path_unresolved(self._now(), gid, str(error))
            )
        else:
            self._interface.perform(
                self._engine.sa.note_path_resolved(self._now(), gid, path(record))
            )

    def _is_same_link(self, record: McMemberRecord) -> bool:
        """Return whether the record describes the same link. A link with another MTU or Q_Key needs another
        queue pair. Any other parameter holds for all groups of the link: every member has to leave them
        before the SA can create them with the new value."""
        now = replace(link_params(record), is_limited=self._params.is_limited)
        changed = [
            f"{field.name} {getattr(now, field.name)}"
            for field in fields(now)
            if getattr(now, field.name) != getattr(self._params, field.name)
        ]
        if changed:
            self._interface.flush(Flush.HEAVY, f"the link has {', '.join(changed)} now")
        return not changed

    def _stop_receiving(self, group: Gid) -> None:
        self._received.discard(group)
        self._interface.set_received(self._received)
        if self._all is None or group not in self._all.held:
            self._interface.fabric.detach(group)

    # ---- all groups of the link, for a router

    def _attach_for_router(self, record: McMemberRecord) -> None:
        assert record.mgid is not None, "an answer has every field"
        self._interface.fabric.attach(record.mgid, record.mlid or 0)

    def _detach_for_router(self, group: Gid) -> None:
        if group not in self._received:
            self._interface.fabric.detach(group)
        self._later(lambda: self.sa.leave(group, ALL_GROUPS_STATE))

    def follow_allmulticast(self) -> bool:
        self.close_all_groups()
        self.note_renewed()
        if self._all is not None and self._broadcast in self._received:
            self._all.open()
        return True

    def close_all_groups(self) -> None:
        if self._all is not None:
            self._all.close()

    def others(self) -> Collection[Gid]:
        held = self._all.held if self._all is not None else ()
        return tuple(group for group in held if group not in self._received)

    # ---- reports of the SA client

    def _note_change(self, change: Flush | Notice | Change) -> None:
        """Take a change on the SA client's thread."""
        try:
            if isinstance(change, Notice):
                self._loop.call_soon_threadsafe(self._note_group, change)
            elif isinstance(change, Change):
                self._loop.call_soon_threadsafe(self._interface.note_sa_silent)
            else:
                self._loop.call_soon_threadsafe(self._interface.flush, change)
        except RuntimeError:  # the interface is closed
            _log.debug("the SA client reported %s after the interface closed", change)

    def _note_group(self, notice: Notice) -> None:
        exists = notice.trap is Trap.GROUP_CREATED
        if self._all is not None:
            self._all.note_group(notice.gid, exists=exists)
        effects = self._engine.sa.note_group_changed(self._now(), notice.gid, exists=exists)
        self._interface.perform(effects)

    # ---- flushes

    def refresh(self) -> None:
        # `SaClient` has joined its groups again already.
        self._interface.perform(self._engine.sa.note_changed(self._now()))
        if self._all is not None:
            self._all.refresh()

    def why_heavy(self) -> str | None:
        """Answer as the kernel does: a table that has our P_Key in the old place changes nothing for us."""
        before, after = self._pkey_place, pkey_place(self.sa, self._params.pkey)
        if after == before:
            return None
        if after is None:
            return f"the port has no P_Key {self._params.own_pkey} any more"
        return f"P_Key {after[1]} is at index {after[0]} now"

    async def find_link(self) -> PartitionParams:
        port, config = self._interface.port, self._interface.config
        params = self.sa.submit(
            lambda: joined_link(
                self.sa,
                port.info,
                pkey=config.pkey,
                qkey=config.qkey,
                mtu_bytes=config.datagram_mtu,
                may_control=port.may_control,
            )
        )
        try:
            return await asyncio.wrap_future(params)
        except LinkError as error:
            self._interface.avoid_rail(str(error))
            raise

    def leave_link(self) -> None:
        broadcast = self._broadcast
        self._later(lambda: self.sa.leave(broadcast))

    # ---- tasks

    def _now(self) -> float:
        return self._loop.time()

    def _begin(
        self, kind: str, request: Attach | JoinToSend | FindPath, work: Coroutine[Any, Any, None]
    ) -> None:
        gid = request.gid if isinstance(request, FindPath) else request.mgid
        self._end(kind, gid)
        key = kind, gid
        task = self._loop.create_task(work)
        self._requests[key] = request, task
        task.add_done_callback(lambda done: self._note_ended(key, done))

    def _end(self, kind: str, gid: Gid) -> None:
        if under_way := self._requests.pop((kind, gid), None):
            under_way[1].cancel()

    def _note_ended(self, key: tuple[str, Gid], task: asyncio.Task[None]) -> None:
        if key in self._requests and self._requests[key][1] is task:
            del self._requests[key]
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, IpoibuError):  # a defect of ours: one request is lost
                _log.error("request %s %s to the SA failed", *key, exc_info=error)
            else:
                _log.debug("request %s %s to the SA: %s", *key, error)

    def _later(self, question: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a request whose answer we do not await, on the SA client's loop, which outlives ours."""

        def ended(done: Any) -> None:
            if not done.cancelled() and done.exception() is not None:
                _log.info("a request to the subnet administrator failed: %s", done.exception())

        self.sa.submit(question).add_done_callback(ended)
