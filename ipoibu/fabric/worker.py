# SPDX-License-Identifier: BSD-2-Clause
"""A thread that serves file descriptors in rounds; between rounds, other threads call its methods."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

_log = logging.getLogger(__name__)

_AFTER_DEFECT_S: Final = 0.1  # a round that failed may fail again: the thread takes no whole CPU


class Worker(ABC):
    """Runs `_serve` in rounds on a thread of its own. Any thread may call the public methods.

    The lock protects all state. A round holds the lock from beginning to end, so that calls of other
    threads run between two rounds.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._closing = False

    def counters(self) -> Counter[str]:
        with self._lock:
            return self._counts.copy()

    def close(self) -> None:
        """Disconnect all peers and end the thread. Safe to repeat."""
        with self._lock:
            if self._closing:
                return
            self._disconnect_all()
            self._closing = True
            os.eventfd_write(self._wake_fd, 1)
        self._thread.join()
        os.close(self._wake_fd)
        self._release()

    # ---- for subclasses; all but `_release` run with the lock held

    @abstractmethod
    def _filenos(self) -> Iterable[int]:
        """Return descriptors that are readable when `_serve` has something to do."""

    @abstractmethod
    def _serve(self) -> float | None:
        """Do a round of work; return the time to sleep in ms, or None to sleep until an event.

        A round handles a limited number of events, so that timers and other threads have their turn.
        """

    @abstractmethod
    def _disconnect_all(self) -> None:
        """Disconnect every peer."""

    @abstractmethod
    def _release(self) -> None:
        """Free the remaining objects; the thread has ended."""

    # ---- for the methods of subclasses

    def _start(self) -> None:
        """Start the thread. Constructors call this last, so that one that fails leaves nothing open."""
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _wake(self) -> None:
        """Begin a new round: there is something to do, or an earlier deadline. The caller holds the lock."""
        if not self._closing:
            os.eventfd_write(self._wake_fd, 1)

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Log and count an exception, so that a defect of ours does not stop the worker."""
        try:
            yield
        except Exception:
            self._counts["defect"] += 1
            _log.exception("%s was not handled", what)

    # ---- the thread

    def _run(self) -> None:
        poll = select.poll()
        for fd in (*self._filenos(), self._wake_fd):
            poll.register(fd, select.POLLIN)
        while True:
            wait_ms: float | None = 0.0
            pause_s = _AFTER_DEFECT_S
            with self._lock:
                if self._closing:
                    return
                with self._guarded("a round"):
                    wait_ms, pause_s = self._serve(), 0.0
            time.sleep(pause_s)
            poll.poll(wait_ms)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_fd)
