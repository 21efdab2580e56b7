# SPDX-License-Identifier: BSD-2-Clause
"""Signals that end a command as Ctrl-C does."""

from __future__ import annotations

import signal
from typing import Any, Self


class Interrupts:
    """SIGTERM and SIGHUP unwind as Ctrl-C does, so that nothing stays behind.

    Python drops an exception that a signal handler raises inside a finalizer or a fork hook. `check` raises
    a dropped exception again.
    """

    def __init__(self) -> None:
        self._interrupted = False

    def _interrupt(self, number: int, frame: Any) -> None:
        self._interrupted = True
        raise KeyboardInterrupt

    def check(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {
            number: signal.signal(number, self._interrupt)
            for number in numbers
            if signal.getsignal(number) is not signal.SIG_IGN  # in the background of a script
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
