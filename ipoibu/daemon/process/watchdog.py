# SPDX-License-Identifier: BSD-2-Clause
"""The watchdog of the service manager: notices while all threads make progress, as by sd_watchdog_enabled(3).

A beat passes all threads that packets need: the daemon's event loop asks the engine's thread of each
interface, and that thread asks its pumps. Without a beat for `interval_s` the service manager ends the
process by SIGABRT and starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Final, Self

from ipoibu.base.errors import Closed
from ipoibu.daemon.process.notify import notify

# One beat that comes late, as on a busy machine, is no hang.
_BEATS: Final = 4

_log = logging.getLogger(__name__)


# The name of an interface, and what returns once all of its threads have made progress.
Watched = tuple[str, Callable[[], Awaitable[None]]]


def interval_s() -> float | None:
    """Return how long the service manager waits for a beat, None if it does not wait for this process."""
    try:
        pid = int(os.environ.get("WATCHDOG_PID") or os.getpid())
        interval_us = int(os.environ.get("WATCHDOG_USEC") or 0)
    except ValueError:
        return None
    return interval_us / 1e6 if interval_us > 0 and pid == os.getpid() else None


class Watchdog:
    """Beats while every interface makes progress, from the entry of the context to its end."""

    def __init__(self, interfaces: Callable[[], Iterable[Watched]], beat_s: float) -> None:
        self._interfaces = interfaces
        self._beat_s = beat_s
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of_service(cls, interfaces: Callable[[], Iterable[Watched]]) -> Self | None:
        """Return the watchdog that the service manager asks for, if it does."""
        waits_s = interval_s()
        if waits_s is None:
            return None
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # stderr is closed
            faulthandler.enable()  # SIGABRT then prints where each thread is
        return cls(interfaces, waits_s / _BEATS)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            asked = [self._has_progressed(*each) for each in self._interfaces()]
            if all(await asyncio.gather(*asked)):
                notify("WATCHDOG=1")
                await asyncio.sleep(self._beat_s)

    async def _has_progressed(self, name: str, progress: Callable[[], Awaitable[None]]) -> bool:
        try:
            async with asyncio.timeout(self._beat_s):
                await progress()
        except TimeoutError:
            _log.error("%s: no progress for %.1f s", name, self._beat_s)
            return False
        except Closed:  # a child that ends
            pass
        return True
