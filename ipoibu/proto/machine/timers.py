# SPDX-License-Identifier: BSD-2-Clause
"""The engine's alarms: one per (callback, key), the earliest first, and a bound on the heap.

Cancelling and re-arming leave dead records in the heap, so a peer that confirms an entry over and over
could make the heap grow. An alarm that moves later therefore keeps its record, which `deadline` pushes
back when its time comes, and `_file` rebuilds the heap when most of its records are dead.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Any, Final

_SLACK: Final = 64  # so few dead records are not worth a rebuild

Alarm = tuple[Callable[[float, Any], None], Hashable]


class Timers:
    """Alarms by virtual time; the caller passes the time in."""

    def __init__(self) -> None:
        self._due: dict[Alarm, float] = {}
        self._filed: dict[Alarm, float] = {}  # the time of the alarm's record in the heap
        self._heap: list[tuple[float, int, Alarm]] = []
        self._serial = itertools.count()  # equal times ring in the order of arming

    def __len__(self) -> int:
        return len(self._due)

    def arm(self, ring: Callable[[float, Any], None], key: Hashable, at: float) -> None:
        """Call `ring(now, key)` at `at`; replaces the alarm of the same callback and key."""
        alarm = (ring, key)
        self._due[alarm] = at
        filed = self._filed.get(alarm)
        if filed is None or at < filed:
            self._file(alarm, at)

    def cancel(self, ring: Callable[[float, Any], None], key: Hashable) -> None:
        """Forget the alarm, if there is one."""
        self._due.pop((ring, key), None)

    def deadline(self) -> float | None:
        """Return the time of the next call of `run`; None without an alarm."""
        while self._heap:
            at, _, alarm = self._heap[0]
            due = self._due.get(alarm)
            if due == at:
                return at
            heapq.heappop(self._heap)
            if self._filed.get(alarm) == at:
                del self._filed[alarm]
                if due is not None:
                    self._file(alarm, due)
        return None

    def run(self, now: float) -> None:
        """Ring every alarm that is due. The loop ends, because a callback arms only later than `now`."""
        while (at := self.deadline()) is not None and at <= now:
            _, _, (ring, key) = heapq.heappop(self._heap)
            del self._filed[ring, key], self._due[ring, key]
            ring(now, key)

    def _file(self, alarm: Alarm, at: float) -> None:
        self._filed[alarm] = at
        heapq.heappush(self._heap, (at, next(self._serial), alarm))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._filed = dict(self._due)
            self._heap = [(due, next(self._serial), live) for live, due in self._due.items()]
            heapq.heapify(self._heap)
