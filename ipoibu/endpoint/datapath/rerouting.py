# SPDX-License-Identifier: BSD-2-Clause
"""Second look-ups: packets that the pumps looked up by routes which the kernel has replaced."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import REROUTED_REFUSALS_MAX, REROUTED_WAIT_S
from ipoibu.base.route import AskRoute, Prefixes, RouteChange, Target
from ipoibu.endpoint.datapath.datapath import Pump
from ipoibu.proto.effects import Effect, Forward, Refuse
from ipoibu.proto.engine import Engine
from ipoibu.wire.ip import destination_of

_FIRST_TOKEN: Final = 1 << 32  # the tokens of the heartbeat are smaller


class Rerouting:
    """Belongs to the engine's thread; `perform` carries effects out. `pump` is None while there is none.

    The kernel sends packets by a new route at once, and the pumps learn of it some milliseconds later. So
    a mark (EVENT_SYNC) follows each change of routes through the pumps. What they looked up before comes
    up ahead of the mark; with the mark the engine looks up again the packets that wait. A packet to a
    dead next hop is refused only if the kernel sends it there, too: otherwise it waits for the routes
    that must be on their way.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        engine: Engine,
        perform: Callable[[Iterable[Effect]], None],
        pump: Pump,
    ) -> None:
        self.pump: Pump | None = pump
        self.ask_route: AskRoute | None = None
        self._loop = loop
        self._engine = engine
        self._perform = perform
        self._waiting = Prefixes()  # changed since the last mark
        self._marked: Prefixes | None = None  # those ahead of the mark in the pumps
        self._token = _FIRST_TOKEN
        self._timer: asyncio.TimerHandle | None = None
        self._is_resting = False
        # The refusals with their time, the first one first.
        self._refusals: deque[tuple[float, Refuse]] = deque()
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_under_way(self) -> bool:
        """Return whether the pumps may still look packets up by former routes."""
        return self._marked is not None

    def close(self) -> None:
        self.pump = self.ask_route = None
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()

    def note_changed(self, changes: Iterable[RouteChange]) -> None:
        """The pumps have commands for these changes; a neighbour that they lead to gets another chance."""
        for prefix, target in changes:
            self._waiting.add(prefix)
            for hop in target.hops if target is not None else ():
                if hop.via is not None:
                    self._waiting.add_host(hop.via)
        if self._marked is None and not self._is_resting:
            self._begin()

    def note_answered(self, token: int) -> None:
        """All pumps have passed the mark."""
        if token != self._token or self._marked is None:
            return
        began = self._loop.time()
        marked, self._marked = self._marked, None
        self._perform(self._engine.note_rerouted(began, marked.covers))
        former, self._refusals = self._refusals, deque()
        for end, refusal in former:
            if _is_covered(refusal, marked):
                self._perform([Forward(refusal.packet)])
            else:
                self._refusals.append((end, refusal))
        # Spend at most half of the time on second look-ups, however often routes change.
        self._is_resting = True
        self._set_timer(self._loop.time() - began, self._note_rested)

    def refuse(self, refusal: Refuse) -> bool:
        """Return whether to refuse the packet now; otherwise it waits for routes."""
        target = self.ask_route(refusal.packet) if self.ask_route is not None else None
        if target is None or _leads_to(target, refusal):
            return True
        if len(self._refusals) >= REROUTED_REFUSALS_MAX:
            return True
        self._refusals.append((self._loop.time() + REROUTED_WAIT_S, refusal))
        if self._expiry is None:
            self._expiry = self._loop.call_later(REROUTED_WAIT_S, self._expire)
        return False

    def _begin(self) -> None:
        self._marked, self._waiting = self._waiting, Prefixes()
        self._mark()

    def _mark(self) -> None:
        """Send the mark, and again if it gets lost: a full event ring has no room for it."""
        self._token += 1
        if self.pump is not None:
            with contextlib.suppress(BufferError):  # the pump takes no commands now
                self.pump.sync(self._token)
        self._set_timer(REROUTED_WAIT_S, self._mark)

    def _note_rested(self) -> None:
        self._is_resting = False
        if len(self._waiting):
            self._begin()

    def _set_timer(self, delay_s: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, then)

    def _expire(self) -> None:
        """Refuse the packets for which no routes came in time."""
        self._expiry = None
        while self._refusals and self._refusals[0][0] <= self._loop.time():
            _, refusal = self._refusals.popleft()
            if self.pump is not None:
                self.pump.deliver(refusal.error)
        if self._refusals:
            self._expiry = self._loop.call_at(self._refusals[0][0], self._expire)


def _is_covered(refusal: Refuse, prefixes: Prefixes) -> bool:
    destination = destination_of(refusal.packet)
    return destination is not None and prefixes.covers(destination)


def _leads_to(target: Target, refusal: Refuse) -> bool:
    """Return whether the route leads to the dead next hop; one without next hops does not help either."""
    destination: IpAddress | None = destination_of(refusal.packet)
    hops = [destination if hop.via is None else hop.via for hop in target.hops]
    return not hops or refusal.next_hop in hops
