# SPDX-License-Identifier: BSD-2-Clause
"""Peers that a name stands for, in a name service that changes (docs/use/unicast.md)."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.base.errors import IpoibuError
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

NAME: Final = "peers.test"
QUERY_A: Final = 1
NO_SUCH_NAME: Final = 3
# The daemon's own /etc/resolv.conf, in a mount namespace of its own.
WITH_RESOLVER: Final = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]


class NameServer:
    """Answers questions for the addresses of one name, at 192.0.2.1:53 in a host."""

    def __init__(self, host: Host) -> None:
        self.addresses: list[IPv4Address] = []
        self._sock = host.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind(("192.0.2.1", 53))
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._sock.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                query, client = self._sock.recvfrom(512)
                if not query:
                    return
                self._sock.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        """RFC 1035 §4: the question, and an answer for each address."""
        end = query.index(b"\0", 12) + 5
        (kind,) = struct.unpack_from("!H", query, end - 4)
        found = [it.packed for it in self.addresses] if kind == QUERY_A else []
        flags = 0x8580 | (0 if self.addresses else NO_SUCH_NAME)
        head = query[:2] + struct.pack("!HHHHH", flags, 1, len(found), 0, 0)
        answer = struct.pack("!HHHIH", 0xC00C, kind, 1, 0, 4)
        return head + query[12:end] + b"".join(answer + it for it in found)


def _peers(host: Host) -> set[str]:
    with contextlib.suppress(IpoibuError, OSError):  # the daemon is not up yet
        return {row["underlay"] for row in host.ask("peers") if row["state"] == "live"}
    return set()


@pytest.fixture
def four(sh: Sh) -> Iterator[NamespaceLab]:
    with NamespaceLab(4, start=False) as lab:
        for host in lab.hosts:
            sh(host, f"ip address add 192.0.2.{host.number}/24 dev eth0")
            host.options += ["--peer", f"192.0.2.{host.number}"]  # each knows only itself
        yield lab


def test_a_name_that_gets_and_changes_its_addresses(
    four: NamespaceLab, until: Until, tmp_path: Path
) -> None:
    named, second, third, fourth = four.hosts
    for host in (second, third, fourth):
        host.start()
    server = NameServer(named)
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver 192.0.2.1\noptions timeout:5 attempts:5\n")
    up = [sys.executable, "-m", "ipoibu.cli", "up", "ib0", "--device", "soft:eth0", "--peer", NAME]
    command = ["unshare", "-m", "sh", "-c", WITH_RESOLVER, str(resolver), *up]
    daemon = named.namespace.popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: named.ask("stats") is not None if _is_up(named) else False)
        assert _peers(named) == set()
        server.addresses = [IPv4Address("192.0.2.2"), IPv4Address("192.0.2.3")]
        until(lambda: _peers(named) == {"192.0.2.2", "192.0.2.3"})
        server.addresses = [IPv4Address("192.0.2.4")]
        third.kill()  # a peer that goes has the name looked up again soon
        until(lambda: _peers(named) == {"192.0.2.2", "192.0.2.4"})
        until(lambda: _peers(fourth) == {"192.0.2.1", "192.0.2.2"})
    finally:
        daemon.terminate()
        daemon.wait()
        server.close()


def _is_up(host: Host) -> bool:
    with contextlib.suppress(IpoibuError, OSError):
        return bool(host.ask("show")["state"] == "up")
    return False
