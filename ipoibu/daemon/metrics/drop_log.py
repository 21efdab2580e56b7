# SPDX-License-Identifier: BSD-2-Clause
"""Logs the packets that the data path drops, by reason.

`endpoint/interface/event_log.py` logs drops with their peer: those of the engine, and of the pump's drops
as many as it may report. The fabric only counts, so `DropLog` reads the counters and logs the differences,
with the sender of the last packet where the fabric knows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from ipoibu.base.errors import IpoibuError
from ipoibu.base.limits import DROP_LOG_MAX_S, DROP_LOG_MIN_S, DROP_LOOK_S
from ipoibu.daemon.metrics.counters import counter, split_queue
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.proto.machine.backoff import Backoff

_log: Final = logging.getLogger(__name__)

# Drops that a configuration causes: an administrator has to know
_TOO_LONG: Final = "fabric.drop_too_long"
_PKEY: Final = "fabric.drop_pkey"


@dataclass(slots=True)
class _Reason:
    """One counter: its value in the last line, and when the next line may come."""

    logged: int
    quiet_until: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(DROP_LOG_MIN_S, DROP_LOG_MAX_S))


class CountedDrops:
    """Finds drops to log. The first drop for a reason gets a line at once. While drops go on, the next
    lines follow after 1, 2, 4 .. 60 minutes. After 60 minutes without drops the waits begin anew."""

    def __init__(self, stats: Mapping[str, int]) -> None:
        self._reasons: dict[str, _Reason] = {
            name: _Reason(value) for name, value in stats.items() if _is_logged(name)
        }

    def look(self, now: float, stats: Mapping[str, int]) -> list[tuple[str, int]]:
        """Return the counters to log, each with the number of drops since its last line."""
        found = []
        for name, value in stats.items():
            if not _is_logged(name):
                continue
            reason = self._reasons.setdefault(name, _Reason(0))
            reason.logged = min(reason.logged, value)  # a new data path counts from zero
            if value == reason.logged or now < reason.quiet_until:
                continue
            if now >= reason.quiet_until + DROP_LOG_MAX_S:
                reason.backoff.reset()
            found.append((name, value - reason.logged))
            reason.logged, reason.quiet_until = value, now + reason.backoff.next_s()
        return found


class DropLog:
    """Looks at the counters of one interface from `start` to `close`, on the event loop's thread."""

    def __init__(
        self,
        name: str,
        endpoint: EndpointContract,
        executor: Executor,
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._executor = executor
        self._task: asyncio.Task[None] | None = None
        self._has_named_membership = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(IpoibuError):  # the endpoint ends first
            drops = CountedDrops(await loop.run_in_executor(self._executor, self._endpoint.stats))
            while True:
                await asyncio.sleep(DROP_LOOK_S)
                stats = await loop.run_in_executor(self._executor, self._endpoint.stats)
                if found := drops.look(loop.time(), stats):
                    sources = await loop.run_in_executor(
                        self._executor, self._endpoint.drop_sources
                    )
                    for name, count in found:
                        self._write(name, count, sources.get(name))

    def _write(self, name: str, count: int, source: str | None) -> None:
        likely = self._likely(name)
        meaning = counter(name).meaning
        level = logging.INFO
        if likely is not None:
            level, meaning = logging.WARNING, likely
        packets = "a packet" if count == 1 else f"{count} packets"
        if source is not None:
            packets += f" from {source}" if count == 1 else f", the last from {source}"
        _log.log(level, "%s: dropped %s, %s: %s", self._name, packets, name, meaning)

    def _likely(self, name: str) -> str | None:
        """Return the cause and the remedy where a configuration probably causes the drops."""
        if name == _TOO_LONG:
            return (
                f"another host of the link probably has a larger MTU than ours, {self._endpoint.mtu}:"
                " give all hosts of the link the same --mtu"
            )
        params = self._endpoint.params
        if name == _PKEY and params.is_limited and not self._has_named_membership:
            self._has_named_membership = True  # the membership is no fault of every drop
            return (
                f"this host is a limited member of partition {params.pkey}, and probably the sender is one,"
                " too: two limited members cannot reach each other; make one of them a full member in"
                " partitions.conf"
            )
        return None


def _is_logged(name: str) -> bool:
    """Return whether a counter counts drops of the data path; the sum over all queues is one of them."""
    queue, _ = split_queue(name)
    return queue is None and not name.startswith("engine.") and counter(name).is_drop
