# SPDX-License-Identifier: BSD-2-Clause
"""One host of a lab: a network namespace whose own daemon runs an interface."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import ipoibu
from ipoibu.base.addr import IpAddress, IpInterface
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.control.client import Client
from ipoibu.lab.errors import LabError
from ipoibu.lab.namespace import LabNamespace
from ipoibu.lab.subnet import LabSubnet
from ipoibu.lab.underlay import Underlay

NETDEV: Final = "eth0"
INTERFACE: Final = "ib0"
START_S: Final = 60.0  # a busy machine; an idle one takes a second
STOP_S: Final = 60.0


class Host:
    """Host `number`, counted from 1. The lab makes it; `start`, `stop` and `kill` act on its
    daemon.

    `options` are further arguments of `ipoibu up`. A host belongs to one thread: the daemon ends
    with that thread.
    """

    def __init__(
        self,
        number: int,
        namespace: LabNamespace,
        work: Path,
        device: str,
        options: Sequence[str],
        *,
        subnet: LabSubnet | None = None,
    ) -> None:
        self.number = number
        self.name = f"h{number}"
        self.namespace = namespace
        self.ipv4 = ipaddress.IPv4Interface(f"10.77.0.{number}/24")
        self.ipv6 = ipaddress.IPv6Interface(f"fd77::{number:x}/64")
        self.addresses: list[IpInterface] = [self.ipv4, self.ipv6]
        self.options = list(options)
        self.device = device
        self._subnet = subnet
        self.peer: str | None = None  # for `ipoibu up --peer`
        self.wrapper: Sequence[str] = ()  # a command that runs the daemon
        self.wire_ip: IpAddress | None = None  # of a routed underlay, that of the GID
        self._log = work / f"{self.name}.log"
        self._notify_path = work / f"{self.name}.notify"
        self._notices: socket.socket | None = None
        self._daemon: subprocess.Popen[bytes] | None = None

    def use(self, underlay: Underlay) -> None:
        """Use the addresses of the underlay, and meet the others by the first host."""
        self.device += underlay.device_suffix
        self.wire_ip = underlay.addresses(self.number)[0].ip
        self.peer = str(underlay.addresses(1)[0].ip)

    def check_options(self) -> None:
        """Raise `UsageError` if the daemon would refuse `options`, pairs of an option and its text."""
        pairs = zip(self.options[::2], self.options[1::2], strict=True)
        given: dict[str, Any] = {key.removeprefix("--"): text for key, text in pairs}
        peers = {} if self.peer is None else {"peer": [self.peer]}
        InterfaceConfig.build(INTERFACE, {"device": self.device, **given, **peers})

    # The daemon

    @property
    def pid(self) -> int | None:
        """Return the daemon's process number, or None when it does not run."""
        return self._daemon.pid if self._daemon is not None else None

    def start(self, *, wait: bool = True) -> None:
        """Start `ipoibu up`; raise `LabError` with its last line if it does not come up."""
        self._notify_path.unlink(missing_ok=True)
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._notices.bind(str(self._notify_path))
        self._notify_path.chmod(0o666)  # as systemd's, for a daemon of another user
        command = ["up", INTERFACE, "--device", self.device]
        for address in self.addresses:
            command += ["--address", str(address)]
        if self.peer is not None:
            command += ["--peer", self.peer]
        package = str(Path(ipoibu.__file__).parent.parent)
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {
            "NOTIFY_SOCKET": str(self._notify_path),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        start = [sys.executable, "-m", "ipoibu.cli"]
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(open(self._log, "wb"))
            options: dict[str, Any] = {}
            if self._subnet is not None:
                start = [sys.executable, "-m", "ipoibu.lab.ibsim_host", str(self.namespace.path)]
                environment = {**self._subnet.environment(self.number), **environment}
                command += ["--sandbox", "3"]  # ibsim's port consists of files that stage 4 closes
                ours = stack.enter_context(open("/proc/thread-self/ns/net", "rb"))
                options = {"cwd": self._subnet.directory, "fd": ours.fileno()}
            # In its own session the daemon gets no Ctrl-C: the lab gets it, and ends the daemon.
            self._daemon = self.namespace.popen(
                [*self.wrapper, *start, *command, *self.options],
                death_signal=signal.SIGTERM,
                environment=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **options,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Wait until the daemon has checked its addresses, of IPv6, too; raise `LabError` if it ends or is
        late."""
        daemon, notices = self._daemon, self._notices
        assert daemon is not None
        assert notices is not None
        deadline = time.monotonic() + timeout_s
        ending = os.pidfd_open(daemon.pid)
        try:
            while (left := deadline - time.monotonic()) > 0:
                readable, _, _ = select.select([notices.fileno(), ending], [], [], left)
                if notices.fileno() in readable:
                    if b"STATUS=up" in notices.recv(4096).splitlines():
                        return
                    continue  # READY=1 comes before
                if ending in readable:
                    raise LabError(f"{self.name}: ipoibu up ended: {self.last_line()}")
        finally:
            os.close(ending)
        raise LabError(f"{self.name}: not up within {timeout_s:g} s: {self.last_line()}")

    def stop(self) -> int:
        """End the daemon as an operator does, and return its exit code; 0 when it does not run."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the daemon as a crash does."""
        pid = self.pid
        self._end(signal.SIGKILL)
        if self._subnet is not None and pid is not None:
            self._subnet.ibsim.release(pid)

    def _end(self, number: int) -> int:
        daemon, self._daemon = self._daemon, None
        if self._notices is not None:
            self._notices.close()
            self._notices = None
        if daemon is None:
            return 0
        daemon.send_signal(number)
        try:
            return daemon.wait(STOP_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
            raise LabError(f"{self.name}: the daemon did not end within {STOP_S:g} s") from None

    def ended(self) -> str | None:
        """Return the last line of a daemon that ended by itself, or None."""
        if self._daemon is None or self._daemon.poll() is None:
            return None
        return self.last_line()

    def last_line(self) -> str:
        """Return the end of the daemon's log."""
        lines = self.log().strip().splitlines()
        return lines[-1].removeprefix("ipoibu: ") if lines else "the log is empty"

    def log(self) -> str:
        """Return everything that the daemon wrote since its last start."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # Inside the host

    def ask(self, command: str, **arguments: object) -> Any:
        """Return the daemon's answer to `show`, `neigh`, `mcast` or `stats` on its control socket."""
        with Client(INTERFACE, self.namespace.path) as client:
            return client.request(command, **arguments)

    def run(
        self, command: Sequence[str], *, timeout_s: float = 60.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end and return its output as text."""
        return self.namespace.run(command, timeout_s=timeout_s, **options)

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Open a socket in this host."""
        return self.namespace.socket(family, kind, protocol)

    def interface_index(self, name: str = INTERFACE) -> int:
        return self.namespace.inside(lambda: socket.if_nametoindex(name))
