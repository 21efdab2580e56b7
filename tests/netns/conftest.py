# SPDX-License-Identifier: BSD-2-Clause
"""Labs for the tests of this directory, and the check that none of them leaves anything behind."""

from __future__ import annotations

import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu.host.netlink import Netlink
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import NETNS_DIR, LabNamespace
from tests.attack.attacker import Attacker
from tests.lab_report import pytest_runtest_call
from tests.privilege import pytest_collection_modifyitems, pytest_configure

# pytest finds these here
__all__ = ["pytest_collection_modifyitems", "pytest_configure", "pytest_runtest_call"]

Cli = Callable[..., subprocess.CompletedProcess[str]]
Until = Callable[..., Any]


def _own_namespaces() -> list[str]:
    prefix = f"ipoibu-{os.getpid()}-"
    return [path.name for path in NETNS_DIR.iterdir() if path.name.startswith(prefix)]


@pytest.fixture(autouse=True, scope="session")
def runtime() -> Iterator[Path]:
    """A runtime directory for this session alone; in the end it must be empty, and /run/netns without our
    names."""
    directory = Path(tempfile.mkdtemp(prefix="ipt-"))
    directory.chmod(0o711)  # daemons of other users reach their sockets
    os.environ["IPOIBU_RUNTIME_DIR"] = str(directory / "run")
    yield directory / "run"
    del os.environ["IPOIBU_RUNTIME_DIR"]
    left = [str(path) for path in directory.rglob("*")]
    shutil.rmtree(directory)
    assert left == []
    assert _own_namespaces() == []


@pytest.fixture(scope="session")
def attacker(tmp_path_factory: pytest.TempPathFactory) -> Attacker:
    return Attacker.build(tmp_path_factory.mktemp("attack"))


@pytest.fixture(scope="module")
def lab() -> Iterator[NamespaceLab]:
    """Two hosts, up; for tests that leave them as they were."""
    with NamespaceLab() as lab:
        yield lab


@pytest.fixture(scope="module")
def idle() -> Iterator[NamespaceLab]:
    """Two hosts without interfaces; for tests that leave them so."""
    with NamespaceLab(start=False) as lab:
        yield lab


@pytest.fixture
def bare() -> Iterator[NamespaceLab]:
    """Two hosts whose interfaces the test starts."""
    with NamespaceLab(start=False) as lab:
        yield lab


@pytest.fixture
def pods() -> Iterator[tuple[LabNamespace, LabNamespace]]:
    """Two namespaces without any network."""
    names = [f"ipoibu-{os.getpid()}-pod{number}" for number in (1, 2)]
    first, second = (LabNamespace.create(name) for name in names)
    try:
        yield first, second
    finally:
        first.remove()
        second.remove()


@pytest.fixture(scope="session")
def cli() -> Cli:
    """Run `ipoibu WORDS...` in a host; text output, no exception for an exit code."""

    def run(host: Host, *words: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        return host.run([sys.executable, "-m", "ipoibu.cli", *words], timeout_s=timeout_s)

    return run


@pytest.fixture(scope="session")
def sh() -> Callable[[Host, str], str]:
    """Run a shell command in a host; return its output, or fail the test with that output."""

    def run(host: Host, command: str) -> str:
        done = host.run(["sh", "-c", command])
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def until() -> Until:
    """Ask again and again until the answer is true; return that answer, or fail the test.

    A busy machine may stop any program for seconds, so a shorter limit is too short.
    """

    def wait(question: Callable[[], Any], timeout_s: float = 60.0) -> Any:
        deadline = time.monotonic() + timeout_s
        while not (answer := question()):
            assert time.monotonic() < deadline, f"not within {timeout_s} s; last: {answer!r}"
            time.sleep(0.05)
        return answer

    return wait


class BadWire:
    """A wire between two ports of a bridge that loses, repeats, delays and corrupts frames, seeded.

    The kernels here have no netem. Frames travel with their virtio header (PACKET_VNET_HDR), so that
    unfinished checksums and segmentation survive; then only the ICRC finds a corrupted byte. The wire
    spoils only RoCE frames, because its own neighbour discovery is not under test.
    """

    SOL_PACKET, PACKET_VNET_HDR, VNET_BYTES = 263, 15, 10

    def __init__(
        self, bridge: LabNamespace, ports: tuple[str, str], seed: int, **chances: float
    ) -> None:
        self._random = random.Random(seed)
        self._chances = chances
        self.counts = dict.fromkeys(("loss", "dup", "reorder", "corrupt"), 0)
        self._stop_read, self._stop_write = os.pipe()
        self._sockets = [self._open(bridge, port) for port in ports]
        self._held: list[tuple[socket.socket, bytes]] = []
        self._thread = threading.Thread(target=self._run)

    def _open(self, bridge: LabNamespace, port: str) -> socket.socket:
        def detach_and_open() -> socket.socket:
            with Netlink() as netlink:
                link = netlink.link(port)
                assert link is not None
                netlink.set_link(link.index, master=0)
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            opened.setsockopt(self.SOL_PACKET, self.PACKET_VNET_HDR, 1)
            opened.bind((port, 3))
            return opened

        return bridge.inside(detach_and_open)

    def __enter__(self) -> BadWire:
        self._thread.start()
        return self

    def __exit__(self, *exit: object) -> None:
        os.write(self._stop_write, b"x")
        self._thread.join()
        for each in self._sockets:
            each.close()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def _run(self) -> None:
        left, right = self._sockets
        across = {left.fileno(): right, right.fileno(): left}
        while True:
            # A held frame goes on after at most 20 ms, or behind the next frame.
            ready, _, _ = select.select([self._stop_read, *across], [], [], 0.02)
            if not ready:
                self._release()
            for fd in ready:
                if fd == self._stop_read:
                    return
                source = left if fd == left.fileno() else right
                frame, address = source.recvfrom(1 << 17)
                if address[2] != 4:  # PACKET_OUTGOING: our own
                    self._forward(across[fd], frame)

    def _forward(self, out: socket.socket, frame: bytes) -> None:
        ethernet = frame[self.VNET_BYTES :]
        # IPv6, UDP, destination port 4791
        if not (ethernet[12:14] == b"\x86\xdd" and ethernet[20:21] == b"\x11") or (
            ethernet[56:58] != (4791).to_bytes(2, "big")
        ):
            self._send(out, frame)
            return
        if self._meets("loss"):
            return
        if self._meets("corrupt"):
            at = self.VNET_BYTES + self._random.randrange(14 + 40 + 8 + 12, len(ethernet))
            frame = (
                frame[:at] + bytes((frame[at] ^ 1 << self._random.randrange(8),)) + frame[at + 1 :]
            )
        if self._meets("reorder"):
            self._held.append((out, frame))
            return
        self._send(out, frame)
        self._release()
        if self._meets("dup"):
            self._send(out, frame)

    def _meets(self, fate: str) -> bool:
        met = self._random.random() < self._chances.get(fate, 0)
        self.counts[fate] += met
        return met

    def _release(self) -> None:
        held, self._held = self._held, []
        for out, frame in held:
            self._send(out, frame)

    @staticmethod
    def _send(out: socket.socket, frame: bytes) -> None:
        try:
            out.send(frame)
        except OSError:
            return  # a full queue loses a frame as a wire does


@pytest.fixture(scope="session")
def bad_wire() -> type[BadWire]:
    return BadWire
