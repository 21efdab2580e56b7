# SPDX-License-Identifier: BSD-2-Clause
"""A TUN of several queues: a pair of sockets plays each, and the test the kernel."""

from __future__ import annotations

import ipaddress
import select
import socket
import struct
from typing import ClassVar, Final

from ipoibu._core import TunDevice, TunRing

VNET: Final = bytes(16)


def udp(source: str, target: str, data: bytes, *, ports: tuple[int, int] = (5000, 5001)) -> bytes:
    """Return an IPv4 packet without checksums."""
    head = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(data), 0, 0x4000, 64, 17, 0)
    ends = ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed
    return head + ends + struct.pack(">HHHH", *ports, 8 + len(data), 0) + data


class FakeQueues:
    """`device` is the TUN; `give` and `take` do the kernel's part at one of its queues."""

    kind: ClassVar[type[TunDevice | TunRing]] = TunDevice

    def __init__(self, count: int, offload: tuple[str, ...] = ("csum",)) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
        for pair in pairs:
            for end in pair:
                end.setblocking(False)
        self._ends = [pair[0] for pair in pairs]
        self._kernel = [pair[1] for pair in pairs]
        fd, *more = (end.fileno() for end in self._ends)
        self.device = self.kind(fd, offload, more)

    def give(self, queue: int, packet: bytes) -> None:
        self._kernel[queue].send(VNET + packet)

    def take(self, queue: int, timeout_s: float = 0) -> list[bytes]:
        """Return the packets written there; wait at most `timeout_s` for the first one."""
        packets: list[bytes] = []
        select.select([self._kernel[queue]], [], [], timeout_s)
        while True:
            try:
                packets.append(self._kernel[queue].recv(1 << 17)[len(VNET) :])
            except BlockingIOError:
                return packets

    def take_all(self, timeout_s: float = 0) -> list[bytes]:
        select.select(self._kernel, [], [], timeout_s)
        return [packet for queue in range(len(self._kernel)) for packet in self.take(queue)]

    def close(self) -> None:
        for end in (*self._ends, *self._kernel):
            end.close()
