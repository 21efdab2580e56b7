# SPDX-License-Identifier: BSD-2-Clause
"""The timers of asyncio that a machine's deadlines leave behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

from ipoibu.fabric.effect_loop import TimedEffectLoop

FEW = 100  # asyncio looks for cancelled timers from so many on
FAR_S = 3600.0


class Alternating:
    """A machine whose deadline moves at each look, an hour from now."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._looks = 0

    def deadline(self) -> float:
        self._looks += 1
        return self._now + FAR_S + self._looks % 2

    def timer(self, now: float) -> Iterator[object]:
        return iter(())


def left_behind() -> int:
    gc.collect()
    return sum(isinstance(it, asyncio.TimerHandle) and it.cancelled() for it in gc.get_objects())


def test_cancelled_timers_stay_few() -> None:
    """tests/soak/sockets.py leaves them out of its count: each is two objects, until asyncio removes them."""

    async def move() -> list[int]:
        loop = asyncio.get_running_loop()
        effects: TimedEffectLoop[object] = TimedEffectLoop(
            loop, Alternating(loop.time()), lambda effect: None
        )
        # asyncio removes a cancelled timer that is the next one, so let another one be earlier.
        earlier = loop.call_later(FAR_S / 2, effects.stop)
        before, counts = left_behind(), []
        for turns in (FEW // 2, 20 * FEW):
            for _ in range(turns):
                effects.perform(())
                await asyncio.sleep(0)  # asyncio removes them at the start of an iteration
            counts.append(left_behind() - before)
        effects.stop()
        earlier.cancel()
        return counts

    half, long_after = asyncio.run(move())
    assert half > FEW // 4, "moved deadlines leave timers behind"
    assert long_after <= FEW
