# SPDX-License-Identifier: BSD-2-Clause
"""Announces our addresses again when another host announces its own soon after we have moved.

Hosts with several rails leave a wire that is cut one after the other, as each of them notices; until then a
host takes what is to groups from that wire alone (`ext/rails`, and the kernel's bonding driver). So a host
that moves has not heard who moved before it. Its own announcement, which these hear, tells them that it would
hear them now: they need not wait for the time of their next announcement.

We may know nothing of the other host, and it have us as a neighbour; so every announcement counts. However
many come, each of ours comes twice as long after our move as the last one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ipoibu.base.limits import MOVES_AGAIN_S, MOVES_WINDOW_S
from ipoibu.proto.context import EngineContext


class Moves:
    """`announce` sends one announcement of each address that is ours or behind us."""

    def __init__(self, context: EngineContext, announce: Callable[[], None]) -> None:
        self._context = context
        self._announce = announce
        self._moved_s = -math.inf
        self._announced_s = -math.inf

    def note_moved(self, now: float) -> None:
        """We have another hardware address, and have announced it."""
        self._moved_s = self._announced_s = now

    def note_heard(self, now: float) -> None:
        """Another host has announced its address."""
        if now - self._moved_s > MOVES_WINDOW_S:
            return
        pause_s = max(MOVES_AGAIN_S, self._announced_s - self._moved_s)
        at = self._announced_s + pause_s
        if now >= at:
            self._ring(now, None)
        else:
            self._context.timers.arm(self._ring, None, at)

    def _ring(self, now: float, _: None) -> None:
        self._announced_s = now
        self._context.count("moved_again")
        self._announce()
