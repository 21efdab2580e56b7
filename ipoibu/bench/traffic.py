# SPDX-License-Identifier: BSD-2-Clause
"""Traffic between two network namespaces, by iperf3, ping and our own programs; parses their output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import ipoibu
from ipoibu.bench import process
from ipoibu.bench.statistic import percentile
from ipoibu.lab import LabError
from ipoibu.lab.namespace import LabNamespace

Sample = dict[str, float]


@dataclass(frozen=True)
class Ends:
    """The namespaces of a sender and of a receiver, which it reaches at `address`.

    The receiver's programs bind `bound`. `pids` are the processes that forward; none if the kernel does.
    """

    sender: LabNamespace
    receiver: LabNamespace
    address: str
    bound: str
    pids: Sequence[int] = ()


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of our modules, from the place where this process has it."""
    root = str(Path(ipoibu.__file__).parent.parent)
    start = f"import runpy, sys; sys.path.insert(0, {root!r}); runpy.run_module({module!r}, None, '__main__')"
    return [sys.executable, "-c", start, *arguments]


UDP_BYTES: Final = 1400
SMALL_BYTES: Final = 64
PING_INTERVAL_S: Final = 0.002  # ping's minimum without root
# From 10 ms on, ping sleeps between two packets; below, it yields its CPU in a loop.
QUIET_INTERVAL_S: Final = 0.05
START_S: Final = 60.0
END_S: Final = 30.0  # longer than its time a program may take
_RTT: Final = re.compile(r"time=([0-9.]+) ms")
_STREAM: Final = python("ipoibu.bench.stream")
_ECHO: Final = python("ipoibu.bench.echo")


def parse_iperf3(text: str) -> tuple[float, float, float]:
    """Return Gb/s and packets/s that arrived, and the percentage lost; TCP has no packets and loss."""
    try:
        end = json.loads(text)["end"]
        total = end.get("sum_received") or end["sum"]
        lost = float(end.get("sum", {}).get("lost_percent", 0.0))
        sent, seconds = end.get("sum", {}).get("packets", 0), float(total["seconds"])
        bits = float(total["bits_per_second"])
        if "sum_received" not in end or total.get("packets") == 0:
            bits *= 1 - lost / 100  # without a report of the server, compute from what was sent
        return bits / 1e9, sent * (1 - lost / 100) / seconds if seconds else 0.0, lost
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"iperf3: {_complaint(text)}") from error


def _complaint(text: str) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"not understood: {text[-200:].strip()!r}"


def parse_ping_us(text: str) -> list[float]:
    """Return the round-trip times in microseconds, one for each answer."""
    return [float(ms) * 1000 for ms in _RTT.findall(text)]


def wait_listening(host: LabNamespace, port: int, kind: str) -> None:
    """Wait until a socket of `host` is bound to `port`; `kind` is t (TCP) or u (UDP), as in ss."""
    deadline = time.monotonic() + START_S
    while not host.run(["ss", f"-Hln{kind}", "sport", "=", f":{port}"]).stdout.strip():
        if time.monotonic() > deadline:
            raise LabError(f"{host.name}: nothing listens on port {port}")
        time.sleep(0.02)


def _iperf3(ends: Ends, seconds: int, arguments: Sequence[str]) -> str:
    server = ends.receiver.popen(
        ["iperf3", "-s", "-1", "-B", ends.bound],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_listening(ends.receiver, 5201, "t")
        command = ["iperf3", "-c", ends.address, "-t", f"{seconds}", "-J", *arguments]
        with _ending("iperf3", ends):
            return ends.sender.run(command, timeout_s=seconds + END_S).stdout
    finally:
        server.kill()
        server.wait()


@contextmanager
def _ending(what: str, ends: Ends) -> Iterator[None]:
    """Have a program that does not end in time fail the measurement, not the bench."""
    try:
        yield
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{what} to {ends.address} did not end") from error


def _costs(pids: Sequence[int], call: Callable[[], Any]) -> tuple[Any, float | None]:
    """Return the result of `call` and the CPU nanoseconds of the processes meanwhile, if any."""
    if not pids:
        return call(), None
    before = process.cpu_s(pids)
    result = call()
    return result, (process.cpu_s(pids) - before) * 1e9


def tcp(ends: Ends, seconds: int, *, streams: int = 1) -> Sample:
    """Measure TCP, with so many streams at once."""
    arguments = ["-P", str(streams)] if streams > 1 else []
    text, used_ns = _costs(ends.pids, lambda: _iperf3(ends, seconds, arguments))
    gbit_s, _, _ = parse_iperf3(text)
    sample = {"tcp_gbit_s": gbit_s}
    if used_ns is not None and gbit_s > 0:
        sample["tcp_ns_per_byte"] = used_ns / (gbit_s * 1e9 / 8 * seconds)
    return sample


def udp(ends: Ends, seconds: int) -> Sample:
    """Measure UDP of 1400 bytes at full speed, with a system call for each datagram."""
    arguments = ["-u", "-b", "0", "-l", str(UDP_BYTES)]
    gbit_s, _, lost = parse_iperf3(_iperf3(ends, seconds, arguments))
    return {"udp_gbit_s": gbit_s, "udp_lost_percent": lost}


def small(ends: Ends, seconds: int) -> Sample:
    """Measure UDP of 64 bytes: packets per second that arrive."""
    arguments = ["-u", "-b", "0", "-l", str(SMALL_BYTES)]
    text, used_ns = _costs(ends.pids, lambda: _iperf3(ends, seconds, arguments))
    _, packets_s, _ = parse_iperf3(text)
    sample = {"packets_s": packets_s}
    if used_ns is not None and packets_s > 0:
        sample["ns_per_packet"] = used_ns / (packets_s * seconds)
    return sample


def super_frames(ends: Ends, seconds: int) -> Sample:
    """Measure UDP in super-frames of 64 KB on both sides (UDP_SEGMENT, UDP_GRO)."""
    from ipoibu.bench.stream import PORT

    server = ends.receiver.popen(
        [*_STREAM, "receive", ends.bound], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    try:
        wait_listening(ends.receiver, PORT, "u")
        send = [*_STREAM, "send", ends.address, f"{seconds}"]
        with _ending("udp stream", ends):
            done, used_ns = _costs(
                ends.pids, lambda: ends.sender.run(send, timeout_s=seconds + END_S)
            )
            if done.returncode != 0:
                raise LabError(f"udp stream: {done.stderr.strip()[-200:]}")
            out, _ = server.communicate(b"\n", timeout=END_S)
    finally:
        if server.poll() is None:
            server.kill()
        server.wait()
    received, sent = int(out), int(done.stdout)
    sample = {
        "super_gbit_s": received * 8 / seconds / 1e9,
        "super_lost_percent": 100 * max(0, sent - received) / max(1, sent),
    }
    if used_ns is not None and received > 0:
        sample["super_ns_per_byte"] = used_ns / received
    return sample


def _ping(ends: Ends, interval_s: float, count: int) -> list[float]:
    command = ["ping", "-c", str(count), "-i", str(interval_s), "-W", "1", ends.address]
    with _ending("ping", ends):
        times_us = parse_ping_us(ends.sender.run(command, timeout_s=2 * END_S).stdout)
    if not times_us:
        raise LabError(f"ping {ends.address}: no answer")
    return times_us


def ping(ends: Ends, seconds: int) -> Sample:
    """Measure the round trip of one packet at a time, with a ping that never sleeps."""
    times_us = _ping(ends, PING_INTERVAL_S, max(20, int(seconds / PING_INTERVAL_S / 4)))
    return {f"ping_p{p}_us": percentile(times_us, p) for p in (50, 90, 99)}


def quiet_ping(ends: Ends, seconds: int) -> Sample:
    """Measure the round trip on a quiet link, with a ping that sleeps between packets."""
    times_us = _ping(ends, QUIET_INTERVAL_S, max(20, int(seconds / QUIET_INTERVAL_S)))
    return {f"quiet_ping_p{p}_us": percentile(times_us, p) for p in (50, 90)}


def request_response(ends: Ends, seconds: int) -> Sample:
    """Measure the round trip of UDP messages between two programs, each sent after the last answer."""
    from ipoibu.bench.echo import PORT

    server = ends.receiver.popen([*_ECHO, "answer", ends.bound])
    try:
        wait_listening(ends.receiver, PORT, "u")
        ask = [*_ECHO, "ask", ends.address, f"{seconds}"]
        with _ending("request and response", ends):
            done = ends.sender.run(ask, timeout_s=seconds + END_S)
    finally:
        server.kill()
        server.wait()
    times_us = [float(line) for line in done.stdout.splitlines()]
    if not times_us:
        raise LabError(
            f"request and response to {ends.address}: no answer {done.stderr[-200:]}".strip()
        )
    return {f"rr_p{p}_us": percentile(times_us, p) for p in (50, 99)}


Measure = Callable[[Ends, int], Sample]


def measures(streams: int = 1, *, few: bool = False) -> tuple[Measure, ...]:
    """Return all measurements, or a few of them, with so many streams of TCP."""
    stream = partial(tcp, streams=streams)
    if few:
        return stream, super_frames, small, ping
    return stream, udp, super_frames, small, request_response, ping, quiet_ping
