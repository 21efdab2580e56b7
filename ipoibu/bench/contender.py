# SPDX-License-Identifier: BSD-2-Clause
"""Contenders: programs and kernel devices that forward packets from the first host of a lab to the second,
in turn.

A contender starts before its turn and stops after it, so that only one forwarder runs. All use the
wire of the same lab. `Absent` says why a contender cannot take part on this machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from ipoibu.base.errors import UsageError
from ipoibu.bench import _ceiling
from ipoibu.bench.traffic import Ends, python
from ipoibu.lab import NETDEV, LabError, NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace
from ipoibu.lab.namespace_lab import NETDEV_MTU
from ipoibu.lab.underlay import host_address

MTU: Final = 2044
CONNECTED_MTU: Final = 65520
READY_S: Final = 60.0
QUIET: Final[dict[str, Any]] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
# A daemon runs in a session of its own, as ours do. Where the kernel shares the CPUs out by sessions
# (sched_autogroup), it places a forwarder in the session of iperf3 better: bench/notes/placement.md.
OWN_SESSION: Final[dict[str, Any]] = {"start_new_session": True}
SEGMENT_BYTES: Final = NETDEV_MTU - 28  # of a datagram on the wire: headers of IPv4 and UDP
TRAIN_BYTES: Final = 65000
# Of TCP in the ceiling's datagram mode: 32 packets of 2016 bytes fill a train, and 32 of 2044 do not.
CEILING_MSS: Final = 2016 - 40
CEILING_PACKET_BYTES: Final = 8928  # of 9000 on the wire, as connections among ipoibu have
INFINIBAND: Final = Path("/sys/class/infiniband")


class Absent(Exception):
    """A contender cannot take part here; the message names the missing part."""


@dataclass(frozen=True)
class Running:
    """The second host's address, and the processes that forward; none if the kernel forwards.

    With `sandboxes`, the programs run in these, one on each host, and not in the hosts; those of the
    second bind `bound`, if it is not the address by which the first reaches them.
    """

    address: str
    pids: Sequence[int] = ()
    sandboxes: Sequence[LabNamespace] = ()
    bound: str | None = None

    def ends(self, lab: NamespaceLab) -> Ends:
        sender, receiver = self.sandboxes or [host.namespace for host in lab.hosts[:2]]
        return Ends(sender, receiver, self.address, self.bound or self.address, self.pids)


class Contender(Protocol):
    """`running` forwards packets as long as its context lasts; it may raise `Absent`."""

    @property
    def name(self) -> str: ...

    def running(self, lab: NamespaceLab) -> AbstractContextManager[Running]: ...


def sh(host: Host, command: str) -> None:
    """Run a command in the host; raise `LabError` when it fails."""
    done = host.run(command.split())
    if done.returncode != 0:
        raise LabError(f"{host.name}: {command}: {(done.stderr or done.stdout).strip()}")


def number_wire(lab: NamespaceLab) -> None:
    """Give the wire IPv4 addresses, which the contenders use to reach each other."""
    for host in lab.hosts:
        sh(host, f"ip address add 10.78.0.{host.number}/24 dev {NETDEV}")


def wire(host: Host) -> str:
    """Return the IPv4 address of the host on the wire."""
    if host.wire_ip is not None:
        return str(host_address(host.number, 4).ip)
    return f"10.78.0.{host.number}"


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            raise Absent(f"{program} is not installed")


def wait_answer(ends: Ends) -> None:
    """Wait until the second end answers a ping."""
    deadline = time.monotonic() + READY_S
    while ends.sender.run(["ping", "-c1", "-W1", ends.address]).returncode != 0:
        if time.monotonic() > deadline:
            raise LabError(f"{ends.address} does not answer")


def wait_ready(
    ready: Callable[[], bool], what: str, started: Sequence[subprocess.Popen[bytes]]
) -> None:
    """Wait until `ready`; raise `LabError` if that takes too long or one of the processes ends."""
    deadline = time.monotonic() + READY_S
    while not ready():
        if time.monotonic() > deadline or any(p.poll() is not None for p in started):
            raise LabError(f"{what} did not come up")
        time.sleep(0.02)


@contextmanager
def links(lab: NamespaceLab, name: str) -> Iterator[None]:
    """Remove the interface `name` from both hosts at the end."""
    try:
        yield
    finally:
        for host in lab.hosts[:2]:
            host.run(["ip", "link", "del", name])


@contextmanager
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield a list, and end the processes in it at the end."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@dataclass(frozen=True)
class Ipoibu:
    """Our own daemons, with further options; they take part only on a machine with `cpus` CPUs."""

    name: str
    options: tuple[str, ...] = ()
    cpus: int = 1

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        there = len(os.sched_getaffinity(0))
        if there < self.cpus:
            raise Absent(f"it needs {self.cpus} CPUs, and there is {there}")
        for host in lab.hosts:
            host.options = list(self.options)
        try:
            lab.hosts[0].check_options()
        except UsageError as error:
            raise Absent(str(error)) from error
        try:
            lab.start()
            yield Running(str(lab.hosts[1].ipv4.ip), [host.pid for host in lab.hosts if host.pid])
        finally:
            for host in lab.hosts:
                host.stop()


@dataclass(frozen=True)
class Veth:
    """The wire itself."""

    name: str = "veth"

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        yield Running(wire(lab.hosts[1]))


@dataclass(frozen=True)
class Vxlan:
    """The kernel's VXLAN, with the MTU of IPoIB's datagram mode."""

    name: str = "vxlan"
    link: str = "vx0"

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        first, second = lab.hosts[:2]
        with links(lab, self.link):
            for host, other in ((first, second), (second, first)):
                made = host.run(
                    f"ip link add {self.link} type vxlan id 7 dstport 4789 dev {NETDEV}"
                    f" local {wire(host)} remote {wire(other)}".split()
                )
                if made.returncode != 0:
                    raise Absent(f"the kernel makes no VXLAN: {made.stderr.strip()}")
                sh(host, f"ip address add 10.79.0.{host.number}/24 dev {self.link}")
                sh(host, f"ip link set {self.link} mtu {MTU} up")
            yield Running("10.79.0.2")


@dataclass(frozen=True)
class Relay:
    """Two TUN devices that one process joins: the upper limit for every contender with a TUN."""

    name: str = "relay"
    link: str = "rl0"

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        paths = [str(host.namespace.path) for host in lab.hosts[:2]]
        with processes() as started:
            command = python("ipoibu.bench.relay", self.link, *paths)
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            started.append(process)
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise LabError("the relay did not start")
            for host in lab.hosts[:2]:
                sh(host, f"ip address add 10.80.0.{host.number}/24 dev {self.link}")
                sh(host, f"ip link set {self.link} mtu {MTU} txqueuelen 1000 up")
            yield Running("10.80.0.2", [process.pid])


@dataclass(frozen=True)
class Tunnel:
    """A TUN over UDP with all offloads of the kernel, in one thread.

    The bare one speaks no protocol and cuts nothing. The ceiling does what IPoIB over RoCEv2 demands of each
    packet, by our own functions, and nothing else: in connected mode with so many bytes a packet.
    """

    name: str = "tunnel"
    kind: Literal["bare", "ceiling"] = "bare"
    packet_bytes: int = 0
    link: str = "tn0"

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        hosts = lab.hosts[:2]
        is_bare = self.kind == "bare"
        mtu = MTU if is_bare else _ceiling.mtu(self.packet_bytes)
        # A train of datagrams holds less than an IP packet's 64 KiB.
        number = SEGMENT_BYTES if is_bare else self.packet_bytes
        with processes() as started:
            for host, other in (hosts, hosts[::-1]):
                ends = wire(host), wire(other)
                command = python("ipoibu.bench.tunnel", self.link, *ends, self.kind, str(number))
                process = host.namespace.popen(command, stdout=subprocess.PIPE, **OWN_SESSION)
                started.append(process)
                if process.stdout is None or process.stdout.readline() != b"ready\n":
                    raise LabError(f"{self.name} did not start")
                sh(host, f"ip address add 10.84.0.{host.number}/24 dev {self.link}")
                limits = f"gso_max_size {TRAIN_BYTES} txqueuelen 1000"
                sh(host, f"ip link set {self.link} mtu {mtu} {limits} up")
                if mtu == MTU and not is_bare:
                    route = f"10.84.0.0/24 dev {self.link} src 10.84.0.{host.number}"
                    sh(host, f"ip route replace {route} advmss {CEILING_MSS}")
            yield Running("10.84.0.2", [process.pid for process in started])


@dataclass(frozen=True)
class IbIpoib:
    """The kernel's own ib_ipoib: two children of an InfiniBand port's interface, one for each host."""

    name: str
    mode: str
    mtu: int
    link: str = field(default="ibb0")

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        parent = self._parent()
        with links(lab, self.link), contextlib.ExitStack() as stack:
            for host in lab.hosts[:2]:
                made = f"ibb{host.number}"
                command = f"ip link add link {parent} name {made} type ipoib mode {self.mode}"
                done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise Absent(f"no child of {parent}: {done.stderr.strip()}")
                stack.callback(subprocess.run, ["ip", "link", "del", made], capture_output=True)
                move = f"ip link set {made} netns {host.namespace.name} name {self.link}"
                subprocess.run(move.split(), check=True)
                sh(host, f"ip address add 10.83.0.{host.number}/24 dev {self.link}")
                sh(host, f"ip link set {self.link} mtu {self.mtu} up")
            yield Running("10.83.0.2")

    @staticmethod
    def _parent() -> str:
        """The first network interface of a device with an active InfiniBand port."""
        ports = INFINIBAND.glob("*/ports/*/link_layer")
        for port in sorted(port for port in ports if port.read_text().strip() == "InfiniBand"):
            for link in sorted((port.parents[2] / "device" / "net").glob("*")):
                return link.name
        raise Absent("no InfiniBand port with an ib_ipoib interface on this machine")
