# SPDX-License-Identifier: BSD-2-Clause
"""Drops of peers' messages, for observers: of each peer and counter the first one within a minute."""

from __future__ import annotations

from collections import OrderedDict

from ipoibu.base.limits import DROPS_NOTED_MAX, DROPS_QUIET_S
from ipoibu.proto.machine.transition import Observer, Topic, Transition


class Drops:
    """Passes drops to `observe`. `Drops` remembers at most `cap` pairs; a new pair replaces the oldest."""

    def __init__(self, observe: Observer, cap: int = DROPS_NOTED_MAX) -> None:
        self._observe = observe
        self._cap = cap
        self._noted: OrderedDict[tuple[str, str], float] = OrderedDict()  # noted longest ago first

    def note(self, now: float, peer: object, counter: str) -> None:
        """Note that we dropped a message of `peer`, and counted it under `counter`."""
        key = str(peer), counter
        since = self._noted.get(key)
        if since is not None and now - since < DROPS_QUIET_S:
            return
        self._noted.pop(key, None)
        if len(self._noted) >= self._cap:
            self._noted.popitem(last=False)
        self._noted[key] = now
        self._observe(Transition(Topic.DROP, key[0], "", counter, "a message of the peer"))
