# SPDX-License-Identifier: BSD-2-Clause
"""A second InfiniBand port for a host of ibsim, which gives a process one port only.

`python relay.py serve PATH` is a host of ibsim, too, and hands its port on at the socket PATH.
`python relay.py host PATH PYTHON -m ipoibu.lab.ibsim_host ARGUMENT ...` runs `ibsim_host`, for which that
port is the device `ibsim1`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import sys
from dataclasses import replace
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Final

from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.sa.mad_port import MadIn, MadPortInfo, MadTo
from ipoibu.fabric.sa.umad import UmadPort
from ipoibu.lab import ibsim_host
from ipoibu.lab.ibsim import DEVICE

SECOND_DEVICE: Final = "ibsim1"
POLL_S: Final = 0.005  # the port's descriptor is libumad2sim's own: no other program waits for it


def serve(path: str) -> None:
    """Hand the port on to one program, until that ends. The first connection is for questions, the second
    for datagrams that arrive."""
    port = UmadPort(DEVICE)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(Listener(path, "AF_UNIX"))
        asked, out = (stack.enter_context(listener.accept()) for _ in range(2))
        selector = stack.enter_context(selectors.EpollSelector())  # libumad2sim has its own poll(2)
        selector.register(asked, selectors.EVENT_READ)
        while True:
            if selector.select(POLL_S):
                try:
                    name, arguments = asked.recv()
                except EOFError:
                    return
                asked.send(_answer(port, name, arguments))
            while (datagram := port.receive()) is not None:
                out.send(datagram)


def _answer(port: UmadPort, name: str, arguments: tuple[Any, ...]) -> Any:
    if name == "hears_unasked":
        return port.hears_unasked
    try:
        return getattr(port, name)(*arguments)
    except OSError as error:
        return error


class RelayedPort:
    """The port of another process, as a `MadPort`."""

    def __init__(self, questions: Connection[Any, Any], datagrams: Connection[Any, Any]) -> None:
        self._questions, self._datagrams = questions, datagrams
        self.hears_unasked: bool = self._ask("hears_unasked")

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._questions.send((name, arguments))
        answer = self._questions.recv()
        if isinstance(answer, OSError):
            raise answer
        return answer

    def look(self) -> MadPortInfo:
        info: MadPortInfo = self._ask("look")
        return replace(info, device=SECOND_DEVICE)

    def fileno(self) -> int:
        return self._datagrams.fileno()

    def send(self, raw: bytes, to: MadTo, wait_s: float) -> None:
        self._ask("send", raw, to, wait_s)

    def receive(self) -> MadIn | None:
        datagram: MadIn | None = self._datagrams.recv() if self._datagrams.poll() else None
        return datagram

    def close(self) -> None:
        """The connections last as long as the process."""


def host(path: str, *command: str) -> int:
    port = RelayedPort(Client(path, "AF_UNIX"), Client(path, "AF_UNIX"))
    usual = SaClient.open

    def open_client(device: str, number: int = 1) -> SaClient:
        return SaClient(port) if device == SECOND_DEVICE else usual(device, number)

    SaClient.open = open_client  # type: ignore[method-assign,assignment]
    at = command.index("ipoibu.lab.ibsim_host")
    return ibsim_host.run(*command[at + 1 :])


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    if mode == "serve":
        serve(*rest)
        os._exit(0)  # libumad2sim's own end waits for ibsim
    sys.exit(host(*rest))
