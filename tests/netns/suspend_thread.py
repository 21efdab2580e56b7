# SPDX-License-Identifier: BSD-2-Clause
"""Suspends one thread of a process until the process ends: suspend_thread.py PID NAME (ptrace(2))."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

PTRACE_SEIZE: Final = 0x4206
PTRACE_INTERRUPT: Final = 0x4207
WALL: Final = 0x40000000  # __WALL: threads, too

_libc: Final = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, tid: int) -> None:
    if _libc.ptrace(ctypes.c_long(request), ctypes.c_long(tid), None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def suspend(pid: str, name: str) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            tid = int(task.name)
            break
    else:
        sys.exit(f"no thread {name}")
    _ptrace(PTRACE_SEIZE, tid)
    _ptrace(PTRACE_INTERRUPT, tid)
    while True:  # the thread stops, and stays so; without its tracer's wait it could not end
        _, status = os.waitpid(tid, WALL)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return


suspend(sys.argv[1], sys.argv[2])
