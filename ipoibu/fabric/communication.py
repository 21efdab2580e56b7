# SPDX-License-Identifier: BSD-2-Clause
"""The communication manager of a port, for all interfaces on it: one thread, whoever makes the connections.

`Communication` knows who asks and who is told; `GsiCommunication` makes connections by datagrams of its
own, `RdmacmCommunication` by the kernel's manager. What is said is in `proto.rc`.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from typing import ClassVar

from ipoibu.proto.rc import Connect, Disconnect, Ended, Event, Handle, Reject, Request, Requested
from ipoibu.wire.cm_private import ServiceForm

_log = logging.getLogger(__name__)

Deliver = Callable[[Event], None]


class Subscriber:
    """One interface: what it listens to, and how it hears (on the manager's thread)."""

    def __init__(self, service_ids: frozenset[int], deliver: Deliver) -> None:
        self.service_ids = service_ids
        self.deliver = deliver
        self.handles: set[Handle] = set()


class Communication(ABC):
    """Makes connections for the interfaces of one port; every method from any thread.

    Events come on a thread of its own, with no lock held that a request would wait for.
    """

    forms: ClassVar[tuple[ServiceForm, ...]]
    """How a peer can be asked, in the order of trying (C7)."""

    def __init__(self) -> None:
        self.serials: Iterator[int] = itertools.count()  # of the interfaces' own handles
        self._counts: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._subscribers: list[Subscriber] = []
        self._owners: dict[Handle, Subscriber] = {}
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="ipoibu-cm", daemon=True)

    def subscribe(self, service_ids: frozenset[int], deliver: Deliver) -> Subscriber:
        """Requests for these service IDs go to `deliver`, which must not block.

        `LinkError` where nobody can listen for them.
        """
        subscriber = Subscriber(service_ids, deliver)
        with self._lock:
            self._subscribers.append(subscriber)
            try:
                self._listen(self._service_ids())
            except BaseException:
                self._subscribers.remove(subscriber)
                raise
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Its connections end, with a farewell each; it hears no more. Safe to repeat."""
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
                self._listen(self._service_ids())
            for handle in list(subscriber.handles):
                self.request(subscriber, Disconnect(handle))

    def request(self, subscriber: Subscriber, request: Request) -> None:
        """What the interface's policy wants; answers come as events."""
        with self._lock:
            if self._closing:
                return
            if isinstance(request, Connect):
                self._own(request.handle, subscriber)
            self._ask(request)
            if isinstance(request, Reject | Disconnect):
                self._disown(request.handle)
        self._wake()

    def counters(self) -> Counter[str]:
        with self._lock:
            return self._counts.copy()

    def close(self) -> None:
        """Farewell to everybody, and no thread any more."""
        with self._lock:
            if self._closing:
                return
            self._say_farewell()
            self._closing = True
        self._wake()
        self._thread.join()
        os.close(self._wake_fd)
        self._release()

    # ---- of a kind of manager, all with the lock but `_release`

    @abstractmethod
    def _fileno(self) -> int:
        """Readable when `_serve` has something to do."""

    @abstractmethod
    def _serve(self) -> float | None:
        """A round of what is there; how long to sleep then, in ms, None for as long as it takes.

        A round ends, however fast things come: timers and other threads' requests have a turn.
        """

    @abstractmethod
    def _listen(self, service_ids: frozenset[int]) -> None:
        """Take requests for these from now on, and no others; `LinkError` and all is as it was."""

    @abstractmethod
    def _ask(self, request: Request) -> None: ...

    @abstractmethod
    def _say_farewell(self) -> None:
        """To every peer."""

    @abstractmethod
    def _release(self) -> None:
        """There is no thread any more."""

    # ---- the thread

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fileno(), select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        while True:
            with self._lock:
                if self._closing:
                    return
                wait_ms = self._serve()
            poll.poll(wait_ms)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_fd)

    def _wake(self) -> None:
        if not self._closing or self._thread.is_alive():
            os.eventfd_write(self._wake_fd, 1)

    def _defect(self, what: str) -> None:
        """In an exception's handler. One message is lost; the port must not stop with it."""
        self._counts["defect"] += 1
        _log.exception("%s was not handled", what)

    # ---- with the lock

    def _service_ids(self) -> frozenset[int]:
        return frozenset().union(*(each.service_ids for each in self._subscribers))

    def _own(self, handle: Handle, subscriber: Subscriber) -> None:
        self._owners[handle] = subscriber
        subscriber.handles.add(handle)

    def _disown(self, handle: Handle) -> None:
        owner = self._owners.pop(handle, None)
        if owner is not None:
            owner.handles.discard(handle)

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
