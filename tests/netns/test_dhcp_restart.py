# SPDX-License-Identifier: BSD-2-Clause
"""Leases of an interface whose service restarts: a manager with a store of descriptors keeps the TUN."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipoibu.base.errors import IpoibuError
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.conftest import Until
from tests.netns.test_dhcp6 import READY, server
from tests.netns.test_dhcp_clients import running

pytestmark = pytest.mark.netns

# Puts the descriptors of the first argument at 3 and up, as a service manager does.
_PASS = """
import fcntl, os, sys
fds = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 200) for fd in sys.argv[1].split(",") if fd]
for place, fd in enumerate(fds, 3):
    os.dup2(fd, place)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "ipoibu.cli", *sys.argv[2:]])
"""


class Manager:
    """Runs `ipoibu up ib0` in a host, with a store that outlives each process."""

    def __init__(self, host: Host, work: Path, options: list[str]) -> None:
        self._host = host
        self._work = work
        self._options = options
        self._path = str(work / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._path)
        self._socket.settimeout(0.1)
        self._ends = False
        self._stored: dict[str, int] = {}
        self._thread = threading.Thread(target=self._carry_out)
        self._thread.start()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self._work / "service.log").read_text()

    def start(self) -> None:
        names, fds = list(self._stored), list(self._stored.values())
        with (self._work / "service.log").open("ab") as log:
            self._process = self._host.namespace.popen(
                [
                    *(sys.executable, "-c", _PASS, ",".join(map(str, fds)), "up", "ib0"),
                    *("--device", "soft:eth0", *self._options),
                ],
                environment={
                    **os.environ,
                    "NOTIFY_SOCKET": self._path,
                    "FDSTORE": "100",
                    "LISTEN_FDS": str(len(fds)),
                    "LISTEN_FDNAMES": ":".join(names),
                },
                stdout=log,
                stderr=log,
                pass_fds=fds,
            )

    def stop(self) -> None:
        """End the process, and keep what it has stored."""
        assert self._process is not None
        self._process.terminate()
        assert self._process.wait(60) == 0, self.log

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()
        self._ends = True
        self._thread.join()
        self._socket.close()
        for fd in self._stored.values():
            os.close(fd)

    def _carry_out(self) -> None:
        while not self._ends:
            try:
                text, fds, _, _ = socket.recv_fds(self._socket, 4096, 4)
            except TimeoutError:
                continue
            lines = dict(line.partition("=")[::2] for line in text.decode().splitlines())
            name = lines.get("FDNAME", "")
            if "FDSTORE" in lines and name not in self._stored:
                self._stored[name] = fds.pop()
            elif "FDSTOREREMOVE" in lines and name in self._stored:
                os.close(self._stored.pop(name))
            for fd in fds:
                os.close(fd)


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with NamespaceLab(2, start=False) as lab:
        first, client = lab.hosts
        first.start()
        yield first, client


def state(client: Host) -> str:
    try:
        return str(client.ask("show")["dhcp6"]["state"])
    except IpoibuError:
        return "down"


def addresses(client: Host) -> str:
    return client.run(["ip", "-6", "address", "show", "dev", "ib0"]).stdout


def test_a_restart_keeps_the_address_that_still_fits_and_removes_another(
    hosts: tuple[Host, Host], tmp_path: Path, until: Until
) -> None:
    first, client = hosts
    options = ["--address", "dhcp6", "--lease-dir", str(tmp_path / "leases")]
    manager = Manager(client, tmp_path, options)
    try:
        with running(first, tmp_path, server()) as served:
            until(lambda: READY in served.log)
            manager.start()
            until(lambda: state(client) == "bound")
            address = client.ask("show")["dhcp6"]["address"]
            requests = served.log.count("DHCPREQUEST")
            manager.stop()
            assert address in addresses(client)
            manager.start()
            until(lambda: state(client) == "checking" or state(client) == "bound")
            until(lambda: state(client) == "bound")
            assert address in addresses(client)
            assert "DHCPCONFIRM" in served.log
            assert served.log.count("DHCPREQUEST") == requests
            manager.stop()
        first.run(["ip", "address", "add", "fd88::1/64", "dev", "ib0"])
        first.run(["ip", "address", "del", "fd77::1/64", "dev", "ib0"])
        with running(first, tmp_path, server(pool="fd88::100,fd88::200")) as served:
            until(lambda: READY in served.log)
            assert address in addresses(client)
            manager.start()
            until(lambda: "fd88::" in addresses(client))
            assert address not in addresses(client)
    finally:
        manager.close()
