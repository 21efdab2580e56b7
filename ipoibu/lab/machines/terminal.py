# SPDX-License-Identifier: BSD-2-Clause
"""An interactive shell in a machine, on the caller's terminal."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from types import FrameType
from typing import Final

from ipoibu.base.errors import UsageError
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.agent import TERMINAL
from ipoibu.lab.machines.machine import Machine
from ipoibu.lab.machines.stream import write_all

READ_BYTES: Final = 4096


def check_terminal() -> None:
    """`UsageError` if stdin or stdout is no terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("--shell needs a terminal as its stdin and stdout")


def interact(machine: Machine) -> int:
    """Run a shell in `machine` until it ends, and return its exit status; call it from the main thread.

    The caller's terminal is raw meanwhile, so that Ctrl-C, Ctrl-Z and the like reach the shell's programs.
    """
    terminal = os.environ.get("TERM", "dumb")
    name = rf"PS1=\u@{machine.name}:\w\$ "
    argv = ["env", f"TERM={terminal}", name, "bash", "--norc", "-i"]
    output = sys.stdout.fileno()
    shell = machine.run_words(argv, TERMINAL, lambda data: write_all(output, data))
    woken, waker = socket.socketpair()

    def resize(*_: int | FrameType | None) -> None:
        columns, rows = os.get_terminal_size(output)
        shell.resize(rows, columns)

    def wait() -> None:
        with contextlib.suppress(Exception):  # the caller's own wait raises it
            machine.wait_for(shell, None)
        waker.close()

    waiter = threading.Thread(target=wait, name="lab-shell", daemon=True)
    before = signal.signal(signal.SIGWINCH, resize)
    try:
        with woken, _raw(sys.stdin.fileno()), selectors.DefaultSelector() as selector:
            waiter.start()
            resize()
            selector.register(sys.stdin, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while woken not in (ready := [key.fileobj for key, _ in selector.select()]):
                if ready and not (data := os.read(sys.stdin.fileno(), READ_BYTES)):
                    break  # the terminal is gone
                if ready:
                    shell.write(data)
    finally:
        signal.signal(signal.SIGWINCH, before)
        with contextlib.suppress(LabError):  # the wait below raises it
            shell.kill(signal.SIGHUP)
    status = machine.wait_for(shell, None)
    assert status is not None
    return status


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Make a terminal raw, and restore it."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
