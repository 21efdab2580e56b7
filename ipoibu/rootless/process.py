# SPDX-License-Identifier: BSD-2-Clause
"""A forked process of `ipoibu run`, which the kernel ends when its parent ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Final

from ipoibu.base.processes import children_of
from ipoibu.sandbox.libc import PR_SET_PDEATHSIG, prctl

_LOOK_S: Final = 0.01


class Process:
    """A process that runs `body` and exits with its result; the caller has one thread."""

    def __init__(self, body: Callable[[], int]) -> None:
        self.status: int | None = None  # as from a shell, once it has ended
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                code = body()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        """Return the exit status once the process has ended: 128 + N after signal N."""
        if self.status is None:
            pid, raw = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(raw)
                self.status = code if code >= 0 else 128 - code
        return self.status

    def signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def end(self, patience_s: float) -> int:
        """Ask the process to end, kill it after `patience_s`, and return its status."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + patience_s
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
            time.sleep(_LOOK_S)
        return status


def end_with_parent(parent: int, number: int) -> None:
    """Have the kernel send this process `number` when its parent, the process `parent`, has ended.

    Call it after the last change of namespaces or capabilities: that would undo it.
    """
    prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def kill_orphans(spared: int) -> None:
    """Kill the processes that ended children of ours left to us, except `spared` (PR_SET_CHILD_SUBREAPER)."""
    while True:
        children = [pid for pid in children_of(os.getpid()) if pid != spared]
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
