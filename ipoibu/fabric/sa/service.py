# SPDX-License-Identifier: BSD-2-Clause
"""The subnet administrator of one port, for all interfaces on it: `SaClient` on a thread of its own.

Interfaces live on loops of their own and come and go, while the SA knows one port with one set of
memberships. Whatever happens to the port or the SA is told to every listener as a `Flush`, what
happens to a group as a `Notice`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import enum
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ipoibu.errors import Closed, IpoibuError, LinkError
from ipoibu.fabric.sa.client import LEAVE_S, SaClient
from ipoibu.fabric.sa.umad import MadPortInfo
from ipoibu.proto.sa_errors import NoRecords, SaError
from ipoibu.proto.sa_requests import Change
from ipoibu.wire.notice import Notice, Trap

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

LOOK_S: Final = 1.0  # a change of LID, SM or P_Keys is noticed this late at most
CONFIRM_S: Final = 10.0  # an SA that was restarted and forgot us is noticed this late


class Flush(enum.IntEnum):
    """How much of an interface a change of the subnet makes void; the kernel's three levels."""

    LIGHT = 0  # the SA may have forgotten: join again, ask for paths again
    NORMAL = 1  # the port has another address: down and up
    HEAVY = 2  # the P_Keys are others: the queue pair is worthless if its own is gone


def flushes_of(before: MadPortInfo, after: MadPortInfo) -> list[Flush]:
    """What a change of the port means. A heavy flush is nothing to who kept his P_Key: he hears of
    what else has changed, too."""
    found = [Flush.HEAVY] if before.pkeys != after.pkeys else []
    if (before.lid, before.gid) != (after.lid, after.gid):
        found.append(Flush.NORMAL)
    elif (before.sa_lid, before.sa_sl) != (after.sa_lid, after.sa_sl):
        found.append(Flush.LIGHT)
    return found


class SaService:
    """Runs a client; every method may be called from any thread.

    `open_client` is called on the thread; what it raises is raised here.
    """

    def __init__(
        self, open_client: Callable[[], SaClient], *, confirm_s: float = CONFIRM_S
    ) -> None:
        self._confirm_s = confirm_s
        self._loop = asyncio.new_event_loop()
        self._listeners: list[Callable[[Flush | Notice], None]] = []
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ipoibu-sa", daemon=True
        )
        self._thread.start()
        try:
            self._client = self.ask(lambda: _made(open_client)).result()
        except BaseException:
            self._end_thread()
            raise
        self._info = self._client.info
        self._tasks: set[asyncio.Task[None]] = set()
        self.ask(self._begin).result()

    @property
    def info(self) -> MadPortInfo:
        """The port as it was a second ago or less."""
        return self._info

    def counters(self) -> dict[str, int]:
        """The client's, by name."""
        return dict(self._client.counts)

    def listen(self, listener: Callable[[Flush | Notice], None]) -> Callable[[], None]:
        """`listener` hears of changes, and of groups that come and go (M2), on the thread here; the
        result ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def ask(self, question: Callable[[], Coroutine[Any, Any, _T]]) -> concurrent.futures.Future[_T]:
        """Run what `question` makes on the client's loop; `Closed` after `close`."""
        if self._loop.is_closed():
            raise Closed("the subnet administrator's client was closed")
        return asyncio.run_coroutine_threadsafe(_late(question), self._loop)

    def told(self, flush: Flush) -> None:
        """The device says of itself that something has changed: look now, not in a second.

        From any thread. A change that is seen is told as what it is; LIGHT (client re-register) and
        NORMAL (the port was down) leave nothing to be seen, and happen anyway. HEAVY does not: a P_Key
        table whose entries are where they were, as the kernel has it.
        """

        def act() -> None:
            if flush not in self.look() and flush is not Flush.HEAVY:
                self._flush(flush)

        with contextlib.suppress(RuntimeError):  # closed: nobody to tell
            self._loop.call_soon_threadsafe(act)

    @property
    def client(self) -> SaClient:
        """For questions only: it belongs to the loop that `ask` runs them on."""
        return self._client

    def close(self) -> None:
        """Leave what is held, within two seconds, and end the thread. Safe to repeat."""
        if self._loop.is_closed():
            return

        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            current = asyncio.current_task()
            if busy := {task for task in asyncio.all_tasks() if task is not current}:
                await asyncio.wait(busy, timeout=LEAVE_S)  # interfaces' last leaves
            await self._client.aclose()

        try:
            self.ask(end).result(3 * LEAVE_S)
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _begin(self) -> None:
        for watch in self._hear(), self._watch(), self._confirm(), self._subscribe():
            self._start(watch)

    def _start(self, watch: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(watch)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _subscribe(self) -> None:
        """M2. Without reports a group's coming and going is noticed by asking again, later."""
        for trap in (Trap.GROUP_CREATED, Trap.GROUP_DELETED):
            try:
                await self._client.subscribe(trap)
            except LinkError as error:
                _log.info("%s", error)

    async def _hear(self) -> None:
        async for event in self._client.events():
            if isinstance(event, Notice):
                self._tell(event)
            elif event is Change.RETURNED:
                # Broadcast groups first; then each interface asks for what it uses.
                for (group, _), error in (await self._client.rejoin()).items():
                    _log.warning("after the subnet administrator's return: %s: %s", group, error)
                self._client.counts["sa_rejoined"] += 1
                self._tell(Flush.LIGHT)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> list[Flush]:
        """What has changed since the last look; everybody was told. On the client's loop."""
        try:
            after = self._client.look()
        except IpoibuError as error:
            _log.warning("%s", error)
            return []
        before, self._info = self._info, after
        found = flushes_of(before, after)
        for flush in found:
            self._flush(flush)
        return found

    def _flush(self, flush: Flush) -> None:
        if flush is Flush.LIGHT:
            self._client.reregister()  # `_hear` tells of it when everything is joined again
        else:
            self._tell(flush)
        if flush is Flush.NORMAL:  # reports go to the LID that has subscribed
            self._start(self._subscribe())

    async def _confirm(self) -> None:
        """Stands in for CLIENT_REREGISTER, which libibumad does not pass on: ask whether we still are
        a member of what we joined first. Silence is noticed by the client itself."""
        while True:
            await asyncio.sleep(self._confirm_s)
            for group, _ in self._client.held[:1]:
                try:
                    await self._client.membership(group)
                except NoRecords:
                    self._client.reregister()
                except SaError as error:
                    _log.debug("%s", error)

    def _tell(self, change: Flush | Notice) -> None:
        for listener in list(self._listeners):
            listener(change)


async def _made(make: Callable[[], _T]) -> _T:
    return make()


async def _late(question: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """So that what is cancelled before it began was never made."""
    return await question()
