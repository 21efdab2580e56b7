# SPDX-License-Identifier: BSD-2-Clause
"""Streams an interface's transitions to a client of the control socket, for `ipoibu monitor`.

The queue of each client is bounded: a client that reads slowly loses events, which the stream counts,
and never delays the engine or another client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, Final

from ipoibu.base.errors import IpoibuError
from ipoibu.base.limits import CONTROL_WORKING_S, EVENTS_PENDING_MAX, MONITORS_MAX
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.proto.machine.transition import Transition

Drain = Callable[[asyncio.StreamWriter], Awaitable[None]]  # waits until the client has read

# The daemon lives; the interface has no event, or a query runs.
WORKING: Final = b'{"working": true}\n'

KEYS: Final = (
    "time",
    "dev",
    "topic",
    "subject",
    "before",
    "state",
    "cause",
    "hwaddr",
    "detail",
    "former",
    "reason",
)


def event(name: str, time_s: float, transition: Transition) -> dict[str, Any]:
    """Return the event of the interface `name` as `ipoibu monitor -j` prints it; unknown values are None."""
    values = (
        round(time_s, 6),
        name,
        transition.topic.value,
        str(transition.subject) or None,
        transition.before or None,
        transition.after,
        transition.cause,
        str(transition.hwaddr) if transition.hwaddr is not None else None,
        transition.detail or None,
        str(transition.former) if transition.former is not None else None,
        transition.reason or None,
    )
    return dict(zip(KEYS, values, strict=True))


class EventStreams:
    """The streams of one interface, at most MONITORS_MAX; every method runs on the event loop's thread."""

    def __init__(
        self,
        name: str,
        endpoint: EndpointContract,
        executor: Executor,
        drain: Drain = asyncio.StreamWriter.drain,
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._executor = executor
        self._drain = drain
        self._running = 0

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        begin: Callable[[], None],
    ) -> None:
        """Write events from now on, until the client shuts its side down; call `begin` before the first."""
        if self._running >= MONITORS_MAX:
            raise IpoibuError(f"{MONITORS_MAX} clients monitor {self._name}; end one of them")
        self._running += 1
        try:
            await self._run(reader, writer, begin)
        finally:
            self._running -= 1

    async def _run(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: Callable[[], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        queue = _Queue(loop)
        end_watch = await loop.run_in_executor(self._executor, self._endpoint.watch, queue.take)
        ending = asyncio.ensure_future(reader.read(1))  # EOF from the client
        ending.add_done_callback(lambda _: queue.ready.set())
        try:
            begin()
            while not ending.done():
                try:
                    async with asyncio.timeout(CONTROL_WORKING_S):
                        await queue.ready.wait()
                except TimeoutError:
                    writer.write(WORKING)
                self._write(writer, *queue.drain())
                await self._drain(writer)
        finally:
            ending.cancel()
            await loop.run_in_executor(self._executor, end_watch)

    def _write(
        self, writer: asyncio.StreamWriter, taken: list[tuple[float, Transition]], lost: int
    ) -> None:
        lines: list[dict[str, Any]] = [event(self._name, *each) for each in taken]
        if lost:
            missing = {
                "time": round(time.time(), 6),
                "dev": self._name,
                "topic": "lost",
                "lost": lost,
            }
            lines.append(dict.fromkeys(KEYS) | missing)
        writer.write("".join(json.dumps(line) + "\n" for line in lines).encode())


class _Queue:
    """Passes transitions from the engine's thread, which never waits, to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ready = asyncio.Event()
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, Transition]] = deque()
        self._lost = 0

    def take(self, transition: Transition) -> None:
        with self._lock:
            if len(self._waiting) >= EVENTS_PENDING_MAX:
                self._lost += 1
                return
            self._waiting.append((time.time(), transition))
            is_first = len(self._waiting) == 1
        if is_first:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
                self._loop.call_soon_threadsafe(self.ready.set)

    def drain(self) -> tuple[list[tuple[float, Transition]], int]:
        """Return the waiting events, and how many events found no room since the last call."""
        self.ready.clear()
        with self._lock:
            taken, lost = list(self._waiting), self._lost
            self._waiting.clear()
            self._lost = 0
        return taken, lost
