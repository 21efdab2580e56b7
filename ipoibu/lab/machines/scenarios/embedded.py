# SPDX-License-Identifier: BSD-2-Clause
"""Two applications with an embedded endpoint: one sends packets as fast as it can, one receives."""

import os
import time
from ipaddress import ip_interface

from ipoibu import Endpoint, EndpointConfig
from ipoibu.lab.machines.inside.meeting import SHARE, meet, until
from ipoibu.lab.machines.scenarios.verbs_machine import DEVICE, ipv4

SINK, SOURCE = "10.9.0.1", "10.9.0.2"
PATIENCE_S = 20.0
ROOM_S = 0.0002  # between two attempts to reserve frames
SILENCE_S = 1.0  # after the last packet


def stream(mode: str, mtu: str, seconds: str) -> None:
    """Send packets of `mtu` bytes to machine 1, which writes bytes and microseconds to `embedded`."""
    is_sink = os.environ["LAB_INDEX"] == "1"
    with Endpoint(EndpointConfig("embedded", DEVICE, mode=mode, mtu=int(mtu))) as endpoint:
        endpoint.address_added(ip_interface(f"{SINK if is_sink else SOURCE}/24"))
        meet("up", 40)
        if is_sink:
            (SHARE / "embedded").write_text(_receive(endpoint))
        else:
            _connect(endpoint)
            _write(endpoint, float(seconds))
        meet("taken", 60)


def _connect(endpoint: Endpoint) -> None:
    """Wait until the neighbour is reachable and, in connected mode, connected."""
    small = ipv4(SOURCE, SINK, b"hello")

    def is_ready() -> bool:
        endpoint.send([small])
        if endpoint.config.is_connected:
            return any(row["state"] == "live" for row in endpoint.connections())
        return any(row["state"] == "reachable" for row in endpoint.neighbours())

    until(is_ready, "the neighbour", PATIENCE_S)


def _write(endpoint: Endpoint, seconds: float) -> None:
    packet = ipv4(SOURCE, SINK, bytes(endpoint.mtu - 20))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        frames = endpoint.reserve()
        for frame in frames:
            frame.length = len(packet)
            with memoryview(frame) as view:
                view[:] = packet
        assert endpoint.send_frames(frames) == len(frames)
        if not frames:
            time.sleep(ROOM_S)


def _receive(endpoint: Endpoint) -> str:
    """Count the bytes of full packets after the first batch, and the microseconds since it."""
    total_bytes = 0
    began_ns = ended_ns = 0
    while frames := endpoint.recv_frames(timeout=SILENCE_S if began_ns else PATIENCE_S):
        batch_bytes = sum(frame.length for frame in frames if frame.length == endpoint.mtu)
        del frames
        if batch_bytes == 0:
            continue
        ended_ns = time.monotonic_ns()
        if began_ns == 0:
            began_ns = ended_ns
        else:
            total_bytes += batch_bytes
    return f"{total_bytes} {(ended_ns - began_ns) // 1000}\n"
