# SPDX-License-Identifier: BSD-2-Clause
"""The communication manager of a port, with one thread for all interfaces on it.

`CmService` dispatches requests and events between interfaces and connections. `GsiCm` makes the
connections by datagrams of its own, `RdmaCm` by the kernel's manager. `proto.rc.events` defines the
requests and events.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

from ipoibu.base.addr import DEFAULT_PKEY, PKey
from ipoibu.fabric.worker import Worker
from ipoibu.proto.rc.events import (
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
    """One interface: its service IDs, and the function that takes its events on the manager's thread."""

    def __init__(self, service_ids: frozenset[int], deliver: Deliver, pkey: PKey) -> None:
        self.service_ids = service_ids
        self.pkey = pkey
        self.deliver = deliver
        self.handles: set[Handle] = set()


class CmService(Worker):
    """Makes connections for the interfaces of one port. Any thread may call the methods.

    The manager's thread delivers events. An interface may make requests while it takes an event.
    """

    forms: ClassVar[tuple[ServiceForm, ...]]
    """The forms of service ID by which we connect to a peer, in the order in which we try them (C7)."""
    accepts: ClassVar[bool] = True
    """True if peers can connect to us, too."""

    def __init__(self) -> None:
        super().__init__("ipoibu-cm")
        self.serials: Iterator[int] = itertools.count()  # of the interfaces' own handles
        self._subscribers: list[Subscriber] = []
        self._owners: dict[Handle, Subscriber] = {}

    def subscribe(
        self, service_ids: frozenset[int], deliver: Deliver, pkey: PKey = DEFAULT_PKEY
    ) -> Subscriber:
        """Pass peers' requests for these service IDs in the partition to `deliver`, which must not block.

        `LinkError`: the manager cannot listen for them.
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
        """Disconnect all connections of the subscriber and deliver no more events. Safe to repeat."""
        with self._lock:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)
                self._listen(self._services())
            for handle in list(subscriber.handles):
                self.request(subscriber, Disconnect(handle))

    def request(self, subscriber: Subscriber, request: Request) -> None:
        """Carry out a request of the interface's policy; the results are events."""
        with self._lock:
            if self._closing:
                return
            if isinstance(request, Connect):
                self._own(request.handle, subscriber)
            self._ask(request)
            if isinstance(request, Reject | Disconnect):
                self._disown(request.handle)
            self._wake()

    # ---- for subclasses, with the lock held

    @abstractmethod
    def _listen(self, services: Mapping[int, PKey]) -> None:
        """Accept requests for these services from now on, and no others. `LinkError`: nothing changed."""

    @abstractmethod
    def _ask(self, request: Request) -> None: ...

    # ---- with the lock held

    def _services(self) -> dict[int, PKey]:
        return {name: each.pkey for each in self._subscribers for name in each.service_ids}

    def _own(self, handle: Handle, subscriber: Subscriber) -> None:
        self._owners[handle] = subscriber
        subscriber.handles.add(handle)

    def _disown(self, handle: Handle) -> None:
        owner = self._owners.pop(handle, None)
        if owner is not None:
            owner.handles.discard(handle)

    def _notify(self, event: Event) -> None:
        if isinstance(event, Requested):
            for subscriber in self._subscribers:
                if event.service_id in subscriber.service_ids:
                    self._own(event.handle, subscriber)
                    break
        owner = self._owners.get(event.handle)
        if owner is None:
            return  # the interface has closed meanwhile
        if isinstance(event, Ended):
            self._disown(event.handle)
        owner.deliver(event)
