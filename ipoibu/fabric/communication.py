# SPDX-License-Identifier: BSD-2-Clause
"""The communication manager of a port, for all interfaces on it: one thread, one queue pair 1.

The hand-shakes themselves are sans-IO (`proto.cm`); here their datagrams are sent and received, and
what they say is told to the interface that it is about.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ipoibu.addr import Gid, Qpn
from ipoibu.fabric.base import Destination
from ipoibu.limits import CM_ROUND
from ipoibu.proto.cm import Cm, CmConfig, MadSource
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.rc import (
    CmEffect,
    Connect,
    Disconnect,
    Ended,
    Event,
    Handle,
    Reject,
    Request,
    Requested,
    SendMad,
)
from ipoibu.wire.mad import GSI_QKEY

_log = logging.getLogger(__name__)

Deliver = Callable[[Event], None]


class GeneralServices(Protocol):
    """Queue pair 1 of a port, as a mailbox of 256-byte datagrams; one thread at a time."""

    @property
    def fd(self) -> int: ...
    def arm(self) -> None: ...
    def send(self, dest: Destination, qkey: int, mad: bytes) -> bool: ...
    def receive(self) -> tuple[bytes, int, bytes] | None: ...
    def close(self) -> None: ...


class Subscriber:
    """One interface: what it listens to, and how it hears (on the manager's thread)."""

    def __init__(self, service_ids: frozenset[int], deliver: Deliver) -> None:
        self.service_ids = service_ids
        self.deliver = deliver
        self.handles: set[Handle] = set()


class Communication:
    """Makes connections for the interfaces of one port; every method from any thread.

    Events come on a thread of its own, with no lock held that a request would wait for.
    """

    def __init__(self, gsi: GeneralServices, config: CmConfig) -> None:
        self._counts: Counter[str] = Counter()
        self.serials: Iterator[int] = itertools.count()  # of the interfaces' own handles
        self._gsi = gsi
        self._cm = Cm(config, random.Random())
        self._lock = threading.RLock()
        self._subscribers: list[Subscriber] = []
        self._owners: dict[Handle, Subscriber] = {}
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ipoibu-cm", daemon=True)
        self._thread.start()

    def subscribe(self, service_ids: frozenset[int], deliver: Deliver) -> Subscriber:
        """Requests for these service IDs go to `deliver`, which must not block."""
        subscriber = Subscriber(service_ids, deliver)
        with self._lock:
            self._subscribers.append(subscriber)
            self._listen()
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Its connections end, with a farewell each; it hears no more. Safe to repeat."""
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
                self._listen()
            for handle in list(subscriber.handles):
                self.request(subscriber, Disconnect(handle))

    def request(self, subscriber: Subscriber, request: Request) -> None:
        """What the interface's policy wants; answers come as events."""
        with self._lock:
            if self._closing:
                return
            if isinstance(request, Connect):
                self._own(request.handle, subscriber)
            effects = self._cm.request(time.monotonic(), request)
            self._carry_out(effects)
            if isinstance(request, Reject | Disconnect):
                self._disown(request.handle)
        self._wake()

    def counters(self) -> Counter[str]:
        with self._lock:
            return self._counts.copy()

    def close(self) -> None:
        """Farewell to everybody, and no thread any more; then the queue pair is closed."""
        with self._lock:
            if self._closing:
                return
            self._carry_out(self._cm.stop(time.monotonic()))
            self._closing = True
        self._wake()
        self._thread.join()
        os.close(self._wake_fd)
        self._gsi.close()

    # ---- the thread

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._gsi.fd, select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        while True:
            with self._lock:
                if self._closing:
                    return
                wait_ms = self._serve()
            poll.poll(wait_ms)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_fd)

    def _serve(self) -> float | None:
        """A round of what is there; how long to sleep then, in ms.

        A round ends, however fast datagrams come: timers and other threads' requests have a turn.
        """
        self._gsi.arm()
        for _ in range(CM_ROUND):
            datagram = self._gsi.receive()
            if datagram is None:
                break
            sgid, qpn, raw = datagram
            source = MadSource(Qpn(qpn), Gid(sgid))
            try:
                self._carry_out(self._cm.received(time.monotonic(), source, raw))
            except Exception:
                # A defect of ours. One datagram is lost; the port must not stop with it.
                self._counts["defect"] += 1
                _log.exception("a connection management datagram was not handled")
        now = time.monotonic()
        try:
            self._carry_out(self._cm.timer(now))
        except Exception:
            self._counts["defect"] += 1  # as above
            _log.exception("a connection management timer was not handled")
        if datagram is not None:
            return 0.0  # there may be more
        deadline = self._cm.deadline()
        return None if deadline is None else max(0.0, (deadline - now) * 1000 + 1)

    def _wake(self) -> None:
        if not self._closing or self._thread.is_alive():
            os.eventfd_write(self._wake_fd, 1)

    # ---- with the lock

    def _listen(self) -> None:
        ids: Iterable[frozenset[int]] = (each.service_ids for each in self._subscribers)
        self._cm.listen(frozenset().union(*ids))

    def _own(self, handle: Handle, subscriber: Subscriber) -> None:
        self._owners[handle] = subscriber
        subscriber.handles.add(handle)

    def _disown(self, handle: Handle) -> None:
        owner = self._owners.pop(handle, None)
        if owner is not None:
            owner.handles.discard(handle)

    def _carry_out(self, effects: Iterable[CmEffect]) -> None:
        for effect in effects:
            match effect:
                case SendMad(destination, raw):
                    if not self._gsi.send(destination, GSI_QKEY, raw):
                        self._counts["cm_send_failed"] += 1
                case Count(reason):
                    self._counts[reason] += 1
                case Log(level, text):
                    _log.log(level, "%s", text)
                case _:
                    self._tell(effect)

    def _tell(self, event: Event) -> None:
        if isinstance(event, Requested):
            for subscriber in self._subscribers:
                if event.service_id in subscriber.service_ids:
                    self._own(event.handle, subscriber)
                    break
        owner = self._owners.get(event.handle)
        if owner is None:
            return  # its interface has gone meanwhile
        if isinstance(event, Ended):
            self._disown(event.handle)
        owner.deliver(event)
