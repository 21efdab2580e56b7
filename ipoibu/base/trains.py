# SPDX-License-Identifier: BSD-2-Clause
"""The frames of TCP that the kernel shall make, so that each leaves as one train."""

from __future__ import annotations

from dataclasses import dataclass

from ipoibu.base.limits import (
    ENCAP_LEN,
    KERNEL_FRAME_BYTES,
    KERNEL_TCP_ROOM_BYTES,
    SOFT_DATAGRAM_HEADER_BYTES,
    UDP_FRAME_BYTES,
)

_PADDING = 4  # a packet has a multiple of it (IBA §9.2.4)
_HEADERS = (20 + 20 + 12, 40 + 20 + 12)  # IPv4 and IPv6, with TCP and its timestamps


@dataclass(frozen=True, slots=True)
class TcpFrames:
    """The longest IP packet of TCP, and the kernel's longest frame of IPv4 and of IPv6 (`gso_max_size`)."""

    packet_bytes: int
    ipv4_bytes: int
    ipv6_bytes: int


def tcp_frames(mtu_bytes: int, train_bytes: int) -> TcpFrames | None:
    """Return the limits by which a full frame of TCP is one train of at most `train_bytes`.

    None where it is one without limits, and where no limits leave frames of UDP as long as
    `UDP_FRAME_BYTES` whole. The kernel fills a frame with as many packets as fit below the frame's limit,
    less the room for headers.
    """
    fewest = train_bytes // _wire_bytes(mtu_bytes)
    usual = (KERNEL_FRAME_BYTES - KERNEL_TCP_ROOM_BYTES) // (mtu_bytes - _HEADERS[0])
    if not fewest or usual <= fewest:
        return None
    best = max(
        (_frames(packets, mtu_bytes, train_bytes) for packets in range(fewest, usual + 1)),
        key=lambda frames: frames.ipv6_bytes,
    )
    return best if best.ipv6_bytes >= UDP_FRAME_BYTES else None


def _frames(packets: int, mtu_bytes: int, train_bytes: int) -> TcpFrames:
    """Return the limits for frames of so many packets, each as long as a train of them allows."""
    room = (train_bytes // packets - SOFT_DATAGRAM_HEADER_BYTES) // _PADDING * _PADDING
    packet_bytes = min(mtu_bytes, room - ENCAP_LEN)
    ipv4_bytes, ipv6_bytes = (
        min((packets + 1) * (packet_bytes - header) + KERNEL_TCP_ROOM_BYTES - 1, KERNEL_FRAME_BYTES)
        for header in _HEADERS
    )
    return TcpFrames(packet_bytes, ipv4_bytes, ipv6_bytes)


def _wire_bytes(packet_bytes: int) -> int:
    """Return how much of a train the IP packet takes."""
    padded = -(-(packet_bytes + ENCAP_LEN) // _PADDING) * _PADDING
    return padded + SOFT_DATAGRAM_HEADER_BYTES
