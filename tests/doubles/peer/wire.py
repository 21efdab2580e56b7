# SPDX-License-Identifier: BSD-2-Clause
"""A link in memory between the tester and one host, whose clock only moves when somebody waits."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from ipoibu.conform.link import CannotSend, Heard, Link, LinkParams, QueuePair

TESTER_GID: Final = bytes.fromhex("fe800000000000000000000000000a11")
LATENCY_S: Final = 0.0002


class Station(Protocol):
    """The host on the other end."""

    hwaddr: bytes

    def frame_came(self, frame: bytes, sender: bytes, dgid: bytes, kind: QueuePair) -> None:
        """Take a datagram from hardware address `sender`. `kind` is the queue pair that it was sent by: the
        wrong keys are told by it."""


class Wire(Link):
    """The tester's `Link`; the host sends by `to_tester`, and has its timers here."""

    def __init__(self, mtu: int = 2044) -> None:
        self._mtu = mtu
        self._now_s = 1000.0
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._arrived: deque[Heard] = deque()
        self._groups: set[bytes] = set()
        self.host: Station | None = None
        self.connection: int | None = None  # the tester's queue pair
        self.connected_to: int | None = None
        self._qpns = itertools.count(0x500)

    @property
    def params(self) -> LinkParams:
        return LinkParams(pkey=0xFFFF, qkey=0x0B1B, mtu=self._mtu, scope=2)

    @property
    def description(self) -> str:
        return "a wire in memory"

    def now(self) -> float:
        return self._now_s

    def address(self, queue_pair: QueuePair) -> bytes:
        return (0x100 + queue_pair).to_bytes(4, "big") + TESTER_GID

    def later(self, seconds: float, call: Callable[..., None], *args: Any) -> None:
        """Call after so many seconds."""
        item = (self._now_s + seconds, next(self._order), call, args)
        heapq.heappush(self._timers, item)

    def send(self, queue_pair: QueuePair, to: bytes, frame: bytes) -> None:
        if queue_pair is not QueuePair.GSI and len(frame) > self._mtu + 4:
            raise CannotSend("the frame is longer than the link's MTU")
        self.later(LATENCY_S, self._reach, frame, self.address(queue_pair), to, queue_pair)

    def _reach(self, frame: bytes, sender: bytes, to: bytes, kind: QueuePair) -> None:
        host = self.host
        if host is None:
            return
        is_ours = to[4:] == host.hwaddr[4:] and (
            kind is QueuePair.GSI or to[1:4] == host.hwaddr[1:4]
        )
        if is_ours or to[4] == 0xFF:
            host.frame_came(frame, sender, to[4:], kind)

    def to_tester(self, to: bytes, frame: bytes, sender: bytes) -> None:
        """Carry a datagram of the host to a hardware address, or to a group."""
        self.later(LATENCY_S, self._arrive, to, frame, sender)

    def _arrive(self, to: bytes, frame: bytes, sender: bytes) -> None:
        if to[4] == 0xFF:
            if to[4:] not in self._groups:
                return
            queue_pair = QueuePair.MINE
        else:
            known = {self.address(it): it for it in QueuePair}
            found = known.get(bytes(1) + to[1:])
            if found is None:
                return
            queue_pair = found
        qpn = int.from_bytes(sender[1:4], "big")
        heard = Heard(self._now_s, queue_pair, frame, qpn, sender[4:], to[4:])
        self._arrived.append(heard)

    def gsi_to_tester(self, mad: bytes, sender: bytes) -> None:
        """Carry a management datagram of the host to the tester's queue pair 1."""

        def arrive() -> None:
            heard = Heard(self._now_s, QueuePair.GSI, mad, 1, sender[4:], TESTER_GID)
            self._arrived.append(heard)

        self.later(LATENCY_S, arrive)

    def rc_to_tester(self, qpn: int, message: bytes) -> None:
        """Carry a message of the host's connection to the tester's queue pair `qpn`."""

        def arrive() -> None:
            if qpn == self.connection and self.connected_to is not None:
                self._arrived.append(Heard(self._now_s, QueuePair.RC, message))

        self.later(LATENCY_S, arrive)

    def receive(self, until_s: float) -> Heard | None:
        while not self._arrived:
            if not self._timers or self._timers[0][0] > until_s:
                self._now_s = max(self._now_s, until_s)
                return None
            at_s, _, call, args = heapq.heappop(self._timers)
            self._now_s = max(self._now_s, at_s)
            call(*args)
        return self._arrived.popleft()

    def join(self, mgid: bytes) -> None:
        self._groups.add(mgid)

    def leave(self, mgid: bytes) -> None:
        self._groups.discard(mgid)

    def open_connection(self) -> int:
        self.connection, self.connected_to = next(self._qpns), None
        return self.connection

    def connect(self, to: bytes, qpn: int, path_mtu: int, receive_psn: int, send_psn: int) -> None:
        self.connected_to = qpn

    def send_message(self, message: bytes) -> None:
        assert self.host is not None
        if self.connected_to is None:
            raise CannotSend("there is no connection")
        sender = (self.connection or 0).to_bytes(4, "big") + TESTER_GID
        self.later(
            LATENCY_S,
            self.host.frame_came,
            message,
            sender,
            self.connected_to.to_bytes(16, "big"),
            QueuePair.RC,
        )

    def close_connection(self) -> None:
        self.connection = self.connected_to = None

    def close(self) -> None:
        self._timers.clear()
