# SPDX-License-Identifier: BSD-2-Clause
"""Cuts an IP packet of the host into fragments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from tests.doubles.peer.ipv4 import checksum

_numbers: Final = itertools.count(1)


def pieces(kind: int, packet: bytes, mtu: int) -> Iterator[bytes]:
    """Return packets of at most `mtu` bytes: fragments of RFC 791 or RFC 8200, or the packet itself."""
    if len(packet) <= mtu:
        yield packet
        return
    number = next(_numbers) & 0xFFFF
    head_len = 20 if kind == 0x0800 else 40
    room = (mtu - head_len - (0 if kind == 0x0800 else 8)) // 8 * 8
    body = packet[head_len:]
    for at in range(0, len(body), room):
        piece = body[at : at + room]
        more = at + room < len(body)
        if kind == 0x0800:
            flags = (0x2000 if more else 0) | at // 8
            length = (20 + len(piece)).to_bytes(2, "big")
            head = packet[:2] + length + number.to_bytes(2, "big") + flags.to_bytes(2, "big")
            head += packet[8:10] + b"\0\0" + packet[12:20]
            yield head[:10] + checksum(head).to_bytes(2, "big") + head[12:] + piece
        else:
            length = (8 + len(piece)).to_bytes(2, "big")
            extra = packet[6:7] + b"\0" + (at | more).to_bytes(2, "big") + number.to_bytes(4, "big")
            yield packet[:4] + length + b"\x2c" + packet[7:40] + extra + piece
