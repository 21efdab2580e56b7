# SPDX-License-Identifier: BSD-2-Clause
"""TCP throughput as RFC 6349 measures it: path MTU, base round trip, bandwidth and their product first, then
the transfer time ratio, the efficiency and the buffer delay.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Final

from ipoibu.bench.procedures.generator import IP_MTU, PORT
from ipoibu.bench.procedures.times import Times
from ipoibu.bench.stream import SEGMENT_BYTES
from ipoibu.bench.traffic import END_S, START_S, Ends, parse_ping_us, python, super_frames
from ipoibu.lab import LabError

MTU_LEAST: Final = 576  # every IPv4 host takes that: RFC 1122 §3.3.2
ECHO_HEADERS: Final = 28  # of IPv4 and ICMP; UDP's are as long
PINGS: Final = 200
PING_INTERVAL_S: Final = 0.002
_TRANSFER: Final = python("ipoibu.bench.procedures.transfer")

Sample = dict[str, float]


def path_mtu(passes: Callable[[int], bool], most: int) -> int:
    """Return the largest packet that reaches the other host unfragmented, by search; RFC 6349 §3.1.

    `passes` sends a packet of so many bytes, not to be fragmented; the own interface takes `most`. `LabError`
    if the smallest does not pass.
    """
    if passes(most):
        return most
    low, high = MTU_LEAST, most - 1
    if high < low or not passes(low):
        raise LabError(f"no packet of {min(low, most)} bytes passes")
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if passes(middle) else (low, middle - 1)
    return low


def ideal_gbit_s(bandwidth_gbit_s: float, mss: int, mtu: int) -> float:
    """Return what TCP can carry in packets of such an MTU; the bandwidth counts whole packets: §4.1.1."""
    return bandwidth_gbit_s * mss / mtu


def metrics(
    *, bandwidth_gbit_s: float, base_rtt_us: float, transfer: Mapping[str, float]
) -> Sample:
    """Return the three metrics of §4.2, and what they are made of."""
    carried = transfer["bytes"] * 8
    ideal = ideal_gbit_s(bandwidth_gbit_s, int(transfer["mss"]), int(transfer["pmtu"]))
    ideal_s = carried / (ideal * 1e9)
    sent, again = transfer["sent"], transfer["retransmitted"]
    return {
        "bandwidth_gbit_s": bandwidth_gbit_s,
        "base_rtt_us": base_rtt_us,
        "bdp_bytes": bandwidth_gbit_s * 1e9 / 8 * base_rtt_us / 1e6,
        "tcp_gbit_s": carried / transfer["seconds"] / 1e9,
        "ideal_gbit_s": ideal,
        "transfer_time_ratio": transfer["seconds"] / ideal_s,
        "tcp_efficiency_percent": 100 * (sent - again) / sent,
        "rtt_during_us": transfer["mean_rtt_us"],
        "buffer_delay_percent": 100 * (transfer["mean_rtt_us"] - base_rtt_us) / base_rtt_us,
    }


def measure(ends: Ends, times: Times, streams: int) -> tuple[Sample, dict[str, Any]]:
    """Run the procedure; return the figures and what is behind them."""
    mtu = path_mtu(lambda size: _echo_passes(ends, size), _own_mtu(ends))
    rtts_us = _pings_us(ends)
    seconds = max(1, round(times.transfer_s))
    over = super_frames(ends, seconds)
    segment_bytes = SEGMENT_BYTES + ECHO_HEADERS
    bandwidth = over["super_gbit_s"] * segment_bytes / SEGMENT_BYTES
    if bandwidth <= 0:
        raise LabError("no UDP datagram has arrived")
    transferred = transfer(ends, times.transfer_s, streams)
    sample = metrics(bandwidth_gbit_s=bandwidth, base_rtt_us=min(rtts_us), transfer=transferred)
    details = {"transfer": transferred, "udp_lost_percent": over["super_lost_percent"]}
    return {"path_mtu": float(mtu)} | sample, details


def _own_mtu(ends: Ends) -> int:
    """Return the MTU that the sender's kernel knows for this destination."""
    with ends.sender.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((ends.address, PORT))
        return probe.getsockopt(socket.IPPROTO_IP, IP_MTU)


def _echo_passes(ends: Ends, size: int) -> bool:
    command = ["ping", "-c1", "-W1", "-Mdo", f"-s{size - ECHO_HEADERS}", ends.address]
    return ends.sender.run(command).returncode == 0


def _pings_us(ends: Ends) -> list[float]:
    command = ["ping", "-c", str(PINGS), "-i", str(PING_INTERVAL_S), "-W1", ends.address]
    times_us = parse_ping_us(ends.sender.run(command).stdout)
    if not times_us:
        raise LabError(f"ping {ends.address}: no answer")
    return times_us


def transfer(ends: Ends, seconds: float, streams: int) -> dict[str, float]:
    """Transfer for so long over so many connections at once."""
    receive = [*_TRANSFER, "receive", ends.bound, str(streams)]
    server = ends.receiver.popen(receive, stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        if server.stdout.readline() != b"ready\n":
            raise LabError("the TCP receiver did not start")
        command = [*_TRANSFER, "send", ends.address, f"{seconds}", str(streams)]
        done = ends.sender.run(command, timeout_s=seconds + START_S + END_S)
        if done.returncode != 0:
            raise LabError(f"TCP transfer: {done.stderr.strip()[-200:]}")
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer
    except subprocess.TimeoutExpired as error:
        raise LabError(f"the TCP transfer to {ends.address} did not end") from error
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
