# SPDX-License-Identifier: BSD-2-Clause
"""The threads that open endpoints where devices and interface are in different network namespaces.

A thread belongs to a network namespace, and a socket stays in the one in which a thread opened it. So
these threads start first and stay outside, in the namespace of the devices, with all threads that the
endpoints start. Then the main thread, which opens the TUN and rtnetlink, enters the interface's namespace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

_THREADS: Final = 2


class OutsideThreads(ThreadPoolExecutor):
    """All threads run when the constructor returns."""

    threads: Final = _THREADS

    def __init__(self) -> None:
        super().__init__(_THREADS, "outside")
        self.on_each(lambda: None)

    def on_each(self, call: Callable[[], None]) -> None:
        """Call `call` on each thread."""
        together = threading.Barrier(_THREADS)

        def meet() -> None:
            together.wait()
            call()

        for done in [self.submit(meet) for _ in range(_THREADS)]:
            done.result()
