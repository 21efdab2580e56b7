# SPDX-License-Identifier: BSD-2-Clause
"""The TX queues of one interface: passes the engine's commands to all pumps, and collects their events.

An interface with one queue has queue 0 only, which receives, and sends the engine's frames. Each further
queue reads one more queue of the TUN and sends its packets, by tables of its own: a pump owns all its
state, so the pumps share nothing and need no lock (ext/README.md).
"""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from typing import Final

from ipoibu import _core
from ipoibu.base.ib import Destination
from ipoibu.base.limits import TX_QUEUE_ORIGINS_MAX

# Events with a packet that the engine may send later.
_KEPT: Final = (_core.EVENT_MISS, _core.EVENT_HOST, _core.EVENT_ROUTE_ASK)
_SHOWN: Final = ("tx_packets", "tx_bytes", "tx_missed")


class TxQueues:
    """Several pumps with the methods of one; takes them over. Threads: as `_core.Pump`.

    There are no connections, because each belongs to one pump. `counters` adds up, and has some counters of
    each queue under `queue.N.`. If a queue refuses a table write, the other queues still get it, and then
    the call raises the error.
    """

    def __init__(self, pumps: Iterable[_core.Pump]) -> None:
        self._pumps = tuple(pumps)
        self._origin: dict[int, int] = {}  # hash of a waiting packet -> its queue, oldest first
        self._syncs: Counter[int] = Counter()
        self._device_failed = False
        self._wakes: list[select.epoll] = []
        try:
            self._event_wake = self._watch([pump.event_fd for pump in self._pumps])
            self._capture_wake = self._watch([pump.capture_fd for pump in self._pumps])
        except BaseException:
            self.close()
            raise

    def _watch(self, fds: Sequence[int]) -> select.epoll:
        wake = select.epoll()
        self._wakes.append(wake)
        for fd in fds:
            wake.register(fd, select.EPOLLIN)
        return wake

    # ---- life

    def start(self) -> None:
        """Start all pumps or, with an `OSError`, none."""
        started = []
        try:
            for pump in self._pumps:
                pump.start()
                started.append(pump)
        except BaseException:
            for pump in started:
                pump.stop()
            raise

    def stop(self) -> None:
        for pump in self._pumps:
            pump.stop()

    def close(self) -> None:
        """Free the pumps, after the end of the fabric. Safe to repeat."""
        for wake in self._wakes:
            wake.close()
        for pump in self._pumps:
            pump.close()

    def step(self, max: int = 64) -> int:
        """Step each pump one round by hand."""
        return sum(pump.step(max) for pump in self._pumps)

    # ---- commands

    def _all(self, write: Callable[[_core.Pump], None]) -> None:
        refused: BufferError | None = None
        for pump in self._pumps:
            try:
                write(pump)
            except BufferError as error:
                refused = error
        if refused is not None:
            raise refused

    def __getattr__(self, command: str) -> Callable[..., None]:
        """A command that this class does not name changes a table: every pump executes it."""
        if not hasattr(_core.Pump, command):
            raise AttributeError(f"a pump has no command {command!r}")
        return lambda *arguments: self._all(lambda pump: getattr(pump, command)(*arguments))

    def send_frame(self, dest: Destination, frame: bytes, source_qpn: int = 0) -> bool:
        return self._pumps[0].send_frame(dest, frame, source_qpn)

    def send_packet(self, packet: bytes) -> bool:
        """Send by the queue that the packet came from, before later packets of that queue."""
        return self._pumps[self._origin.pop(hash(packet), 0)].send_packet(packet)

    def forward(self, packet: bytes) -> bool:
        """Send by the queue that the packet came from, as `send_packet`, or by the first."""
        return self._pumps[self._origin.pop(hash(packet), 0)].forward(packet)

    def route_answer(
        self,
        packet: bytes,
        kind: int,
        gateway: bytes | None = None,
        hops: list[tuple[bytes | None, int]] | None = None,
    ) -> bool:
        """Answer every queue, and send the packet by the queue that it came from."""
        origin = self._origin.pop(hash(packet), 0)
        sent = [
            pump.route_answer(packet, kind, gateway, hops, number == origin)
            for number, pump in enumerate(self._pumps)
        ]
        return sent[origin]

    def deliver(self, packet: bytes) -> bool:
        return self._pumps[0].deliver(packet)

    def sync(self, token: int) -> None:
        """Cause one EVENT_SYNC, after the last queue has answered."""
        self._syncs[token] += len(self._pumps)
        self._all(lambda pump: pump.sync(token))

    # ---- events

    @property
    def event_fd(self) -> int:
        return self._event_wake.fileno()

    def arm_events(self) -> bool:
        """Arm the queues in turn; return True at the first queue that has events, without arming the
        rest."""
        return any(pump.arm_events() for pump in self._pumps)

    def disarm_events(self) -> None:
        for pump in self._pumps:
            pump.disarm_events()

    def events(self, max: int = 256) -> list[_core.Event]:
        """Return at most about `max` events, the oldest of each queue first."""
        share = -(-max // len(self._pumps))
        events: list[_core.Event] = []
        for tx_queue, pump in enumerate(self._pumps):
            events += [event for event in pump.events(share) if self._is_news(tx_queue, event)]
        return events

    def _is_news(self, tx_queue: int, event: _core.Event) -> bool:
        if event.type in _KEPT:
            if tx_queue > 0:
                self._remember(tx_queue, event.data)
        elif event.type == _core.EVENT_SYNC:
            self._syncs[event.token] -= 1
            return self._syncs[event.token] == 0 and self._syncs.pop(event.token) == 0
        elif event.type == _core.EVENT_DEVICE:
            is_repeated, self._device_failed = self._device_failed, True
            return not is_repeated  # all queues belong to one device
        return True

    def _remember(self, tx_queue: int, packet: bytes) -> None:
        """Remember only the hash of the packet, because the engine may have dropped it. A false match costs
        only order."""
        if len(self._origin) >= TX_QUEUE_ORIGINS_MAX:
            del self._origin[next(iter(self._origin))]
        self._origin[hash(packet)] = tx_queue

    @property
    def capture_fd(self) -> int:
        return self._capture_wake.fileno()

    def arm_captured(self) -> bool:
        return any(pump.arm_captured() for pump in self._pumps)

    def disarm_captured(self) -> None:
        for pump in self._pumps:
            pump.disarm_captured()

    def captured(self, max: int = 256) -> list[_core.CapturedFrame]:
        """Return at most about `max` frames, in the order of time as far as the queues have captured
        them."""
        share = -(-max // len(self._pumps))
        batches = [pump.captured(share) for pump in self._pumps]
        return list(merge(*batches, key=lambda frame: frame.time_ns))

    def counters(self) -> dict[str, int]:
        each = [pump.counters() for pump in self._pumps]
        total = {name: sum(counters[name] for counters in each) for name in each[0]}
        for tx_queue, counters in enumerate(each):
            total |= {f"queue.{tx_queue}.{name}": counters[name] for name in _SHOWN}
        return total

    @property
    def commands_dropped(self) -> int:
        return sum(pump.commands_dropped for pump in self._pumps)
