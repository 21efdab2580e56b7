# SPDX-License-Identifier: BSD-2-Clause
"""Messages from application to application without copies: python -m pytest bench --benchmark-only

Batches of 64 IP packets of 64 and 2044 bytes go through two pumps that this thread steps.
"""

from __future__ import annotations

import ipaddress
import struct
import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ipoibu import Gid, Qpn
from ipoibu._core import MemoryPort, MemorySwitch, Pump, QueueDevice
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of

BATCH = 64
SEND = 0
TARGET = ipaddress.IPv4Address("10.0.0.2")
MESSAGES_PER_CPU_SECOND = 1_000_000  # of 64 bytes; docs/use/embedding.md promises it
ROUNDS = 2000


class Pair:
    def __init__(self, length: int) -> None:
        switch = MemorySwitch(1)
        ports = [MemoryPort(switch, Gid.parse(f"fe80::{n}").raw) for n in (1, 2)]
        self.source, self.sink = QueueDevice(), QueueDevice()
        self.sender = Pump(ports[0], self.source, mtu=2044)
        self.receiver = Pump(ports[1], self.sink, mtu=2044)
        destination = Destination(Gid.parse("fe80::2"), Qpn(ports[1].qpn))
        self.sender.neigh_set(key_of(TARGET), SEND, destination, 2044)
        while self.sender.step():
            pass
        head = struct.pack(">BBHHHBBH", 0x45, 0, length, 0, 0, 64, 17, 0)
        self.packet = (head + bytes([10, 0, 0, 1]) + TARGET.packed).ljust(length, b"m")

    def run(self) -> None:
        frames = self.source.reserve(BATCH)
        length = len(self.packet)
        for frame in frames:
            frame.length = length
            memoryview(frame)[:] = self.packet
        assert self.source.send_frames(frames) == BATCH
        self.sender.step()
        self.receiver.step()
        received = self.sink.recv_frames(BATCH)
        assert sum(memoryview(frame)[-1] == self.packet[-1] for frame in received) == BATCH
        self.sender.step()


@pytest.mark.parametrize("length", [64, 2044])
def test_a_batch_of_frames_through_two_pumps(benchmark: BenchmarkFixture, length: int) -> None:
    benchmark(Pair(length).run)


def test_more_than_a_million_small_messages_a_second_and_core() -> None:
    pair = Pair(64)
    pair.run()
    before = time.process_time()
    for _ in range(ROUNDS):
        pair.run()
    rate = ROUNDS * BATCH / (time.process_time() - before)
    assert rate > MESSAGES_PER_CPU_SECOND
