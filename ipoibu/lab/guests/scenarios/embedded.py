# SPDX-License-Identifier: BSD-2-Clause
"""Two applications with the data path in them: one writes packets as fast as they go, one takes them."""

import os
import time
from ipaddress import ip_interface

from ipoibu import Endpoint, EndpointConfig
from ipoibu.lab.guests.inside.meeting import SHARE, meet, until
from ipoibu.lab.guests.scenarios.verbs_guest import DEVICE, ipv4

SINK, SOURCE = "10.9.0.1", "10.9.0.2"
PATIENCE_S = 20.0
ROOM_S = 0.0002  # from one look for frames to write into to the next
SILENCE_S = 1.0  # after the last packet


def stream(mode: str, mtu: str, seconds: str) -> None:
    """Packets of `mtu` bytes, to guest 1; what came, in bytes and microseconds, is the file `embedded`."""
    is_sink = os.environ["LAB_INDEX"] == "1"
    with Endpoint(EndpointConfig("embedded", DEVICE, mode=mode, mtu=int(mtu))) as endpoint:
        endpoint.address_added(ip_interface(f"{SINK if is_sink else SOURCE}/24"))
        meet("up", 40)
        if is_sink:
            (SHARE / "embedded").write_text(_take(endpoint))
        else:
            _introduce(endpoint)
            _write(endpoint, float(seconds))
        meet("taken", 60)


def _introduce(endpoint: Endpoint) -> None:
    """Until the neighbour is known and, in connected mode, its connection is there."""
    small = ipv4(SOURCE, SINK, b"hello")

    def known() -> bool:
        endpoint.send([small])
        if endpoint.config.mode == "connected":
            return any(row["state"] == "live" for row in endpoint.connections())
        return any(row["state"] == "reachable" for row in endpoint.neighbours())

    until(known, "the neighbour", PATIENCE_S)


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


def _take(endpoint: Endpoint) -> str:
    """Bytes of the packets that fill the MTU, but for the first batch, and microseconds since that."""
    total_bytes = 0
    began_ns = ended_ns = 0
    while frames := endpoint.recv_frames(timeout=SILENCE_S if began_ns else PATIENCE_S):
        came = sum(frame.length for frame in frames if frame.length == endpoint.mtu)
        del frames
        if came == 0:
            continue
        ended_ns = time.monotonic_ns()
        if began_ns == 0:
            began_ns = ended_ns
        else:
            total_bytes += came
    return f"{total_bytes} {(ended_ns - began_ns) // 1000}\n"
