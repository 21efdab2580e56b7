# SPDX-License-Identifier: BSD-2-Clause
"""The controlling terminal: SIGHUP is its end, or the wish of an administrator."""

from __future__ import annotations

import os
from typing import Final

_PATH: Final = "/dev/tty"


class Terminal:
    """The terminal that the process has, if any. Make it before the sandbox, which closes /dev/tty."""

    def __init__(self) -> None:
        self._fd: int | None
        try:
            self._fd = os.open(_PATH, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # a service, or a program that left its terminal
            self._fd = None

    @property
    def has_ended(self) -> bool:
        """Return whether there was a terminal, and is none any more."""
        return self._fd is not None and not os.isatty(self._fd)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
