# SPDX-License-Identifier: BSD-2-Clause
"""Signs of life of the pumps' threads, for a watchdog."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from ipoibu.endpoint.datapath.datapath import Pump

# A pump that works answers at once. It loses the answer if the event ring is full, so ask again.
RETRY_S: Final = 1.0


class Heartbeat:
    """Asks every pump of a data path for an answer; belongs to the engine's thread."""

    def __init__(self) -> None:
        self._token = 0
        self._answered = asyncio.Event()

    async def beat(self, pump_now: Callable[[], Pump | None]) -> None:
        """Return once every pump has answered, or when there is none: the data path is severed."""
        while (pump := pump_now()) is not None:
            self._token += 1
            self._answered.clear()
            with contextlib.suppress(BufferError):  # the pump does not take commands
                pump.sync(self._token)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._answered.wait()
            if self._answered.is_set():  # perhaps together with the time-out
                return

    def note_answered(self) -> None:
        """Note that all pumps have answered."""
        self._answered.set()
