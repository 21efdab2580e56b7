# SPDX-License-Identifier: BSD-2-Clause
"""Measures how the cost grows with the neighbours in the table, and with the hosts of a link."""

from __future__ import annotations

import ipaddress
import struct
import time
from typing import Final

from ipoibu import Gid, Qpn
from ipoibu._core import MemoryPort, MemorySwitch, Pump, QueueDevice
from ipoibu.base.ib import Destination
from ipoibu.base.route import key_of
from ipoibu.bench import process
from ipoibu.lab import LabError, NamespaceLab

NEIGHBOURS: Final = (1, 100, 10_000, 100_000)
HOSTS: Final = (2, 4, 8)
BATCH: Final = 64
PACKET_BYTES: Final = 64
MTU: Final = 2044
TURNS: Final = 5
_SEND: Final = 0


class HitPath:
    """Sends batches of 64 small packets through two pumps over the in-process fabric.

    The caller's thread steps the pumps. Each packet of a batch goes to another neighbour, and the
    neighbours are spread over the whole table.
    """

    def __init__(self, neighbours: int) -> None:
        self._switch = MemorySwitch(1)
        ports = [MemoryPort(self._switch, Gid.parse(f"fe80::{n}").raw) for n in (1, 2)]
        self._queues = [QueueDevice(), QueueDevice()]
        self._sender, self._receiver = (
            Pump(port, queue, mtu=MTU) for port, queue in zip(ports, self._queues, strict=True)
        )
        destination = Destination(Gid.parse("fe80::2"), Qpn(ports[1].qpn))
        first = int(ipaddress.IPv4Address("10.1.0.0"))
        for number in range(neighbours):
            target = ipaddress.IPv4Address(first + number)
            self._sender.neigh_set(key_of(target), _SEND, destination, MTU)
            if number % 1000 == 0:
                self._settle()
        self._settle()
        stride = max(1, neighbours // BATCH)
        self._batch = [
            _packet(ipaddress.IPv4Address(first + n * stride % neighbours)) for n in range(BATCH)
        ]

    def _settle(self) -> None:
        while self._sender.step():
            pass

    def ns_per_packet(self, batches: int) -> float:
        """Return the CPU time of this thread for one packet: both pumps and the two queues."""
        began_ns = time.thread_time_ns()
        for _ in range(batches):
            self._queues[0].send(self._batch)
            self._sender.step()
            self._receiver.step()
            if len(self._queues[1].recv(BATCH)) != BATCH:
                raise LabError("the hit path lost packets")
            self._sender.step()
        return (time.thread_time_ns() - began_ns) / (batches * BATCH)


def _packet(target: ipaddress.IPv4Address) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, PACKET_BYTES, 0, 0, 64, 17, 0)
    return (head + bytes([10, 0, 0, 1]) + target.packed).ljust(PACKET_BYTES, b"\0")


def neighbours(counts: tuple[int, ...] = NEIGHBOURS, batches: int = 2000) -> list[dict[str, float]]:
    """Return the nanoseconds for a packet at each size of table: the minimum of several turns."""
    paths = [HitPath(count) for count in counts]
    turns = [[path.ns_per_packet(batches) for path in paths] for _ in range(TURNS)]
    return [
        {"neighbours": count, "ns_per_packet": min(seen)}
        for count, seen in zip(counts, zip(*turns, strict=True), strict=True)
    ]


def hosts(counts: tuple[int, ...] = HOSTS) -> list[dict[str, float]]:
    """Return, for links of so many hosts, the seconds until all hosts are up, the further seconds
    until the first one has reached the others, and the memory of one daemon."""
    rows = []
    for count in counts:
        began = time.monotonic()
        with NamespaceLab(count) as lab:
            up = time.monotonic()
            first, *others = lab.hosts
            for other in others:
                if first.run(["ping", "-c1", "-W5", str(other.ipv4.ip)]).returncode != 0:
                    raise LabError(f"{first.name} does not reach {other.name}")
            met = time.monotonic()
            pids = [host.pid for host in lab.hosts if host.pid]
            rows.append(
                {
                    "hosts": count,
                    "up_s": up - began,
                    "met_s": met - up,
                    "rss_mib": process.rss_bytes(pids) / len(pids) / 2**20,
                }
            )
    return rows
