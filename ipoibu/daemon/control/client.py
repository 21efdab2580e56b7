# SPDX-License-Identifier: BSD-2-Clause
"""The client side of the control socket, for `show`, `stats`, `capture` and the like."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from ipoibu.base.closing import Closing
from ipoibu.base.errors import IpoibuError, NoSuchDevice, NotPermitted
from ipoibu.base.limits import CONTROL_SILENCE_S
from ipoibu.daemon.control.socket_paths import names, socket_path

_LEAST_S: Final = 1.0  # for an answer that has had its time while we read those of other daemons


class DaemonEnded(IpoibuError):
    """The daemon ended before it had answered."""


class NotAnswering(IpoibuError):
    """The daemon lives and does not answer: it is stopped, or hangs."""


class Client(Closing):
    """A blocking connection to the daemon of the interface `name`.

    `namespace` is a file that names the daemon's network namespace.
    """

    def __init__(self, name: str, namespace: str | Path = "/proc/self/ns/net") -> None:
        self.name = name
        path = socket_path(name, namespace)
        self._deadline = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            _connect(self._socket, path)
        except PermissionError as error:
            self._socket.close()
            raise NotPermitted(
                f"{path} is not open to this user: run as the user who started {name}, or root"
            ) from error
        except BlockingIOError as error:
            self._socket.close()
            raise NotAnswering(f"{name} does not answer: its daemon takes no connection") from error
        except OSError as error:
            self._socket.close()
            raise NoSuchDevice(
                f"no interface {name!r} of ipoibu in this network namespace;"
                " `ipoibu show` lists them, `ipoibu up` starts one"
            ) from error
        owner = self._credentials()[1]
        if os.geteuid() != 0 and owner not in (0, os.geteuid()):  # root trusts its directory
            self._socket.close()
            raise NotPermitted(f"{path} is a socket of another user ({owner}), no daemon of yours")
        self._socket.settimeout(CONTROL_SILENCE_S)
        self._stream = self._socket.makefile("rb")

    @property
    def pid(self) -> int:
        """The daemon's process."""
        return self._credentials()[0]

    def _credentials(self) -> tuple[int, int]:
        """The process and user that listen on the socket."""
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _ = struct.unpack("=iII", raw)
        return pid, uid

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def request(self, command: str, **arguments: object) -> Any:
        """Return the daemon's answer to one command; `IpoibuError` if the daemon refuses or does not
        answer. A daemon that works on the command takes the time that it needs."""
        self.begin(command, **arguments)
        return self.answer()

    def begin(self, command: str, **arguments: object) -> None:
        """Send a command, whose answer `answer` reads; so several daemons work at a time."""
        self._send({"command": command, **arguments})
        self._deadline = time.monotonic() + CONTROL_SILENCE_S

    def answer(self) -> Any:
        self._socket.settimeout(max(_LEAST_S, self._deadline - time.monotonic()))
        while (answer := self._line()).get("working"):
            self._socket.settimeout(CONTROL_SILENCE_S)
        self._socket.settimeout(CONTROL_SILENCE_S)
        if not answer.get("ok"):
            raise IpoibuError(f"{self.name}: {answer.get('error', 'refused')}")
        return answer.get("result")

    def begin_capture(self, snaplen_bytes: int) -> None:
        """Begin a capture, whose frames `captured` yields; this connection takes no other request."""
        self.request("capture", snaplen=snaplen_bytes)

    def captured(self, stop: Callable[[], bool]) -> Iterator[tuple[int, bytes]]:
        """Yield (frames dropped so far, pcap records), until `stop` returns True.

        This calls `stop` after every message of the daemon, which comes at least every HEARTBEAT_S
        (`daemon.control.server`), and then still yields the records under way.
        """
        ending = False
        while True:
            if not ending and stop():
                ending = True
                self._socket.shutdown(socket.SHUT_WR)
            head = self._line()
            size = int(head["bytes"])
            payload = self._stream.read(size) if size else b""
            if len(payload) != size:
                raise IpoibuError(f"{self.name}: the daemon ended during the capture")
            yield int(head["dropped"]), payload
            if head.get("end"):
                return

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of `daemon.control.event_streams` until `DaemonEnded`; this connection takes no
        other request."""
        self.request("monitor")
        while True:
            event = self._line()
            if "working" not in event:
                yield event

    def _send(self, request: dict[str, object]) -> None:
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except TimeoutError as error:
            raise self._silence() from error
        except OSError as error:
            raise DaemonEnded(f"{self.name}: the daemon takes no request: {error}") from error

    def _line(self) -> dict[str, Any]:
        try:
            line = self._stream.readline()
        except TimeoutError as error:
            raise self._silence() from error
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

    def _silence(self) -> NotAnswering:
        """Describe the daemon, which the kernel knows, in words."""
        why = ": the process is stopped" if _is_stopped(self.pid) else ""
        return NotAnswering(f"{self.name} ({self.pid}) does not answer{why}")


def _connect(sock: socket.socket, path: Path) -> None:
    """Connect; `BlockingIOError` where the queue of clients stays full."""
    timeout = struct.pack("@ll", *divmod(int(CONTROL_SILENCE_S * 1e6), 1_000_000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
    sock.connect(str(path))


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")


def running() -> list[str]:
    """Return the names of the interfaces of this namespace whose daemon lives."""
    alive = []
    for name in names():
        try:
            Client(name).close()
        except NoSuchDevice:
            continue
        except NotAnswering:  # it lives
            pass
        alive.append(name)
    return alive
