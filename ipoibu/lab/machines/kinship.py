# SPDX-License-Identifier: BSD-2-Clause
"""What a process asks of the kernel about its children. By ctypes, because this part of the lab has to run
where nobody has compiled ipoibu's C."""

from __future__ import annotations

import ctypes
import os
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
PTRACE_TRACEME: Final = 0  # linux/ptrace.h

_libc: Final = ctypes.CDLL(None, use_errno=True)


def set_subreaper(on: bool) -> None:
    """Make this process adopt the orphans among its descendants, or no longer."""
    unused = ctypes.c_ulong(0)
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on), unused, unused, unused))


def be_traced() -> None:
    """Let the parent trace this process, as a machine's kernel traces its own; OSError if it may not."""
    _check(_libc.ptrace(PTRACE_TRACEME, 0, None, None))


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
