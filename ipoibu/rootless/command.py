# SPDX-License-Identifier: BSD-2-Clause
"""The user's command: it waits in the new namespaces until the interface is up."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

from ipoibu.base.errors import IpoibuError, NotPermitted
from ipoibu.rootless import namespaces
from ipoibu.rootless.process import Process, end_with_parent

# The exit codes of a shell and of env(1)
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127

_READY: Final = b"+"
_GO: Final = b"g"


class Command(Process):
    """A process in namespaces of its own, which executes `words` after `go`.

    Raises `NotPermitted` if this machine forbids the namespaces.
    """

    def __init__(self, words: Sequence[str]) -> None:
        parent = os.getpid()
        ours, theirs = socket.socketpair()
        with theirs:
            self._socket = ours
            super().__init__(lambda: _wait_and_execute(parent, theirs, words))
        answer = ours.recv(4096)
        if answer != _READY:
            self.poll()
            raise NotPermitted(answer.decode() or "the namespaces of the command failed")

    def go(self) -> None:
        with contextlib.suppress(OSError):  # the process has ended: `poll` has its status
            self._socket.send(_GO)
        self._socket.close()


def _wait_and_execute(parent: int, channel: socket.socket, words: Sequence[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        namespaces.create()
    except IpoibuError as error:
        channel.send(str(error).encode())
        return error.exit_code
    namespaces.keep_network_capabilities()
    end_with_parent(parent, signal.SIGKILL)
    channel.send(_READY)
    if channel.recv(1) == _GO:
        execute(words)
    return 1  # the interface did not come up


def execute(words: Sequence[str]) -> NoReturn:
    """Become the command; if that fails, exit as a shell does."""
    try:
        os.execvp(words[0], list(words))
    except OSError as error:
        print(f"ipoibu: {words[0]}: {os.strerror(error.errno or 0)}", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
