# SPDX-License-Identifier: BSD-2-Clause
"""Asks neighbours by ARP or ND whether the active rail still reaches anybody, as the bonding driver's
`arp_ip_target` does: a switch may fail behind a port that stays up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import LinkError
from ipoibu.base.limits import RAIL_MISSES, RAIL_MONITOR_S

Ping = Callable[[IpAddress, float], Awaitable[dict[str, Any]]]


class RailMonitor:
    """Calls `heard` when a target answers, and `silent` when RAIL_MISSES rounds in a row bring no answer.

    A round asks every target once, for RAIL_MONITOR_S. `path` returns the data path, or None while the
    link is down: then the monitor asks nobody. A round during which the data path changed counts for
    nothing.
    """

    def __init__(
        self,
        targets: Sequence[IpAddress],
        ping: Ping,
        path: Callable[[], object | None],
        heard: Callable[[], None],
        silent: Callable[[], None],
    ) -> None:
        self._targets, self._ping, self._path = targets, ping, path
        self._heard, self._silent = heard, silent

    async def run(self) -> None:
        """Monitor until cancelled."""
        misses = 0
        while True:
            path = self._path()
            if path is None:
                misses = 0
                await asyncio.sleep(RAIL_MONITOR_S)
                continue
            is_heard = await self._round()
            if is_heard or self._path() is not path:
                misses = 0
            else:
                misses += 1
            if is_heard and self._path() is path:
                self._heard()
            elif misses == RAIL_MISSES:
                misses = 0
                self._silent()

    async def _round(self) -> bool:
        """Ask every target, for RAIL_MONITOR_S in all; return whether one answered."""
        asking = [self._ask(target) for target in self._targets]
        answers, _ = await asyncio.gather(asyncio.gather(*asking), asyncio.sleep(RAIL_MONITOR_S))
        return any(answers)

    async def _ask(self, target: IpAddress) -> bool:
        try:
            return (await self._ping(target, RAIL_MONITOR_S))["rtt_ms"] is not None
        except LinkError:  # too many pings are under way
            return True
