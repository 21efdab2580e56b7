# SPDX-License-Identifier: BSD-2-Clause
"""Contenders without privilege: one command on each host has a network of its own, which a program in user
space provides. The others are what rootless podman uses, from Debian packages.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ipoibu.base.processes import children_of
from ipoibu.bench.contender import QUIET, Running, need, processes, sh, wait_ready, wire
from ipoibu.bench.traffic import python
from ipoibu.lab import NETDEV, LabError, NamespaceLab
from ipoibu.lab.directory import work_directory
from ipoibu.lab.namespace import LabNamespace

PORTS: Final = range(5201, 5204)  # iperf3's and those of ipoibu.bench.stream and .echo
SLIRP_GUEST: Final = "10.0.2.100"  # of slirp4netns(1)
LONGEST_MTU: Final = "65520"  # pasta's default, and what slirp4netns(1) recommends


@contextmanager
def _namespace_of(pid: int) -> Iterator[LabNamespace]:
    """The network namespace of a process."""
    path = f"/proc/{pid}/ns/net"
    namespace = LabNamespace(f"sandbox-{pid}", os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    try:
        yield namespace
    finally:
        os.close(namespace.fd)


def _has_left(pid: int, namespace: int) -> bool:
    return os.stat(f"/proc/{pid}/ns/net").st_ino != namespace


def _has_address(sandbox: LabNamespace, text: str) -> bool:
    return text in sandbox.run(["ip", "-4", "address"]).stdout


@contextmanager
def _empty_sandboxes(
    lab: NamespaceLab,
) -> Iterator[tuple[list[LabNamespace], list[int], list[subprocess.Popen[bytes]]]]:
    """Two user and network namespaces without a network, one on each host: the namespaces, the process that
    holds each, and a list for processes that end with them."""
    hosts = lab.hosts[:2]
    with ExitStack() as stack:
        started = stack.enter_context(processes())
        for host in hosts:
            # Their pings leave by ICMP sockets, which this permits (icmp(7)).
            done = host.run(["sysctl", "-qw", "net.ipv4.ping_group_range=0 0"])
            if done.returncode != 0:
                raise LabError(f"{host.name}: {done.stderr.strip()}")
            started.append(host.namespace.popen(["unshare", "-Urn", "sleep", "infinity"]))
        pids = [process.pid for process in started]
        for host, pid in zip(hosts, pids, strict=True):
            outside = os.stat(host.namespace.path).st_ino
            wait_ready(partial(_has_left, pid, outside), "a network namespace", started)
        yield [stack.enter_context(_namespace_of(pid)) for pid in pids], pids, started


@dataclass(frozen=True)
class Run:
    """Our own `ipoibu run`, with further options."""

    name: str
    options: tuple[str, ...] = ()

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        hosts = lab.hosts[:2]
        with ExitStack() as stack:
            started = stack.enter_context(processes())
            for host in hosts:
                words = ["--device", f"soft:{NETDEV}", "--address", str(host.ipv4), *self.options]
                hold = ["--", "sh", "-c", "echo up; exec sleep infinity"]
                command = [*python("ipoibu.cli"), "run", *words, *hold]
                started.append(
                    host.namespace.popen(command, **{**QUIET, "stdout": subprocess.PIPE})
                )
            for process in started:
                assert process.stdout is not None
                if process.stdout.readline() != b"up\n":
                    raise LabError("ipoibu run did not come up")
            children = [children_of(process.pid) for process in started]
            sandboxes = [stack.enter_context(_namespace_of(command)) for command, _ in children]
            yield Running(str(hosts[1].ipv4.ip), [pid for _, pid in children], sandboxes)


@dataclass(frozen=True)
class Pasta:
    """pasta, of passt: it translates a tap device's TCP, UDP and ICMP to sockets of the host."""

    name: str = "pasta"

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        need("pasta")
        ports = f"{PORTS[0]}-{PORTS[-1]}"
        with _empty_sandboxes(lab) as (sandboxes, pids, started), ExitStack() as stack:
            for number, (host, pid) in enumerate(zip(lab.hosts, pids, strict=False)):
                # It takes address and route from the interface of the default route.
                sh(host, f"ip route add default via {wire(lab.hosts[1 - number])} dev {NETDEV}")
                stack.callback(host.run, ["ip", "route", "del", "default"])
                # Else it would take the gateway, which is the other host, for its own host.
                words = ["-f", "-q", "-4", "--no-map-gw", "--config-net", "--runas", "0"]
                forward = (
                    ["-t", ports, "-u", ports] if number == 1 else ["-t", "none", "-u", "none"]
                )
                command = ["pasta", *words, *forward, str(pid)]
                started.append(host.namespace.popen(command, **QUIET))
            for sandbox in sandboxes:
                wait_ready(partial(_has_address, sandbox, "10.78.0."), self.name, started)
            forwarders = [process.pid for process in started[2:]]
            yield Running(wire(lab.hosts[1]), forwarders, sandboxes, bound=wire(lab.hosts[1]))


@dataclass(frozen=True)
class Slirp4netns:
    """slirp4netns: a TCP/IP stack in user space between a tap device and sockets of the host."""

    name: str = "slirp4netns"

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        need("slirp4netns")
        with (
            _empty_sandboxes(lab) as (sandboxes, pids, started),
            work_directory("bench") as work,
        ):
            for host, pid in zip(lab.hosts, pids, strict=False):
                control = ["--api-socket", f"{work}/{host.name}"]
                options = ["--configure", f"--mtu={LONGEST_MTU}", *control]
                command = ["slirp4netns", *options, str(pid), "tap0"]
                started.append(host.namespace.popen(command, **QUIET))
            for sandbox in sandboxes:
                wait_ready(partial(_has_address, sandbox, SLIRP_GUEST), self.name, started)
            second = lab.hosts[1]
            for port in PORTS:
                for protocol in ("tcp", "udp"):
                    _forward(Path(work, second.name), protocol, wire(second), port)
            forwarders = [process.pid for process in started[2:]]
            yield Running(wire(second), forwarders, sandboxes, bound=SLIRP_GUEST)


def _connects(api: socket.socket, control: Path) -> bool:
    """slirp4netns configures the guest before it listens."""
    try:
        api.connect(str(control))
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


def _forward(control: Path, protocol: str, address: str, port: int) -> None:
    """Make slirp4netns forward a port of its host to the guest."""
    ends = {"host_addr": address, "host_port": port, "guest_addr": SLIRP_GUEST, "guest_port": port}
    request = {"execute": "add_hostfwd", "arguments": {"proto": protocol, **ends}}
    with socket.socket(socket.AF_UNIX) as api:
        wait_ready(partial(_connects, api, control), "slirp4netns", ())
        api.sendall(json.dumps(request).encode())
        api.shutdown(socket.SHUT_WR)
        answer = api.recv(4096)
    if b"error" in answer:
        raise LabError(f"slirp4netns: {answer.decode().strip()}")
