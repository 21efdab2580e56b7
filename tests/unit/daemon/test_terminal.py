# SPDX-License-Identifier: BSD-2-Clause
"""The end of the controlling terminal, which SIGHUP says, among other things."""

from __future__ import annotations

import os
import pty
import signal

from ipoibu.daemon.process.terminal import Terminal


def test_a_terminal_ends_when_its_other_side_does() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        terminal = Terminal()
        os.write(1, b"up" if not terminal.has_ended else b"??")
        signal.sigwait([signal.SIGUSR1])
        os._exit(0 if terminal.has_ended else 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert os.read(master, 2) == b"up"
    os.close(master)
    os.kill(pid, signal.SIGUSR1)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_process_without_a_terminal_has_none_that_ends() -> None:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        terminal = Terminal()
        terminal_has_ended = terminal.has_ended
        terminal.close()
        os._exit(1 if terminal_has_ended else 0)
    assert os.waitpid(pid, 0)[1] == 0
