# SPDX-License-Identifier: BSD-2-Clause
"""An asyncio event loop on a thread of its own, on which other threads can run coroutines."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ipoibu.base.exhaustion import EXHAUSTION

_T = TypeVar("_T")


class Loop(asyncio.SelectorEventLoop):
    """An event loop that goes on, as far as the end of the process, when it gets no memory itself."""

    def run_forever(self) -> None:
        while True:
            try:
                super().run_forever()
            except MemoryError as error:
                if not EXHAUSTION.is_one(error):
                    raise
            else:
                return

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not EXHAUSTION.is_one(context.get("exception")):
            super().call_exception_handler(context)


class LoopThread:
    """Runs `loop` from `start` to `stop`, which any other thread may call."""

    def __init__(self, name: str) -> None:
        self.loop = Loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)

    @property
    def is_current(self) -> bool:
        """Return whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def submit(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, _T]]
) -> concurrent.futures.Future[_T]:
    """Call `work` on the loop's thread and run the coroutine that it makes.

    If the caller cancels the future in time, no coroutine stays behind without a task.
    """

    async def run() -> _T:
        return await work()

    return asyncio.run_coroutine_threadsafe(run(), loop)
