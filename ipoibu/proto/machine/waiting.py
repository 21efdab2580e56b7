# SPDX-License-Identifier: BSD-2-Clause
"""Packets that wait for an answer: a queue for each key, bounded in bytes as the kernel's are.

A queue takes packets while they fit `each_bytes`, so a burst waits whole, whatever the length of its
packets. All queues together have at most `total_bytes`: the queue that began first makes room for others.
It has waited longest without an answer, so a scan of silent hosts pushes out its own packets, and not those
of a host that is about to answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ipoibu.base.limits import WAITING_OVERHEAD_BYTES

K = TypeVar("K")
P = TypeVar("P")


@dataclass(slots=True)
class _Queue(Generic[P]):
    packets: list[tuple[P, int]] = field(default_factory=list)
    bytes: int = 0


class Waiting(Generic[K, P]):
    """Queues of packets `P` by key `K`; `evicted(key, count)` hears of packets that made room for others."""

    def __init__(
        self, each_bytes: int, total_bytes: int, evicted: Callable[[K, int], None]
    ) -> None:
        self._each_bytes = each_bytes
        self._total_bytes = total_bytes
        self._evicted = evicted
        self._queues: OrderedDict[K, _Queue[P]] = OrderedDict()  # the one that began first is first
        self.bytes = 0

    def add(self, key: K, packet: P, packet_bytes: int) -> bool:
        """Keep the packet; False if the queue has no room for it."""
        cost = packet_bytes + WAITING_OVERHEAD_BYTES
        queue = self._queues.get(key)
        if (queue.bytes if queue is not None else 0) + cost > self._each_bytes:
            return False
        if queue is None:
            queue = self._queues[key] = _Queue()
        queue.packets.append((packet, cost))
        queue.bytes += cost
        self.bytes += cost
        while self.bytes > self._total_bytes:
            oldest = next(iter(self._queues))
            self._evicted(oldest, len(self.take(oldest)))
        return True

    def waited_for(self) -> list[K]:
        """Return the keys for which packets wait."""
        return list(self._queues)

    def of(self, key: K) -> Iterator[P]:
        """Yield the packets of a queue, the first one first."""
        queue = self._queues.get(key)
        return iter(()) if queue is None else (packet for packet, _ in queue.packets)

    def count(self, key: K) -> int:
        queue = self._queues.get(key)
        return 0 if queue is None else len(queue.packets)

    def take(self, key: K) -> list[P]:
        """Remove a queue, and return its packets."""
        queue = self._queues.pop(key, None)
        if queue is None:
            return []
        self.bytes -= queue.bytes
        return [packet for packet, _ in queue.packets]

    def discard(self, key: K, is_unwanted: Callable[[P], bool]) -> int:
        """Remove some packets of a queue; return how many."""
        queue = self._queues.get(key)
        if queue is None:
            return 0
        kept = [(packet, cost) for packet, cost in queue.packets if not is_unwanted(packet)]
        removed = len(queue.packets) - len(kept)
        queue.packets, before = kept, queue.bytes
        queue.bytes = sum(cost for _, cost in kept)
        self.bytes += queue.bytes - before
        if not kept:
            del self._queues[key]
        return removed
