# SPDX-License-Identifier: BSD-2-Clause
"""Waits for received packets, on a thread or on an event loop."""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from ipoibu import _core

_Packets = TypeVar("_Packets", bytes, _core.Frame)
Opened = Callable[[], _core.QueueDevice]
Take = Callable[[_core.QueueDevice, int], list[_Packets]]

_LOOK_S: Final = 1  # a waiting thread checks so often whether another closed the queue


class Inbox:
    """Waits for a queue's packets, for one receiver at a time.

    `opened` returns the queue, or raises the error that ends the wait. The inbox calls it each time,
    because a stored queue would keep its owner alive. `take` is the queue's method that receives.
    """

    def __init__(self) -> None:
        self._receiving = threading.Lock()
        self._poll: select.poll | None = (
            None  # on the descriptor of the queue, which stays the same
        )

    def receive(
        self, opened: Opened, take: Take[_Packets], max: int, timeout: float | None
    ) -> list[_Packets]:
        """Return at most `max` packets, or none after `timeout` seconds; 0 does not wait, None waits for
        ever."""
        queue = opened()
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._receiving:
            while True:
                packets = take(queue, max)
                if packets or timeout == 0 or max < 1:
                    return packets
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return []
                if queue.arm():
                    continue
                if self._poll is None:
                    self._poll = select.poll()
                    self._poll.register(queue.fd, select.POLLIN)
                self._poll.poll((_LOOK_S if left is None else min(_LOOK_S, left)) * 1000)
                queue.disarm()
                opened()

    async def areceive(self, opened: Opened, take: Take[_Packets], max: int) -> list[_Packets]:
        """Wait for packets on the caller's event loop, without a time-out; return at most `max`."""
        queue = opened()
        loop = asyncio.get_running_loop()
        while True:
            packets = take(queue, max)
            if packets or max < 1:
                return packets
            if queue.arm():
                continue
            readable = loop.create_future()
            loop.add_reader(queue.fd, _resolve, readable)
            try:
                await asyncio.wait((readable,), timeout=_LOOK_S)
            finally:
                loop.remove_reader(queue.fd)
                queue.disarm()
            opened()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
