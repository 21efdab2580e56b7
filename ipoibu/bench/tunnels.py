# SPDX-License-Identifier: BSD-2-Clause
"""Other projects' tunnels that forward in user space, from Debian packages."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipoibu.bench.contender import (
    MTU,
    OWN_SESSION,
    QUIET,
    Running,
    links,
    need,
    processes,
    sh,
    wait_ready,
    wire,
)
from ipoibu.lab import LabError, NamespaceLab
from ipoibu.lab.directory import work_directory
from ipoibu.lab.host import Host

WIREGUARD_PORT: Final = 51820
FASTD_PORT: Final = 10000


def _output(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


@dataclass(frozen=True)
class WireguardGo:
    """WireGuard in Go: a TUN with offloads, and encryption."""

    name: str = "wireguard-go"

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        need("wireguard-go", "wg")
        hosts = lab.hosts[:2]
        # All namespaces share the directory of its control sockets, so the names must be unique.
        names = {host.name: f"wgb{os.getpid() % 100_000}{host.number}" for host in hosts}
        with work_directory("bench") as work, processes() as started:
            public = {}
            for host in hosts:
                key = _output(["wg", "genkey"])
                Path(work, host.name).write_text(key)
                public[host.name] = _output(["wg", "pubkey"], key)
                link = names[host.name]
                command = ["wireguard-go", "-f", link]
                started.append(host.namespace.popen(command, **QUIET, **OWN_SESSION))
            for host, other in (hosts, hosts[::-1]):
                link = names[host.name]
                _wait_for(Path("/var/run/wireguard", f"{link}.sock"), started)
                sh(
                    host,
                    f"wg set {link} private-key {Path(work, host.name)} listen-port {WIREGUARD_PORT}"
                    f" peer {public[other.name]} allowed-ips 10.81.0.0/24"
                    f" endpoint {wire(other)}:{WIREGUARD_PORT}",
                )
                sh(host, f"ip address add 10.81.0.{host.number}/24 dev {link}")
                sh(host, f"ip link set {link} mtu {MTU} up")
            yield Running("10.81.0.2", [process.pid for process in started])


@dataclass(frozen=True)
class Fastd:
    """fastd with the method `null`: no encryption, no offloads."""

    name: str = "fastd"
    link: str = "fd0"

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        need("fastd")
        hosts = lab.hosts[:2]
        with work_directory("bench") as work, links(lab, self.link), processes() as started:
            keys = {}
            for host in hosts:
                generated = _output(["fastd", "--machine-readable", "--generate-key"])
                secret = generated.split()[0]
                config = Path(work, f"{host.name}.key")
                config.write_text(f'secret "{secret}";\n')
                public = _output(["fastd", "--machine-readable", "--show-key", "-c", str(config)])
                keys[host.name] = (secret, public.split()[0])
            for host, other in (hosts, hosts[::-1]):
                config = Path(work, f"{host.name}.conf")
                config.write_text(
                    f'log level warn; interface "{self.link}"; mode tun; mtu {MTU}; method "null";\n'
                    f'bind {wire(host)}:{FASTD_PORT}; secret "{keys[host.name][0]}";\n'
                    f'peer "{other.name}" {{ key "{keys[other.name][1]}";'
                    f" remote {wire(other)}:{FASTD_PORT}; }}\n"
                )
                command = ["fastd", "-c", str(config)]
                started.append(host.namespace.popen(command, **QUIET, **OWN_SESSION))
            for host in hosts:
                _wait_for_link(host, self.link, started)
                sh(host, f"ip address add 10.82.0.{host.number}/24 dev {self.link}")
                sh(host, f"ip link set {self.link} up")
            yield Running("10.82.0.2", [process.pid for process in started])


def _wait_for(path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    wait_ready(path.exists, str(path), started)


def _wait_for_link(host: Host, link: str, started: list[subprocess.Popen[bytes]]) -> None:
    wait_ready(lambda: host.run(["ip", "link", "show", link]).returncode == 0, link, started)
