# SPDX-License-Identifier: BSD-2-Clause
"""The process with the data path: its devices are outside, its interface is in the command's namespace.

A thread belongs to a network namespace, and a socket stays in the one in which a thread opened it. So the
two threads that open endpoints start first and stay outside, with all threads that the endpoints start.
Then the main thread, which opens the TUN and rtnetlink, enters the command's namespace.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ipoibu.daemon.config import InterfaceConfig
from ipoibu.daemon.privilege import needs_of
from ipoibu.daemon.run import Daemon
from ipoibu.daemon.runtime import make_namespace_dir
from ipoibu.errors import IpoibuError
from ipoibu.host.netlink import Netlink
from ipoibu.rootless import namespaces
from ipoibu.rootless.process import Process, end_with_parent
from ipoibu.sandbox.stages import Stage, confine

_THREADS: Final = 2
_MESSAGE_BYTES: Final = 65536
_UP: Final = b"up\n"  # the first message, unless an error is: its exit code and text

PATIENCE_S: Final = 5.0  # for the interface to end, which removes it from its groups

_log = logging.getLogger(__name__)


class DataPath(Process):
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
        return self._failure(self._messages.readline(_MESSAGE_BYTES))

    def _failure(self, line: bytes) -> IpoibuError:
        status = self.end(PATIENCE_S)
        code, _, text = line.decode().rstrip("\n").partition(" ")
        error = IpoibuError(text or f"the data path ended with status {status}")
        error.exit_code = int(code or 1)
        return error


def _run(config: InterfaceConfig, command: int, parent: int, write: int) -> int:
    """The body of the process."""
    os.setpgid(0, 0)  # signals of the terminal are for the command
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)  # the command's output ends with the command
    try:
        namespaces.join_user(command)
        end_with_parent(parent, signal.SIGTERM)
        with _outside() as outside:
            namespaces.join_network(command)
            _raise_loopback()
            Daemon(
                config,
                announce=lambda line: _announce(write, line),
                confine=lambda config: _confine(config, outside),
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


def _outside() -> ThreadPoolExecutor:
    """The threads that open endpoints; all of them run when this returns."""
    executor = ThreadPoolExecutor(_THREADS, "outside")
    _on_each(executor, lambda: None)
    return executor


def _on_each(executor: ThreadPoolExecutor, call: Callable[[], None]) -> None:
    """Call `call` on each thread of the executor."""
    together = threading.Barrier(_THREADS)

    def meet() -> None:
        together.wait()
        call()

    for done in [executor.submit(meet) for _ in range(_THREADS)]:
        done.result()


def _raise_loopback() -> None:
    with Netlink() as netlink:
        loopback = netlink.link("lo")
        assert loopback is not None, "every network namespace has one"
        netlink.set_link(loopback.index, up=True)


def _confine(config: InterfaceConfig, outside: ThreadPoolExecutor) -> None:
    """Carry out the stages on every thread: each binds a thread, and those that it starts."""
    if config.sandbox == Stage.OFF:
        return
    make_namespace_dir()
    needs = needs_of(config)
    _on_each(outside, lambda: confine(config.name, needs, config.sandbox, threads=1 + _THREADS))
    confine(config.name, needs, config.sandbox, threads=1 + _THREADS)
