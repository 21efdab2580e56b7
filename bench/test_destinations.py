# SPDX-License-Identifier: BSD-2-Clause
"""The sender's hit path over many destinations in turn, each with its own address handle:
python -m pytest bench/test_destinations.py --benchmark-only

Between two packets to a neighbour the sender uses all others, so its table entries are cold.
"""

from __future__ import annotations

import ipaddress
import itertools
import struct

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ipoibu import Gid, Qpn
from ipoibu._core import MemoryPort, MemorySwitch, Pump, QueueDevice
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of

BATCH = 64
SEND = 0
NEIGHBOURS = 100_000
FIRST_GID = ipaddress.IPv6Address("fd00::1")
FIRST = int(ipaddress.IPv4Address("10.1.0.0"))


def packet(number: int) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 64, 0, 0, 64, 17, 0)
    return (head + bytes([10, 0, 0, 1]) + (FIRST + number).to_bytes(4, "big")).ljust(64, b"\0")


@pytest.mark.parametrize("destinations", [1, 1000, NEIGHBOURS])
def test_packets_to_each_of_100_000_neighbours(
    benchmark: BenchmarkFixture, destinations: int
) -> None:
    port = MemoryPort(MemorySwitch(1), Gid.parse("fe80::1").raw)
    queue = QueueDevice()
    pump = Pump(port, queue, mtu=2044, ah_max=131072)
    for number in range(NEIGHBOURS):
        gid = Gid.parse(str(FIRST_GID + number % destinations))
        key = key_of(ipaddress.IPv4Address(FIRST + number))
        pump.neigh_set(key, SEND, Destination(gid, Qpn(2)), 2044)
        if number % 1000 == 0:
            while pump.step():
                pass
    while pump.step():
        pass
    numbers = iter(range(NEIGHBOURS))
    batches = [[packet(n) for n in itertools.islice(numbers, BATCH)] for _ in range(1500)]
    turn = itertools.cycle(batches)

    def run() -> None:
        queue.send(next(turn))
        pump.step()

    benchmark.pedantic(run, rounds=9000)
    sent = pump.counters()["tx_packets"]
    assert sent == 9000 * BATCH
