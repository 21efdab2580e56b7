# SPDX-License-Identifier: BSD-2-Clause
"""Takes an endpoint's packets on the threads that wait for datagrams of blocking sockets."""

from __future__ import annotations

import select
import threading
import time
from collections import Counter, deque
from itertools import repeat

from ipoibu.aio.address import SocketAddress
from ipoibu.aio.host import Host, Receiver, refuse_other_receiver
from ipoibu.base.limits import (
    AIO_BATCH,
    AIO_LOOK_S,
    AIO_RECEIVE_BYTES,
    AIO_RECEIVE_OVERHEAD_BYTES,
)

Datagram = tuple[bytes, SocketAddress]


class Mailbox:
    """The datagrams that a blocking socket has not read, and its last error."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._datagrams: deque[Datagram] = deque()
        self._held_bytes = 0
        self.problem: Exception | None = None

    def __len__(self) -> int:
        return len(self._datagrams)

    def put(self, payloads: list[bytes], address: SocketAddress) -> None:
        added = sum(map(len, payloads)) + AIO_RECEIVE_OVERHEAD_BYTES * len(payloads)
        if self._held_bytes + added <= AIO_RECEIVE_BYTES:
            self._held_bytes += added
            self._datagrams.extend(zip(payloads, repeat(address)))
            return
        for payload in payloads:
            added = len(payload) + AIO_RECEIVE_OVERHEAD_BYTES
            if self._held_bytes + added > AIO_RECEIVE_BYTES:
                self._counts["receive_full"] += 1
            else:
                self._held_bytes += added
                self._datagrams.append((payload, address))

    def note_problem(self, problem: Exception) -> None:
        self.problem = problem

    def take(self, count: int) -> list[Datagram]:
        """Return at most `count` datagrams; raise the last error, once."""
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem
        datagrams = self._datagrams
        if len(datagrams) <= count:
            taken = list(datagrams)
            datagrams.clear()
            self._held_bytes = 0
            return taken
        taken = [datagrams.popleft() for _ in range(count)]
        freed = sum(len(payload) for payload, _ in taken)
        self._held_bytes -= freed + AIO_RECEIVE_OVERHEAD_BYTES * count
        return taken


class ThreadReceiver(Receiver):
    """The receiver of a host with blocking sockets. Of the threads that wait, one takes the packets for all;
    `lock` guards the host and its sockets."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._queue = host.endpoint.packet_queue
        self.lock = threading.Condition()
        self._is_led = False
        self._poll = select.poll()
        self._poll.register(self._queue.fd, select.POLLIN)
        self._next_look = 0.0

    @classmethod
    def of(cls, host: Host) -> ThreadReceiver:
        """Return the receiver of this host; `UsageError` if its sockets are on an event loop."""
        with host.starting:
            receiver = host.receiver
            if not isinstance(receiver, cls):
                refuse_other_receiver(host, "blocking ones")
                receiver = host.receiver = cls(host)
                host.schedule = lambda function: function()
                host.start()
            return receiver

    def release(self) -> None:
        """End unless there are sockets."""
        host = self._host
        with host.starting:
            if host.receiver is self and not len(host.ports):
                host.receiver = None
                host.stop()

    def receive(self, mailbox: Mailbox, count: int, timeout_s: float | None) -> list[Datagram]:
        """Return at most `count` datagrams of one socket, or none after the time; None waits for ever.

        `OSError` for an ICMP error, `Closed` if the endpoint is closed meanwhile.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self.lock:
                if mailbox.problem is not None or len(mailbox):
                    return mailbox.take(count)
                if not self._is_led:
                    self._is_led = True
                elif self._is_over(deadline):
                    return []
                else:
                    self.lock.wait(self._left(deadline))
                    continue
            try:
                is_over = self._lead(deadline)
            finally:
                with self.lock:
                    self._is_led = False
                    self.lock.notify_all()
            if is_over and not len(mailbox) and mailbox.problem is None:
                return []

    def _lead(self, deadline: float | None) -> bool:
        """Take what is there, or wait for it; return whether the time is over."""
        queue = self._queue
        runs = queue.recv_runs(AIO_BATCH)
        is_over = False
        if not runs:
            is_over = self._is_over(deadline)
            if not is_over and not queue.arm():
                self._poll.poll(1000 * self._left(deadline))
                queue.disarm()
                runs = queue.recv_runs(AIO_BATCH)
        now = time.monotonic()
        with self.lock:
            if runs:
                self._host.dispatch(now, runs)
            if now >= self._next_look:
                self._next_look = now + AIO_LOOK_S
                self._host.look(now)
        return is_over

    def _is_over(self, deadline: float | None) -> bool:
        return deadline is not None and time.monotonic() >= deadline

    def _left(self, deadline: float | None) -> float:
        """Return how long to sleep: not for longer than until the next look at the endpoint."""
        left = AIO_LOOK_S if deadline is None else deadline - time.monotonic()
        return max(0.0, min(left, AIO_LOOK_S))
