# SPDX-License-Identifier: BSD-2-Clause
"""The heavy flush: a new queue pair under an interface that lives on (the kernel's ipoib does likewise).

The interface's P_Key has another index or membership, has gone or is back; or the link has another
MTU, Q_Key or the like. Its queue pair is worthless then. Addresses, routes, groups and the TUN stay; what
goes with the queue pair goes: its number, neighbours, paths, connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from ipoibu.errors import IpoibuError
from ipoibu.ib import PartitionParams
from ipoibu.limits import GROUP_BACKOFF_MAX_S, GROUP_BACKOFF_MIN_S
from ipoibu.proto.ratelimit import should_log

_log = logging.getLogger(__name__)


class HeavyFlush:
    """Carries heavy flushes out, one at a time; every method on the interface's loop.

    `sever` takes the link down and ends the queue pair; `find` asks what the link is like now, `resume` makes
    a queue pair for it, or `abandon` undoes what `find` did. While `find` or `resume` raises, the link stays
    down: asked again after 1, 2 .. 16 s, and whenever the subnet changes. `place` is for the log.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        place: str,
        counts: Counter[str],
        *,
        sever: Callable[[], None],
        find: Callable[[], Awaitable[PartitionParams]],
        resume: Callable[[PartitionParams], None],
        abandon: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._place = place
        self._counts = counts
        self._sever = sever
        self._find = find
        self._resume = resume
        self._abandon = abandon
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    @property
    def is_under_way(self) -> bool:
        return self._task is not None

    def demand(self, why: str) -> None:
        """The queue pair is worthless; or, while it is being renewed, something has changed again."""
        if self._task is not None:
            self._changed.set()
            return
        _log.warning("%s: %s: the queue pair is made anew", self._place, why)
        self._counts["renewals"] += 1
        self._sever()
        self._task = self._loop.create_task(self._run())

    def close(self) -> None:
        """What is under way ends; the link is left."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._abandon()

    async def _run(self) -> None:
        refusals, wait_s = 0, GROUP_BACKOFF_MIN_S
        while True:
            self._changed.clear()
            try:
                self._take(await self._find())
                break
            except IpoibuError as error:
                refusals += 1
                self._counts["renewals_refused"] += 1
                if should_log(refusals):
                    times = "" if refusals == 1 else f" ({refusals} times)"
                    _log.warning("%s: the link stays down: %s%s", self._place, error, times)
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
                wait_s = GROUP_BACKOFF_MIN_S
            except TimeoutError:
                wait_s = min(2 * wait_s, GROUP_BACKOFF_MAX_S)
        self._task = None

    def _take(self, params: PartitionParams) -> None:
        try:
            self._resume(params)
        except BaseException:
            self._abandon()
            raise
