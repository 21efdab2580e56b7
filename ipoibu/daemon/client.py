# SPDX-License-Identifier: BSD-2-Clause
"""The client side of the control socket, for `show`, `stats`, `capture` and the like."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ipoibu.daemon.runtime import names, socket_path
from ipoibu.errors import IpoibuError, NoSuchDevice, NotPermitted

ANSWER_TIMEOUT_S: Final = 15.0


class DaemonEnded(IpoibuError):
    """The daemon ended before it had answered."""


class Client:
    """A blocking connection to the daemon of the interface `name`.

    `namespace` is a file that names the daemon's network namespace.
    """

    def __init__(self, name: str, namespace: str | Path = "/proc/self/ns/net") -> None:
        self.name = name
        path = socket_path(name, namespace)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._socket.settimeout(ANSWER_TIMEOUT_S)
        try:
            self._socket.connect(str(path))
        except PermissionError as error:
            self._socket.close()
            raise NotPermitted(
                f"{path} is not open to this user: run as the user who started {name}, or root"
            ) from error
        except OSError as error:
            self._socket.close()
            raise NoSuchDevice(
                f"no interface {name!r} of ipoibu in this network namespace;"
                " `ipoibu show` lists them, `ipoibu up` starts one"
            ) from error
        self._stream = self._socket.makefile("rb")

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def request(self, command: str, **arguments: object) -> Any:
        """Return the daemon's answer to one command; `IpoibuError` if the daemon refuses or does not
        answer."""
        self._send({"command": command, **arguments})
        answer = self._line()
        if not answer.get("ok"):
            raise IpoibuError(f"{self.name}: {answer.get('error', 'refused')}")
        return answer.get("result")

    def begin_capture(self, snaplen_bytes: int) -> None:
        """Begin a capture, whose frames `captured` yields; this connection takes no other request."""
        self.request("capture", snaplen=snaplen_bytes)

    def captured(self, stop: Callable[[], bool]) -> Iterator[tuple[int, bytes]]:
        """Yield (frames dropped so far, pcap records), until `stop` returns True.

        This calls `stop` after every message of the daemon, which comes at least every HEARTBEAT_S
        (`daemon.control`), and then still yields the records under way.
        """
        ending = False
        while True:
            if not ending and stop():
                ending = True
                self._socket.shutdown(socket.SHUT_WR)
                self._socket.settimeout(ANSWER_TIMEOUT_S)
            head = self._line()
            size = int(head["bytes"])
            payload = self._stream.read(size) if size else b""
            if len(payload) != size:
                raise IpoibuError(f"{self.name}: the daemon ended during the capture")
            yield int(head["dropped"]), payload
            if head.get("end"):
                return

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of `daemon.event_stream` until `DaemonEnded`; this connection takes no other
        request."""
        self.request("monitor")
        self._socket.settimeout(None)
        while True:
            yield self._line()

    def _send(self, request: dict[str, object]) -> None:
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise DaemonEnded(f"{self.name}: the daemon takes no request: {error}") from error

    def _line(self) -> dict[str, Any]:
        try:
            line = self._stream.readline()
        except TimeoutError as error:
            raise IpoibuError(
                f"{self.name}: no answer from the daemon within {ANSWER_TIMEOUT_S:g} s"
            ) from error
        except ConnectionResetError:  # the daemon ended before it read the request
            line = b""
        if not line.endswith(b"\n"):
            raise DaemonEnded(f"{self.name}: the daemon ended")
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise IpoibuError(f"{self.name}: the answer is not that of an ipoibu daemon") from error
        assert isinstance(answer, dict)
        return answer


def running() -> list[str]:
    """Return the names of the interfaces of this namespace whose daemon answers a connection."""
    alive = []
    for name in names():
        try:
            Client(name).close()
        except NoSuchDevice:
            continue
        alive.append(name)
    return alive
