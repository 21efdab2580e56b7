# SPDX-License-Identifier: BSD-2-Clause
"""A thread that serves descriptors in rounds, and what other threads ask of it in between."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator

_log = logging.getLogger(__name__)


class Worker(ABC):
    """Rounds of `_serve`, on a thread of its own; every public method from any thread.

    All state is the lock's, which a round holds from beginning to end: other threads' requests have
    their turn between two rounds.
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
        """Farewell to everybody, and no thread any more. Safe to repeat."""
        with self._lock:
            if self._closing:
                return
            self._say_farewell()
            self._closing = True
            os.eventfd_write(self._wake_fd, 1)
        self._thread.join()
        os.close(self._wake_fd)
        self._release()

    # ---- of a kind of worker, all with the lock but `_release`

    @abstractmethod
    def _filenos(self) -> Iterable[int]:
        """Readable when `_serve` has something to do."""

    @abstractmethod
    def _serve(self) -> float | None:
        """A round of what is there; how long to sleep then, in ms, None for as long as it takes.

        A round ends, however fast things come: timers and other threads' requests have a turn.
        """

    @abstractmethod
    def _say_farewell(self) -> None:
        """To every peer."""

    @abstractmethod
    def _release(self) -> None:
        """There is no thread any more."""

    # ---- for its methods

    def _start(self) -> None:
        """At the end of the constructor: what failed before leaves no thread and no descriptor."""
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _wake(self) -> None:
        """With the lock: there is something to do, or an earlier deadline."""
        if not self._closing:
            os.eventfd_write(self._wake_fd, 1)

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """A defect of ours costs one message; the worker must not stop with it."""
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
            with self._lock:
                if self._closing:
                    return
                wait_ms = self._serve()
            poll.poll(wait_ms)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake_fd)
