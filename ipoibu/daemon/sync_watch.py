# SPDX-License-Identifier: BSD-2-Clause
"""Runs the group sync and the ARP sync of an interface on the daemon's event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from ipoibu.endpoint.callbacks import OnFailure
from ipoibu.errors import IpoibuError


class Sync(Protocol):
    """Copies a part of the kernel's state into an endpoint."""

    @property
    def list_s(self) -> float: ...
    def fileno(self) -> int: ...
    def changed(self) -> bool: ...
    def refresh(self) -> None: ...
    def close(self) -> None: ...


class SyncWatch:
    """Refreshes at the start, after the kernel's notices, and every `sync.list_s` seconds.

    It spends at most half of the time on that. If a refresh fails it calls `on_failure` and ends.
    """

    def __init__(self, sync: Sync, loop: asyncio.AbstractEventLoop, on_failure: OnFailure) -> None:
        self._sync = sync
        self._loop = loop
        self._on_failure = on_failure
        self._timer: asyncio.TimerHandle | None = None
        self._resume: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._refresh()

    def close(self) -> None:
        """End, and close `sync`."""
        self._pause()
        if self._timer is not None:
            self._timer.cancel()
        self._sync.close()

    def _pause(self) -> None:
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._sync.fileno())

    def _watch(self) -> None:
        self._loop.add_reader(self._sync.fileno(), self._notified)

    def _notified(self) -> None:
        if self._sync.changed():
            self._refresh()

    def _refresh(self) -> None:
        self._pause()
        if self._timer is not None:
            self._timer.cancel()
        began = time.monotonic()
        try:
            self._sync.refresh()
        except (IpoibuError, OSError) as error:
            self._on_failure(str(error))
            return
        took_s = time.monotonic() - began
        self._resume = self._loop.call_later(took_s, self._watch)
        self._timer = self._loop.call_later(self._sync.list_s, self._refresh)
