# SPDX-License-Identifier: BSD-2-Clause
"""The SA client of one InfiniBand port, for all interfaces on it: groups, paths, events.

A client belongs to one event loop. `SaClient.start` gives it a thread with a loop of its own and has it
watch the port. Interfaces need this: they live on loops of their own and come and go, while the SA knows
one port with one set of memberships. `SaClient(...)` and `SaClient.open` use the running loop. A caller may
await requests on any loop.

The client remembers its memberships: `rejoin` restores them after the SA forgot them, the broadcast group
first (B1).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import Closed, IpoibuError, LinkError, NotPermitted
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.flush import Flush, flushes_of
from ipoibu.fabric.loop_thread import LoopThread, submit
from ipoibu.fabric.sa.kernel_ipoib import kernel_partitions
from ipoibu.fabric.sa.kernel_sa import KernelSaPort
from ipoibu.fabric.sa.mad_port import MadPort, MadPortInfo
from ipoibu.fabric.sa.memberships import GroupMembership, Memberships, all_of
from ipoibu.fabric.sa.transport import CLOSED, Event, SaTransport
from ipoibu.fabric.sa.umad import UmadPort
from ipoibu.proto.sa.errors import Asked, NoRecords, SaError, Unsupported
from ipoibu.proto.sa.records import check_path
from ipoibu.proto.sa.requests import PACE, Change, Pace
from ipoibu.proto.sa.transaction import Answer
from ipoibu.wire import notice, pathrecord
from ipoibu.wire.mad import Method
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.notice import InformInfo, Notice, Trap
from ipoibu.wire.pathrecord import PathQuery, PathRecord
from ipoibu.wire.sa import Attribute, ClassPortInfo

_log = logging.getLogger(__name__)

LEAVE_S: Final = 2.0  # `aclose` waits so long for the SA to confirm that we left
_END_MAX_S: Final = 30.0  # twice LEAVE_S, and what a busy machine adds
LOOK_S: Final = 1.0  # the longest delay until we notice a change of LID, SM or P_Keys
CONFIRM_S: Final = 10.0  # the longest delay until we notice that an SA restarted and forgot us

Listener = Callable[[Flush | Notice | Change], None]
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _on_loop(
    method: Callable[Concatenate[SaClient, _P], Awaitable[_T]],
) -> Callable[Concatenate[SaClient, _P], Coroutine[Any, Any, _T]]:
    """Run the method on the client's loop, whichever loop awaits it."""

    @functools.wraps(method)
    async def run(self: SaClient, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if asyncio.get_running_loop() is self._loop:
            return await method(self, *args, **kwargs)
        return await asyncio.wrap_future(self.submit(lambda: run(self, *args, **kwargs)))

    return run


class SaClient:
    """Asks the SA of one port.

    A request returns a record or raises `Closed` or one of the errors of `ipoibu.proto.sa.errors`; the
    caller may cancel it. Any thread may call `submit`, `listen`, `unlisten`, `device_event`, `counters`
    and `close`, and read `info` and `held`; the loop's thread calls everything else.
    """

    def __init__(
        self,
        port: MadPort,
        *,
        pace: Pace = PACE,
        rng: random.Random | None = None,
        kernel: Callable[[], frozenset[PKey]] = frozenset,
    ) -> None:
        """Take over `port`, on the running loop; `abort`, `aclose` and `close` give it back.

        `kernel` returns the partitions in which the kernel has an interface on the port.
        """
        self._loop = asyncio.get_running_loop()
        self._thread: LoopThread | None = None
        self._transport = SaTransport(port, pace, rng)
        self._memberships = Memberships(self._transport, kernel)
        self._traps: set[Trap] = set()
        self._watched_info = self._transport.info
        self._watches: set[asyncio.Task[None]] = set()
        self._listeners: list[Listener] = []

    @classmethod
    def open(cls, device: str, port: int = 1, *, pace: Pace = PACE) -> Self:
        """Return a client for a port of the kernel, on the running loop.

        Without umad the kernel's rdma_cm carries out the requests (`kernel_sa.py`). `LinkError`,
        `NoSuchDevice` or `NotPermitted` if the port does not open.
        """
        opened, kernel = _open_port(device, port)
        try:
            return cls(opened, pace=pace, kernel=kernel)
        except BaseException:
            opened.close()
            raise

    @staticmethod
    def start(open_client: Callable[[], SaClient], *, confirm_s: float = CONFIRM_S) -> SaClient:
        """Return a client with a thread of its own, which watches the port for its listeners.

        `open_client` runs on that thread; this method raises its errors.
        """
        thread = LoopThread("ipoibu-sa")
        thread.start()

        async def begin() -> SaClient:
            client = open_client()
            client._thread = thread
            client._watch(confirm_s)
            return client

        try:
            return submit(thread.loop, begin).result()
        except BaseException:
            thread.stop()
            raise

    # ---- life

    def submit(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> concurrent.futures.Future[_T]:
        """Run the coroutine that `work` makes on the client's loop; `Closed` after `close`."""
        if self._loop.is_closed():
            raise Closed(CLOSED)
        return submit(self._loop, work)

    def close(self) -> None:
        """Leave all groups, within two seconds, and end the client's own thread. Safe to repeat."""
        thread = self._thread
        if thread is None or thread.loop.is_closed():
            return
        try:
            self.submit(self._end).result(_END_MAX_S)
        except TimeoutError:
            _log.warning("%s: the client of the SA does not end in time", self._place)
        finally:
            thread.stop()

    async def _end(self) -> None:
        for watch in self._watches:
            watch.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=LEAVE_S)  # the interfaces' last leaves
        await self.aclose()

    def abort(self) -> None:
        """End every request (`Closed`) and give the port back; the memberships stay at the SA."""
        for task in self._memberships.leaving:
            task.cancel()
        self._transport.close()

    async def aclose(self) -> None:
        """Leave all groups and unsubscribe, as far as the SA answers within two seconds; then `abort`."""
        tasks = dict.fromkeys(self._memberships.leaving, "leave a group")
        if not self._transport.is_closed:
            for held in self.held:
                tasks[asyncio.ensure_future(self.leave(*held))] = "leave a group"
            for trap in self._traps:
                tasks[asyncio.ensure_future(self._withdraw(trap))] = "unsubscribe"
        try:
            if tasks:
                done, late = await asyncio.wait(tasks, timeout=LEAVE_S)
                for task in late:
                    task.cancel()
                for task in done:
                    if not task.cancelled() and task.exception() is not None:
                        what, error = tasks[task], task.exception()
                        _log.warning("%s: cannot %s at the SA: %s", self._place, what, error)
        finally:
            self.abort()

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
        """The port as the client last saw it: at the start, before a retry, by `reregister` and, if it
        watches the port, every second."""
        return self._transport.info

    @property
    def _place(self) -> str:
        return f"{self.info.device}/{self.info.port}"

    @property
    def counts(self) -> Counter[str]:
        """The counters `sa_*` of docs/reference/counters.md, and reasons of malformed input."""
        return self._transport.counts

    def counters(self) -> dict[str, int]:
        """Return a copy of `counts`, for other threads."""
        return dict(self.counts)

    @property
    def held(self) -> tuple[GroupMembership, ...]:
        """The memberships that we joined and did not leave, in the order of joining."""
        return self._memberships.held

    # ---- groups

    @_on_loop
    async def join(
        self,
        group: Gid,
        join_state: JoinState = JoinState.FULL_MEMBER,
        params: PartitionParams | None = None,
    ) -> McMemberRecord:
        """Become a member of an IPoIB group; the record has all of its parameters.

        Without `params` the group must exist, which is right for the broadcast group (B1, B4). With them
        the SA creates a group that does not exist (M3); an existing group must have the same MTU and rate.
        The client leaves the group again after a cancelled join. A caller on another loop has to leave, too,
        because the answer may have been on its way to that loop.
        """
        return await self._memberships.join(group, join_state, params)

    @_on_loop
    async def join_to_send(self, group: Gid, params: PartitionParams) -> McMemberRecord:
        """Become a member that only sends (M1).

        As Linux does, the client asks for a membership that may create the group if the SA supports that,
        else for a membership that needs a receiver in the group.
        """
        return await self._memberships.join_to_send(group, params)

    @_on_loop
    async def leave(self, group: Gid, join_state: JoinState = JoinState.FULL_MEMBER) -> None:
        """Cease to be a member.

        Where the kernel has an interface in the partition, the SA gets no request (counted as
        `sa_leave_kept`): the SA could not distinguish the kernel's membership from ours (M4).
        """
        await self._memberships.leave(group, join_state)

    @_on_loop
    async def leave_to_send(self, group: Gid) -> None:
        """Undo `join_to_send`, also a join that is under way, as `leave` does."""
        await self._memberships.leave_to_send(group)

    @_on_loop
    async def rejoin(self) -> dict[GroupMembership, SaError]:
        """Join all held groups again, broadcast groups first, and subscribe again.

        Return the refusals. A refused membership stays held, for the next time.
        """
        refused = await self._memberships.rejoin()
        for error in await all_of(self.subscribe(trap) for trap in self._traps):
            if error is not None:
                _log.warning("%s: cannot subscribe to the SA's reports: %s", self._place, error)
        return refused

    @_on_loop
    async def group(self, group: Gid) -> McMemberRecord:
        """Return the SA's record of a group, without a join; its port GID and join state are zero."""
        return await self._memberships.group(group)

    @_on_loop
    async def membership(self, group: Gid) -> McMemberRecord:
        """Return the group, if this port is a member of it in any way; else raise `NoRecords`."""
        return await self._memberships.membership(group)

    @_on_loop
    async def groups(self, pkey: PKey | None = None) -> tuple[McMemberRecord, ...]:
        """Return all groups that this port may see, of one partition if `pkey` is given."""
        return await self._memberships.groups(pkey)

    # ---- paths and the SA itself

    @_on_loop
    async def path(self, dgid: Gid, pkey: PKey) -> PathRecord:
        """Return the path from this port to another in the partition (B6); `NoRecords` if there is none."""
        query = PathQuery(dgid, self.info.gid, pkey)
        asked = self._transport.asked("path to", dgid, pkey)
        return await self._transport.ask(
            Method.GET, Attribute.PATH_RECORD, query, asked, partial(_path_untrusted, query)
        )

    @_on_loop
    async def class_port_info(self) -> ClassPortInfo:
        """Return the SA's capabilities."""
        return await self._transport.class_port_info()

    # ---- events

    @_on_loop
    async def subscribe(self, trap: Trap) -> None:
        """Have the SA report an event (M2); `LinkError` where another program takes the port's reports."""
        if not self._transport.hears_unasked:
            raise LinkError(
                f"{self._place}: the subnet administrator's reports do not reach us: another program "
                "(ibacm, srp_daemon) takes them, or there is no umad"
            )
        self._traps.add(trap)
        await self._inform(InformInfo(trap))

    @_on_loop
    async def unsubscribe(self, trap: Trap) -> None:
        self._traps.discard(trap)
        await self._inform(InformInfo(trap, subscribe=False))

    async def _withdraw(self, trap: Trap) -> None:
        """Unsubscribe, unless the SA never knew what a subscription is."""
        with contextlib.suppress(Unsupported):
            await self.unsubscribe(trap)

    async def _inform(self, inform: InformInfo) -> None:
        asked = Asked(f"{'' if inform.subscribe else 'un'}subscribe trap {inform.trap:d}")
        answer = await self._transport.ask(
            Method.SET, Attribute.INFORM_INFO, inform, asked, _inform_untrusted
        )
        if (answer.subscribe, answer.trap) != (inform.subscribe, inform.trap):
            raise SaError(f"{asked}: the subnet administrator answered, but did not carry it out")

    def events(self) -> AsyncIterator[Event]:
        """Yield notices, and changes of the SA, until the client is closed; for one reader.

        `Change.RETURNED` calls for `rejoin`, because the SA may have forgotten everything. A client that
        watches its port reads the events itself, for its listeners.
        """
        return self._transport.events()

    def reregister(self) -> None:
        """The SA, the LID or the P_Keys changed: look at the port, and put `RETURNED` into `events`."""
        self._transport.reregister()

    # ---- the watch over the port, for listeners

    def listen(self, listener: Listener) -> None:
        """Call `listener` on the client's thread with changes of the subnet, with notices of created and
        deleted groups (M2), and when the SA falls silent, until `unlisten`."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def device_event(self, flush: Flush) -> None:
        """The device reports a change: look at the port now instead of within a second.

        Listeners get the flushes that the port's new state calls for. LIGHT (client re-register) and NORMAL
        (the port was down) leave no trace there and reach the listeners anyway. HEAVY does not: an
        unchanged P_Key table calls for nothing, as in the kernel.
        """

        def act() -> None:
            if flush not in self.check_port() and flush is not Flush.HEAVY:
                self._flush(flush)

        with contextlib.suppress(RuntimeError):  # the loop is closed: there are no listeners
            self._loop.call_soon_threadsafe(act)

    def check_port(self) -> list[Flush]:
        """Look at the port, and notify the listeners of the flushes that its changes call for."""
        try:
            after = self._transport.look()
        except IpoibuError as error:
            _log.warning(
                "%s: the SA client cannot read the state of its port: %s", self._place, error
            )
            return []
        before, self._watched_info = self._watched_info, after
        flushes = flushes_of(before, after)
        for flush in flushes:
            self._flush(flush)
        return flushes

    def _watch(self, confirm_s: float) -> None:
        for watch in (
            self._read_events(),
            self._check_port_often(),
            self._confirm(confirm_s),
            self._subscribe_to_groups(),
        ):
            self._begin(watch)

    def _begin(self, watch: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(watch)
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _read_events(self) -> None:
        async for event in self.events():
            if event is not Change.RETURNED:
                self._notify(event)
            else:
                # Broadcast groups first; then each interface asks for its paths and groups.
                for (group, _), error in (await self.rejoin()).items():
                    _log.warning(
                        "%s: the subnet administrator answers again, but refuses group %s: %s",
                        self._place,
                        group,
                        error,
                    )
                self.counts["sa_rejoined"] += 1
                self._notify(Flush.LIGHT)

    async def _check_port_often(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.check_port()

    async def _confirm(self, confirm_s: float) -> None:
        """Ask the SA now and then whether we still are a member of the first group that we joined.

        This stands in for CLIENT_REREGISTER, which libibumad does not pass on. The client notices a silent
        SA without this.
        """
        while True:
            await asyncio.sleep(confirm_s)
            for group, _ in self.held[:1]:
                try:
                    await self.membership(group)
                except NoRecords:
                    self.reregister()
                except SaError as error:
                    _log.debug("%s: cannot confirm a membership at the SA: %s", self._place, error)

    async def _subscribe_to_groups(self) -> None:
        """Subscribe to the reports of M2. Without them an interface learns of new and deleted groups only
        when it asks again."""
        for trap in (Trap.GROUP_CREATED, Trap.GROUP_DELETED):
            try:
                await self.subscribe(trap)
            except LinkError as error:
                _log.info("%s: no reports of new and deleted groups: %s", self._place, error)

    def _flush(self, flush: Flush) -> None:
        if flush is Flush.LIGHT:
            self.reregister()  # `_read_events` notifies once the client has joined everything again
        else:
            self._notify(flush)
        if flush is Flush.NORMAL:  # the SA sends reports to the LID that subscribed
            self._begin(self._subscribe_to_groups())

    def _notify(self, change: Flush | Notice | Change) -> None:
        for listener in list(self._listeners):
            listener(change)


def _open_port(device: str, port: int) -> tuple[MadPort, Callable[[], frozenset[PKey]]]:
    """Return the port, and the partitions whose memberships we may not end (M4): by rdma_cm there are
    none, because the kernel counts all members."""
    try:
        return UmadPort(device, port), lambda: kernel_partitions(device, port)
    except (LinkError, NotPermitted) as refused:
        try:
            opened = KernelSaPort(device, port)
        except IpoibuError:
            raise refused from None
        _log.warning(
            "%s: rdma_cm asks the subnet administrator for us: no lists of groups, no reports",
            refused,
        )
        return opened, frozenset


def _path_untrusted(query: PathQuery, answer: Answer) -> PathRecord:
    record = pathrecord.parse_untrusted(answer.data)
    check_path(record, query)
    return record


def _inform_untrusted(answer: Answer) -> InformInfo:
    return notice.inform_untrusted(answer.data)
