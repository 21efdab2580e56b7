# SPDX-License-Identifier: BSD-2-Clause
"""The process with the data path: its devices are outside, its interface is in the command's namespace.

The threads of `ipoibu.daemon.outside_threads` stay outside. The main thread enters the command's namespaces.
"""

from __future__ import annotations

import logging
import os
import signal
from functools import partial
from typing import Final

from ipoibu.base.errors import IpoibuError
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.daemon import Daemon
from ipoibu.daemon.outside_threads import OutsideThreads
from ipoibu.daemon.privilege import confine_daemon
from ipoibu.rootless import namespaces
from ipoibu.rootless.process import Process, end_with_parent

_MESSAGE_BYTES: Final = 65536
_UP: Final = b"up\n"  # the first message; after an error, its exit code and text instead

PATIENCE_S: Final = 5.0  # the time in which the interface leaves its groups and ends

_log = logging.getLogger(__name__)


class DataPathProcess(Process):
    """Runs the interface of `config` in the network namespace of the process `command`."""

    def __init__(self, config: InterfaceConfig, command: int) -> None:
        parent = os.getpid()
        read, write = os.pipe()
        self._messages = os.fdopen(read, "rb")
        super().__init__(lambda: _run(config, command, parent, write))
        os.close(write)

    def wait_until_up(self) -> None:
        """Return when the interface is up; raise its error if it does not come up."""
        line = self._messages.readline(_MESSAGE_BYTES)
        if line != _UP:
            raise self._failure(line)

    def failure(self) -> IpoibuError:
        """The error by which the data path ended after it was up."""
        while (line := self._messages.readline(_MESSAGE_BYTES)) == _UP:
            pass  # of a child
        return self._failure(line)

    def _failure(self, line: bytes) -> IpoibuError:
        status = self.end(PATIENCE_S)
        code, _, text = line.decode().rstrip("\n").partition(" ")
        error = IpoibuError(text or f"the data path ended with status {status}")
        error.exit_code = int(code or 1)
        return error


def _run(config: InterfaceConfig, command: int, parent: int, write: int) -> int:
    """The body of the process."""
    os.setpgid(0, 0)  # the terminal's signals go to the command only
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)  # a pipe from standard output must see its end when the command ends
    try:
        namespaces.join_user(command)
        end_with_parent(parent, signal.SIGTERM)
        with OutsideThreads() as outside:
            namespaces.join_network(command)
            namespaces.raise_loopback()
            Daemon(
                config,
                announce=lambda line: _announce(write, line),
                confine=partial(confine_daemon, outside=outside),
                executor=outside,
            ).run()
        return 0
    except Exception as error:
        code = error.exit_code if isinstance(error, IpoibuError) else 1
        os.write(write, f"{code} {' '.join(str(error).split())}\n".encode())
        return code


def _announce(write: int, line: str) -> None:
    _log.info("%s", line)
    os.write(write, _UP)
