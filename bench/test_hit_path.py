# SPDX-License-Identifier: BSD-2-Clause
"""Micro-benchmarks of the hit path: python -m pytest bench --benchmark-only

Batches of 64 packets of 64 and 2044 bytes go from one application queue to another, through two pumps
that this thread steps, over the in-process fabric, with 1 and 100 000 neighbours in the table.
"""

from __future__ import annotations

import ipaddress
import struct

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ipoibu import Gid, Qpn
from ipoibu._core import MemoryPort, MemorySwitch, Pump, QueueDevice
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of

BATCH = 64
SEND = 0


def packet(target: ipaddress.IPv4Address, length: int) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, length, 0, 0, 64, 17, 0)
    return (head + bytes([10, 0, 0, 1]) + target.packed).ljust(length, b"\0")


@pytest.mark.parametrize("neighbours", [1, 100_000])
@pytest.mark.parametrize("length", [64, 2044])
def test_a_batch_through_two_pumps(
    benchmark: BenchmarkFixture, length: int, neighbours: int
) -> None:
    switch = MemorySwitch(1)
    ports = [MemoryPort(switch, Gid.parse(f"fe80::{n}").raw) for n in (1, 2)]
    queues = [QueueDevice(), QueueDevice()]
    sender, receiver = (
        Pump(port, queue, mtu=2044) for port, queue in zip(ports, queues, strict=True)
    )
    destination = Destination(Gid.parse("fe80::2"), Qpn(ports[1].qpn))
    first = int(ipaddress.IPv4Address("10.1.0.0"))
    targets = [ipaddress.IPv4Address(first + n) for n in range(neighbours)]
    for count, target in enumerate(targets):
        sender.neigh_set(key_of(target), SEND, destination, 2044)
        if count % 1000 == 0:
            while sender.step():
                pass
    while sender.step():
        pass
    stride = max(1, neighbours // BATCH)
    batch = [packet(targets[n * stride % neighbours], length) for n in range(BATCH)]

    def run() -> None:
        queues[0].send(batch)
        sender.step()
        receiver.step()
        assert len(queues[1].recv(BATCH)) == BATCH
        sender.step()

    benchmark(run)
