# SPDX-License-Identifier: BSD-2-Clause
"""The cost of a busy Python thread for the data path: python -m pytest bench/test_busy_thread.py -s

Two pumps on their own threads carry packets from a generator to a reader, which are processes. Rounds
alternate between a free GIL and a GIL that a `usleep` holds without a break, worse than any busy
thread. The ratio of the packets moved is the cost of the GIL. A spinning thread also takes its share of
a CPU, as a process would; the scheduler divides that, and this does not measure it.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ipoibu import Gid, Qpn
from ipoibu._core import MemoryPort, MemorySwitch, Pump, TunDevice
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of

SEND = 0
VNET_BYTES = 16
TARGET = ipaddress.IPv4Address("10.0.0.2")
ROUNDS = 100
ROUND_US = 30_000
COST_MAX = 0.05

GENERATE = "import os, sys\nwhile True: os.write({fd}, bytes.fromhex({frame!r}))"
READ = "import os\nwhile True: os.read({fd}, 4096)"


@contextmanager
def program(text: str, *fds: int) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", text], pass_fds=fds)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def packets(receiver: Pump, library: ctypes.CDLL) -> int:
    before = receiver.counters()["rx_packets"]
    library.usleep(ROUND_US)
    return receiver.counters()["rx_packets"] - before


def test_a_busy_python_thread_costs_less_than_a_twentieth() -> None:
    switch = MemorySwitch(1)
    ports = [MemoryPort(switch, Gid.parse(f"fe80::{n}").raw) for n in (1, 2)]
    with ExitStack() as stack:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in ports]
        for ours, theirs in pairs:  # in place of TUN devices: a record is a frame
            stack.callback(theirs.close)
            stack.callback(ours.close)
            ours.setblocking(False)
        sender, receiver = (
            Pump(port, TunDevice(ours.fileno()), mtu=2044)
            for port, (ours, _) in zip(ports, pairs, strict=True)
        )
        stack.callback(sender.close)
        stack.callback(receiver.close)
        sender.neigh_set(
            key_of(TARGET), SEND, Destination(Gid.parse("fe80::2"), Qpn(ports[1].qpn)), 2044
        )
        sender.start()
        receiver.start()
        head = struct.pack(">BBHHHBBH", 0x45, 0, 1000, 0, 0, 64, 17, 0)
        packet = (head + bytes([10, 0, 0, 1]) + TARGET.packed).ljust(1000, b"\0")
        frame = (bytes(VNET_BYTES) + packet).hex()
        source, sink = (theirs.fileno() for _, theirs in pairs)
        stack.enter_context(program(READ.format(fd=sink), sink))
        stack.enter_context(program(GENERATE.format(fd=source, frame=frame), source))
        deadline = time.monotonic() + 10
        while receiver.counters()["rx_packets"] < 1000:  # both programs have begun
            assert time.monotonic() < deadline
            time.sleep(0.01)
        sleeps = {"held": ctypes.PyDLL(None), "free": ctypes.CDLL(None)}
        moved: dict[str, list[int]] = {"held": [], "free": []}
        for number in range(ROUNDS):
            for kind in ("held", "free")[:: 1 if number % 2 else -1]:
                moved[kind].append(packets(receiver, sleeps[kind]))
        ratio = statistics.median(moved["held"]) / statistics.median(moved["free"])
        print(f"GIL held / free: {ratio:.3f}, of {sum(moved['free'])} packets")
        assert ratio > 1 - COST_MAX
