# SPDX-License-Identifier: BSD-2-Clause
"""A link with peers over WireGuard: the wire carries nothing that is readable (docs/use/unicast.md)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]

MARK: Final = "a-packet-that-anybody-could-read"

# The kernel's WireGuard has no link-local address of its own; that of wireguard-go may get one.
TUNNEL: Final = """
ip address add 192.0.2.{ours}/24 dev eth0
ip link set {wg} addrgenmode none
wg set {wg} listen-port 51820 private-key {directory}/key{ours} \
    peer "$(wg pubkey < {directory}/key{theirs})" endpoint 192.0.2.{theirs}:51820 \
    allowed-ips fe80::{theirs}/128,10.9.0.{theirs}/32
ip address add fe80::{ours}/64 dev {wg}
ip address add 10.9.0.{ours}/24 dev {wg}
ip link set {wg} up
"""


@pytest.fixture
def tunnelled(sh: Sh, until: Until, tmp_path: Path) -> Iterator[NamespaceLab]:
    """Two hosts whose interfaces, not started yet, are on WireGuard devices: 10.9.0.1 and 10.9.0.2."""
    programs: list[subprocess.Popen[bytes]] = []
    with NamespaceLab(2, start=False) as lab:
        try:
            for host in lab.hosts:
                key = tmp_path / f"key{host.number}"
                key.write_bytes(
                    subprocess.run(["wg", "genkey"], capture_output=True, check=True).stdout
                )
                key.chmod(0o600)
            for host in lab.hosts:
                # wireguard-go has a socket of the device's name, for the whole machine.
                wg = f"wg{os.getpid()}{host.number}"
                programs.append(
                    host.namespace.popen(
                        ["wireguard-go", "-f", wg],
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                )
                until(lambda host=host, wg=wg: host.run(["wg", "show", wg]).returncode == 0)
                sh(
                    host,
                    TUNNEL.format(
                        ours=host.number, theirs=3 - host.number, wg=wg, directory=tmp_path
                    ),
                )
                host.device, host.peer = f"soft:{wg}", f"10.9.0.{3 - host.number}"
            yield lab
        finally:
            for host in lab.hosts:
                host.stop()
            for program in programs:
                program.terminate()
                program.wait()


def test_a_link_over_wireguard_works_and_shows_nothing_on_the_wire(
    tunnelled: NamespaceLab, sh: Sh, until: Until, tmp_path: Path
) -> None:
    first, second = tunnelled.hosts
    tunnelled.start()
    until(lambda: [row["state"] for row in first.ask("peers")] == ["live"])
    file = tmp_path / "wire"
    dump = ["tcpdump", "-i", "eth0", "-U", "--immediate-mode", "-Z", "root", "-w", str(file)]
    sniffer = first.namespace.popen(dump, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: file.exists() and file.stat().st_size >= 24)
        for target in (str(second.ipv4.ip), str(second.ipv6.ip)):
            pattern = MARK.encode()[:16].hex()
            ping = ["ping", "-c", "1", "-W", "2", "-s", "1200", "-M", "do", "-p", pattern, target]
            until(lambda ping=ping: first.run(ping).returncode == 0)
        multicast = "socat -u STDIN UDP4-SENDTO:10.77.0.255:7777,broadcast"
        sh(first, f"echo {MARK} | {multicast}")
        until(lambda: file.stat().st_size > 4 * 1300)
    finally:
        sniffer.terminate()
        sniffer.wait()
    assert MARK.encode()[:16] not in file.read_bytes()
    ports = sh(
        first, f"tcpdump -n -r {file} not udp port 51820 and not arp and not icmp6 2> /dev/null"
    )
    assert ports == ""
