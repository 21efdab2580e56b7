# SPDX-License-Identifier: BSD-2-Clause
"""Packets of hosts 10.0.0.N and fd00::N, and the wait for what they cause."""

from __future__ import annotations

import ipaddress
import struct
import time
from collections.abc import Callable

from ipoibu.wire.ip import checksum


def udp4(source: int, target: str, data: bytes) -> bytes:
    """An IPv4 packet from host number `source`."""
    head = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(data), 0, 0, 64, 17, 0))
    head += bytes([10, 0, 0, source]) + ipaddress.IPv4Address(target).packed
    head[10:12] = checksum(head).to_bytes(2, "big")
    return bytes(head) + data


def udp6(source: int, target: str, data: bytes) -> bytes:
    head = struct.pack(">IHBB", 6 << 28, len(data), 17, 64)
    own = ipaddress.IPv6Address(f"fd00::{source}").packed
    return head + own + ipaddress.IPv6Address(target).packed + data


def until(ask: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < deadline
        time.sleep(0.01)
