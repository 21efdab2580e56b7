# SPDX-License-Identifier: BSD-2-Clause
"""The communication manager of a port, for all interfaces on it: one thread, whoever makes the connections.

`CmService` knows who asks and who is told; `GsiCm` makes connections by datagrams of its
own, `RdmaCm` by the kernel's manager. What is said is in `proto.rc_events`.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from ipoibu.addr import DEFAULT_PKEY, PKey
from ipoibu.fabric.worker import Worker
from ipoibu.proto.rc_events import (
    Connect,
    Disconnect,
    Ended,
    Event,
    Handle,
    Reject,
    Request,
    Requested,
)
from ipoibu.wire.cm_private import ServiceForm

Deliver = Callable[[Event], None]


class Subscriber:
    """One interface: what it listens to, and how it hears (on the manager's thread)."""

    def __init__(self, service_ids: frozenset[int], deliver: Deliver, pkey: PKey) -> None:
        self.service_ids = service_ids
        self.pkey = pkey
        self.deliver = deliver
        self.handles: set[Handle] = set()


class CmService(Worker):
    """Makes connections for the interfaces of one port; every method from any thread.

    Events come on a thread of its own, with no lock held that a request would wait for.
    """

    forms: ClassVar[tuple[ServiceForm, ...]]
    """How a peer can be asked, in the order of trying (C7)."""
    accepts: ClassVar[bool] = True
    """Whether peers can ask us, too."""

    def __init__(self) -> None:
        super().__init__("ipoibu-cm")
        self.serials: Iterator[int] = itertools.count()  # of the interfaces' own handles
        self._subscribers: list[Subscriber] = []
        self._owners: dict[Handle, Subscriber] = {}

    def subscribe(
        self, service_ids: frozenset[int], deliver: Deliver, pkey: PKey = DEFAULT_PKEY
    ) -> Subscriber:
        """Requests for these service IDs in the partition go to `deliver`, which must not block.

        `LinkError` where nobody can listen for them.
        """
        subscriber = Subscriber(service_ids, deliver, pkey)
        with self._lock:
            self._subscribers.append(subscriber)
            try:
                self._listen(self._services())
            except BaseException:
                self._subscribers.remove(subscriber)
                raise
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Its connections end, with a farewell each; it hears no more. Safe to repeat."""
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
                self._listen(self._services())
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

    # ---- of a kind of manager, both with the lock

    @abstractmethod
    def _listen(self, services: Mapping[int, PKey]) -> None:
        """Take requests for these from now on, and no others; `LinkError` and all is as it was."""

    @abstractmethod
    def _ask(self, request: Request) -> None: ...

    # ---- with the lock

    def _services(self) -> dict[int, PKey]:
        return {name: each.pkey for each in self._subscribers for name in each.service_ids}

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
