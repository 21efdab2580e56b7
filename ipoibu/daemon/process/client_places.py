# SPDX-License-Identifier: BSD-2-Clause
"""The places of a server's clients: the client that keeps the server waiting the longest makes room.

A client keeps the server waiting while it sends no request, or reads no more of its answer or stream. One
that waits for the server does not: its query runs, or its interface has no event that it could see.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

_Client = TypeVar("_Client", bound=Hashable)


class ClientPlaces(Generic[_Client]):
    """At most `most` clients; `dismiss` ends one that has to make room. Any thread may call the methods."""

    def __init__(self, most: int, dismiss: Callable[[_Client], object]) -> None:
        self._most = most
        self._dismiss = dismiss
        self._lock = threading.Lock()
        self._clients: set[_Client] = set()
        self._waited_for: dict[_Client, None] = {}  # the longest first

    def __len__(self) -> int:
        return len(self._clients)

    def enter(self, client: _Client) -> bool:
        """Give a client a place; False if there is none, and no client keeps us waiting."""
        with self._lock:
            if len(self._clients) >= self._most:
                longest = next(iter(self._waited_for), None)
                if longest is None:
                    return False
                self._remove(longest)
                self._dismiss(longest)
            self._clients.add(client)
            return True

    def leave(self, client: _Client) -> None:
        """Take the client's place away, if it has one."""
        with self._lock:
            self._remove(client)

    @contextlib.contextmanager
    def waiting(self, client: _Client) -> Iterator[None]:
        """The client keeps us waiting meanwhile."""
        self.begin_to_wait(client)
        try:
            yield
        finally:
            self.end_of_wait(client)

    def begin_to_wait(self, client: _Client) -> None:
        with self._lock:
            if client in self._clients:
                self._waited_for[client] = None

    def end_of_wait(self, client: _Client) -> None:
        with self._lock:
            self._waited_for.pop(client, None)

    def _remove(self, client: _Client) -> None:
        self._clients.discard(client)
        self._waited_for.pop(client, None)
