# SPDX-License-Identifier: BSD-2-Clause
"""The path MTU of sockets on an endpoint, whose datagrams a router forwards to a link with a smaller MTU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace
from tests.netns.behind import FAR, FAR6, forward, inside, wired

pytestmark = pytest.mark.netns

PROGRAM: Final = Path(__file__).with_name("path_mtu_socket.py")
ECHO: Final = """
import socket
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
udp.bind(("::", 7000))
print("ready", flush=True)
while True:
    udp.sendto(*udp.recvfrom(65535))
"""
Sh = Callable[[Host, str], str]


@pytest.fixture
def far(sh: Sh, pods: tuple[LabNamespace, LabNamespace]) -> Iterator[tuple[Host, Host]]:
    """Return a host that forwards to a pod with an echo server, by a link whose MTU is 1400, and a host for
    an endpoint."""
    with NamespaceLab(start=False) as lab:
        router, ours = lab.hosts
        router.start()
        forward(sh, router)
        with wired(sh, router, pods[0]):
            sh(router, "ip link set v0 mtu 1400")
            inside(pods[0], "ip link set v1 mtu 1400")
            echo = pods[0].popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
            with echo:
                try:
                    assert echo.stdout is not None
                    assert echo.stdout.readline() == b"ready\n"
                    yield router, ours
                finally:
                    echo.kill()


@pytest.mark.parametrize("version", [4, 6])
def test_a_router_says_how_long_datagrams_may_be_for_ten_minutes(
    far: tuple[Host, Host], version: int
) -> None:
    """RFC 1191 §4, §6.3; RFC 8201 §4."""
    router, ours = far
    if version == 4:
        words = [str(ours.ipv4), str(router.ipv4.ip), "192.0.2.0/24", FAR]
    else:
        words = [str(ours.ipv6), str(router.ipv6.ip), "fd77:2::/64", FAR6]
    done = ours.run([sys.executable, str(PROGRAM), *words], timeout_s=240)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "first": "EMSGSIZE of a router",
        "then": "EMSGSIZE of send",
        "one more than fits": "EMSGSIZE of send",
        "fits": "back",
        "in fragments": "back",
        "after ten minutes": "EMSGSIZE of a router",
    }
