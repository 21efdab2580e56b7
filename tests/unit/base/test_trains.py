# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import pytest

from ipoibu.base.limits import SOFT_TRAIN_BYTES, UDP_FRAME_BYTES
from ipoibu.base.trains import TcpFrames, tcp_frames

# What the kernel leaves of a frame for headers (MAX_TCP_HEADER + 1), without and with WLAN and tunnels.
ROOMS = (193, 257, 321)
WIRE_BYTES = 4 + 12 + 8 + 4  # encapsulation, BTH, DETH, ICRC


def packets_of(limit_bytes: int, room_bytes: int, packet_bytes: int, headers_bytes: int) -> int:
    """How many packets the kernel's full frame has."""
    return (limit_bytes - room_bytes) // (packet_bytes - headers_bytes)


@pytest.mark.parametrize("room_bytes", ROOMS)
@pytest.mark.parametrize("mtu_bytes", [2000, 2004, 2044, 3000, 4092])
def test_a_full_frame_of_tcp_is_one_train(mtu_bytes: int, room_bytes: int) -> None:
    frames = tcp_frames(mtu_bytes, SOFT_TRAIN_BYTES)
    assert frames is not None
    on_wire = -(-frames.packet_bytes // 4) * 4 + WIRE_BYTES
    for limit_bytes, ip_bytes in ((frames.ipv4_bytes, 20), (frames.ipv6_bytes, 40)):
        with_timestamps = packets_of(limit_bytes, room_bytes, frames.packet_bytes, ip_bytes + 32)
        without = packets_of(limit_bytes, room_bytes, frames.packet_bytes, ip_bytes + 20)
        assert max(with_timestamps, without) * on_wire <= SOFT_TRAIN_BYTES
        assert (with_timestamps + 1) * on_wire > SOFT_TRAIN_BYTES - mtu_bytes
        assert limit_bytes >= UDP_FRAME_BYTES


def test_the_usual_link_has_frames_of_32_packets() -> None:
    assert tcp_frames(2044, SOFT_TRAIN_BYTES) == TcpFrames(2016, 65004, 64344)


@pytest.mark.parametrize(
    ("mtu_bytes", "train_bytes"),
    [
        (2044, 0),  # no trains
        (65520, SOFT_TRAIN_BYTES),  # one packet is longer than a train
        (8924, SOFT_TRAIN_BYTES),  # a frame is one train by itself
        (1500, SOFT_TRAIN_BYTES),  # frames of UDP would be cut
    ],
)
def test_other_links_stay_as_the_kernel_has_them(mtu_bytes: int, train_bytes: int) -> None:
    assert tcp_frames(mtu_bytes, train_bytes) is None
