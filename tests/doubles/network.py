# SPDX-License-Identifier: BSD-2-Clause
"""A fabric of datagrams in virtual time, with seeded faults."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr
from ipoibu.base.ib import Destination
from ipoibu.proto.context import FrameSource

LATENCY_S: Final = 20e-6
LONG_DELAY_S: Final = 0.5  # shorter than a retransmission, long enough to be overtaken by many


@dataclass(frozen=True, slots=True)
class Faults:
    """The probabilities of each fault, drawn for each receiver.

    Later datagrams overtake a delayed one, so a delay reorders, too.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0


PERFECT: Final = Faults()
TERRIBLE: Final = Faults(drop=0.1, duplicate=0.1, delay=0.1)


class Receiver(Protocol):
    """A host that is plugged into a network."""

    @property
    def hwaddr(self) -> HwAddr: ...

    def is_attached(self, mgid: Gid) -> bool: ...

    def receive(self, source: FrameSource, frame: bytes) -> None: ...


class VirtualClock:
    """Time that jumps to the next event. Events of the same time happen in the order of the `at` calls."""

    def __init__(self) -> None:
        self.now = 0.0
        self._serial = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time_s, self.now), next(self._serial), event))

    def step(self, until_s: float) -> bool:
        """Let the next event happen if it is due by `until_s`; else set the clock to that time."""
        if not self._events or self._events[0][0] > until_s:
            self.now = max(self.now, until_s)
            return False
        self.now, _, event = heapq.heappop(self._events)
        event()
        return True


class Network:
    """Delivers unicast to the receiver with the queue pair, and multicast to the members of the group.

    A multicast datagram comes back to its sender, as it does on real fabrics (E8).
    """

    def __init__(self, clock: VirtualClock, rng: random.Random, faults: Faults = PERFECT) -> None:
        self.faults = faults
        self.observers: list[Callable[[HwAddr, Destination, bytes], None]] = []
        self._clock = clock
        self._rng = rng
        self._receivers: list[Receiver] = []

    def plug(self, receiver: Receiver) -> None:
        self._receivers.append(receiver)

    def unplug(self, receiver: Receiver) -> None:
        self._receivers.remove(receiver)

    def send(self, sender: HwAddr, destination: Destination, frame: bytes) -> None:
        """Send one datagram; the network drops it silently if the destination does not exist."""
        for observer in self.observers:
            observer(sender, destination, frame)
        source = FrameSource(sender.qpn, sender.gid, destination.gid)
        for receiver in self._receivers:
            if self._receives(receiver, destination):
                for delay_s in self._fate():
                    self._deliver(receiver, source, frame, delay_s)

    def _receives(self, receiver: Receiver, destination: Destination) -> bool:
        if destination.qpn == MULTICAST_QPN:
            return receiver.is_attached(destination.gid)
        return (destination.qpn, destination.gid) == (receiver.hwaddr.qpn, receiver.hwaddr.gid)

    def _fate(self) -> list[float]:
        """Return the delays of the datagram's copies; none if the datagram is lost."""
        faults, dice = self.faults, self._rng.random()
        if dice < faults.drop:
            return []
        if dice < faults.drop + faults.duplicate:
            return [LATENCY_S, self._rng.uniform(LATENCY_S, LONG_DELAY_S)]
        if dice < faults.drop + faults.duplicate + faults.delay:
            return [self._rng.uniform(LATENCY_S, LONG_DELAY_S)]
        return [LATENCY_S]

    def _deliver(
        self, receiver: Receiver, source: FrameSource, frame: bytes, delay_s: float
    ) -> None:
        def arrive() -> None:
            if receiver in self._receivers:
                receiver.receive(source, frame)

        self._clock.at(self._clock.now + delay_s, arrive)
