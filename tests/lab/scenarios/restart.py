# SPDX-License-Identifier: BSD-2-Clause
"""A restart of `ipoibu up` under a service manager that has a store, over any device; the test is the
manager."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

IPOIBU: Final = [sys.executable, "-m", "ipoibu.cli"]
PORT: Final = 7000
NOTICES: Final = "/tmp/notices"
WAIT_S: Final = 60.0
_FIRST_FD: Final = 3  # SD_LISTEN_FDS_START


class Manager:
    """Starts a service, keeps its descriptors, and passes them to the next process."""

    def __init__(self) -> None:
        self.store: dict[str, int] = {}
        self.is_ready = threading.Event()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(NOTICES)
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start the service, and return when it is up."""
        self.is_ready.clear()
        names, fds = list(self.store), list(self.store.values())
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": NOTICES,
            "FDSTORE": "100",
            "LISTEN_FDS": str(len(fds)),
            "LISTEN_FDNAMES": ":".join(names),
        }
        words = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *command]
        process = subprocess.Popen(
            words,
            env=environment,
            close_fds=False,
            preexec_fn=_passing(fds),  # noqa: PLW1509 -- it makes system calls alone
        )
        assert self.is_ready.wait(WAIT_S), "the service is not up"
        return process

    def _listen(self) -> None:
        while True:
            text, fds, _, _ = socket.recv_fds(self._socket, 1000, 4)
            notice = dict(line.split("=", 1) for line in text.decode().splitlines())
            if "FDSTORE" in notice:
                (self.store[notice["FDNAME"]],) = (_high(fd) for fd in fds)
            elif "FDSTOREREMOVE" in notice:
                os.close(self.store.pop(notice["FDNAME"]))
            elif "BARRIER" in notice:
                os.close(*fds)
            elif "READY" in notice:
                self.is_ready.set()


def _high(fd: int) -> int:
    """Move the descriptor out of the way of those that a service gets."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 500)
    os.close(fd)
    return moved


def _passing(fds: list[int]) -> Callable[[], None]:
    def pass_them() -> None:
        for number, fd in enumerate(fds, _FIRST_FD):
            os.dup2(fd, number)

    return pass_them


def restart(device: str, *options: str) -> None:
    """Print what the interface was before and after, and what the stream over it carried: one JSON object.

    The other host, 10.9.0.2, sends back what it gets on `PORT`."""
    command = [*IPOIBU, "up", "ib0", "--device", device, "--address", "10.9.0.1/24", *options]
    manager = Manager()
    first = manager.start(command)
    subprocess.run(["ip", "address", "add", "10.7.0.1/24", "dev", "ib0"], check=True)
    meet("up")
    seen: dict[str, Any] = {"stored": sorted(manager.store), "before": _shown()}
    with socket.create_connection(("10.9.0.2", PORT), timeout=WAIT_S) as stream:
        seen["echoes"] = [_echo(stream, b"before the restart")]
        first.terminate()
        assert first.wait(WAIT_S) == 0
        stream.sendall(b"between")  # waits in the TUN
        second = manager.start(command)
        seen["echoes"] += [_receive(stream, len(b"between")), _echo(stream, bytes(20_000))[:5]]
    seen["after"] = _shown()
    second.terminate()
    assert second.wait(WAIT_S) == 0
    print(json.dumps(seen))
    meet("done")


def meet(key: str) -> None:
    subprocess.run(["bash", "-c", f'. "$LAB_INSIDE/meeting.sh"; meet {key} 100'], check=True)


def _echo(stream: socket.socket, data: bytes) -> str:
    stream.sendall(data)
    return _receive(stream, len(data))


def _receive(stream: socket.socket, size: int) -> str:
    data = b""
    while len(data) < size:
        data += stream.recv(size - len(data))
    return data.decode()


def _shown() -> dict[str, Any]:
    asked = subprocess.run([*IPOIBU, "show", "ib0", "-j"], check=True, stdout=subprocess.PIPE)
    link = subprocess.run(
        ["ip", "-j", "address", "show", "dev", "ib0"], check=True, stdout=subprocess.PIPE
    )
    (kernel,) = json.loads(link.stdout)
    addresses = [each["local"] for each in kernel["addr_info"] if each["family"] == "inet"]
    hwaddr = json.loads(asked.stdout)[0]["hwaddr"]
    return {"index": kernel["ifindex"], "addresses": sorted(addresses), "hwaddr": hwaddr}
