# SPDX-License-Identifier: BSD-2-Clause
"""The end of a process that gets no more memory: in order, and with one line of the log.

After a `MemoryError` no state is certain to be whole, and the next allocation fails, too. So the process
ends as after SIGTERM, and a service manager starts it again. The end needs memory itself: a reserve, which
`Exhaustion` gives back at the first error.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

from ipoibu.base.limits import EXHAUSTION_AGAIN_S, EXHAUSTION_END_S, EXHAUSTION_RESERVE_BYTES


class Exhaustion:
    """Begins the end of the process at the first `MemoryError` that it hears of.

    An application that uses the library has none: it hears of the error itself, or the log does.
    """

    def __init__(self) -> None:
        self._reserve = b""
        self._end: Callable[[], None] | None = None

    def prepare(self, end: Callable[[], None], line: str) -> None:
        """Keep a reserve from now on. `end` begins the end of the process, on any thread, once; if that takes
        too long, because an answer got lost, the process writes `line` and ends. On the main thread only."""
        self._reserve = bytes(EXHAUSTION_RESERVE_BYTES)
        self._end = end
        raw = f"{line}\n".encode()
        signal.signal(signal.SIGALRM, lambda number, frame: _die(raw))

    def forget(self) -> None:
        """The process ends for another reason. After the first error there is nothing to forget: what fails
        until the end of the interpreter belongs to it."""
        if self._reserve:
            self._reserve, self._end = b"", None
            signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def is_one(self, error: object) -> bool:
        """Return whether `error` says that there is no more memory and ends the process; any thread may call
        this."""
        end = self._end
        if not isinstance(error, MemoryError) or end is None:
            return False
        is_first = bool(self._reserve)
        self._reserve = b""
        if is_first:
            # The handler may fail for want of memory, too.
            signal.setitimer(signal.ITIMER_REAL, EXHAUSTION_END_S, EXHAUSTION_AGAIN_S)
            end()
        return True


def _die(line: bytes) -> NoReturn:
    try:
        os.write(2, line)
    finally:
        os._exit(1)


EXHAUSTION = Exhaustion()
