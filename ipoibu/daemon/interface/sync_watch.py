# SPDX-License-Identifier: BSD-2-Clause
"""Runs the route, group, ARP and proxy syncs of an interface on the daemon's event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from ipoibu.base.errors import IpoibuError
from ipoibu.endpoint.callbacks import OnFailure


class Sync(Protocol):
    """Copies a part of the kernel's state into an endpoint."""

    @property
    def list_s(self) -> float | None: ...
    def fileno(self) -> int: ...
    def read_notices(self) -> bool: ...
    def refresh(self) -> Any: ...
    def close(self) -> None: ...


class SyncWatch:
    """Refreshes after the kernel's notices, and every `sync.list_s` seconds if that is not None.

    It spends at most half of the time on that: listing a large table takes long. It calls `follow` with
    the result of each refresh. If a refresh fails it calls `on_failure` and ends.
    """

    def __init__(
        self,
        sync: Sync,
        loop: asyncio.AbstractEventLoop,
        on_failure: OnFailure,
        follow: Callable[[Any], None] = lambda result: None,
    ) -> None:
        self._sync = sync
        self._loop = loop
        self._on_failure = on_failure
        self._follow = follow
        self._timer: asyncio.TimerHandle | None = None
        self._resume: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Refresh now, and from now on; again when what the sync has to do has changed."""
        self._refresh()

    def watch(self) -> None:
        """Wait for notices; the caller has refreshed."""
        self._loop.add_reader(self._sync.fileno(), self._note_readable)

    def close(self) -> None:
        """End, and close `sync`."""
        self._pause()
        self._sync.close()

    def _pause(self) -> None:
        for handle in (self._timer, self._resume):
            if handle is not None:
                handle.cancel()
        self._loop.remove_reader(self._sync.fileno())

    def _note_readable(self) -> None:
        try:
            if not self._sync.read_notices():
                return
        except (IpoibuError, OSError) as error:
            self._fail(error)
            return
        self._refresh()

    def _refresh(self) -> None:
        began = time.monotonic()
        try:
            result = self._sync.refresh()
        except (IpoibuError, OSError) as error:
            self._fail(error)
            return
        took_s = time.monotonic() - began
        self._follow(result)
        self._pause()
        self._resume = self._loop.call_later(took_s, self.watch)
        if self._sync.list_s is not None:
            self._timer = self._loop.call_later(self._sync.list_s, self._refresh)

    def _fail(self, error: Exception) -> None:
        self._pause()
        self._on_failure(str(error))
