# SPDX-License-Identifier: BSD-2-Clause
"""Traffic between the two hosts of a lab: iperf3 and ping, and what their output says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import ipoibu
from ipoibu.bench import process
from ipoibu.bench.statistic import percentile
from ipoibu.lab import Lab, LabError
from ipoibu.lab.host import Host

Sample = dict[str, float]


def python(module: str, *words: str) -> list[str]:
    """The command that runs one of our modules, from wherever this process has it."""
    root = str(Path(ipoibu.__file__).parent.parent)
    start = f"import runpy, sys; sys.path.insert(0, {root!r}); runpy.run_module({module!r}, None, '__main__')"
    return [sys.executable, "-c", start, *words]


UDP_BYTES: Final = 1400
SMALL_BYTES: Final = 64
PING_INTERVAL_S: Final = 0.002  # without root ping refuses less
# From 10 ms on ping sleeps between two packets; below, it offers its CPU to others in a loop.
QUIET_INTERVAL_S: Final = 0.05
START_S: Final = 10.0
_RTT: Final = re.compile(r"time=([0-9.]+) ms")
_STREAM: Final = python("ipoibu.bench.stream")
_ECHO: Final = python("ipoibu.bench.echo")


def parse_iperf3(text: str) -> tuple[float, float, float]:
    """Gb/s and packets per second that arrived, and percent that did not (0 for TCP, as packets)."""
    try:
        end = json.loads(text)["end"]
        total = end.get("sum_received") or end["sum"]
        lost = float(end.get("sum", {}).get("lost_percent", 0.0))
        sent, seconds = end.get("sum", {}).get("packets", 0), float(total["seconds"])
        bits = float(total["bits_per_second"])
        if "sum_received" not in end or total.get("packets") == 0:
            bits *= 1 - lost / 100  # a server that said nothing of its own: what was sent
        return bits / 1e9, sent * (1 - lost / 100) / seconds if seconds else 0.0, lost
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"iperf3: {_complaint(text)}") from error


def _complaint(text: str) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"not understood: {text[-200:].strip()!r}"


def parse_ping_us(text: str) -> list[float]:
    """Round-trip times in microseconds, one for each answer."""
    return [float(ms) * 1000 for ms in _RTT.findall(text)]


def wait_listening(host: Host, port: int, kind: str) -> None:
    """Until a socket of `host` is bound to `port`; `kind` is ss's: t or u."""
    deadline = time.monotonic() + START_S
    while not host.run(["ss", f"-Hln{kind}", "sport", "=", f":{port}"]).stdout.strip():
        if time.monotonic() > deadline:
            raise LabError(f"{host.name}: nothing listens on port {port}")
        time.sleep(0.02)


def _iperf3(lab: Lab, address: str, seconds: int, words: Sequence[str]) -> str:
    sender, receiver = lab.hosts[:2]
    server = receiver.namespace.popen(
        ["iperf3", "-s", "-1", "-B", address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_listening(receiver, 5201, "t")
        command = ["iperf3", "-c", address, "-t", f"{seconds}", "-J", *words]
        return sender.run(command, timeout_s=seconds + 30).stdout
    except subprocess.TimeoutExpired as error:
        raise LabError(f"iperf3 to {address} did not end") from error
    finally:
        server.kill()
        server.wait()


def _costs(pids: Sequence[int], call: Callable[[], Any]) -> tuple[Any, float | None]:
    """What `call` returns, and the CPU nanoseconds of the processes meanwhile; None: the kernel's."""
    if not pids:
        return call(), None
    before = process.cpu_s(pids)
    result = call()
    return result, (process.cpu_s(pids) - before) * 1e9


def tcp(lab: Lab, address: str, pids: Sequence[int], seconds: int, *, streams: int = 1) -> Sample:
    """So many TCP streams together."""
    words = ["-P", str(streams)] if streams > 1 else []
    text, used_ns = _costs(pids, lambda: _iperf3(lab, address, seconds, words))
    gbit_s, _, _ = parse_iperf3(text)
    sample = {"tcp_gbit_s": gbit_s}
    if used_ns is not None and gbit_s > 0:
        sample["tcp_ns_per_byte"] = used_ns / (gbit_s * 1e9 / 8 * seconds)
    return sample


def udp(lab: Lab, address: str, pids: Sequence[int], seconds: int) -> Sample:
    """UDP of 1400 bytes, as fast as it goes: a system call for each datagram."""
    words = ["-u", "-b", "0", "-l", str(UDP_BYTES)]
    gbit_s, _, lost = parse_iperf3(_iperf3(lab, address, seconds, words))
    return {"udp_gbit_s": gbit_s, "udp_lost_percent": lost}


def small(lab: Lab, address: str, pids: Sequence[int], seconds: int) -> Sample:
    """UDP of 64 bytes: packets per second that arrive."""
    words = ["-u", "-b", "0", "-l", str(SMALL_BYTES)]
    text, used_ns = _costs(pids, lambda: _iperf3(lab, address, seconds, words))
    _, packets_s, _ = parse_iperf3(text)
    sample = {"packets_s": packets_s}
    if used_ns is not None and packets_s > 0:
        sample["ns_per_packet"] = used_ns / (packets_s * seconds)
    return sample


def super_frames(lab: Lab, address: str, pids: Sequence[int], seconds: int) -> Sample:
    """UDP handed to the kernel and taken from it in pieces of 64 KB (UDP_SEGMENT, UDP_GRO)."""
    from ipoibu.bench.stream import PORT

    sender, receiver = lab.hosts[:2]
    server = receiver.namespace.popen(
        [*_STREAM, "receive", address], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    )
    try:
        wait_listening(receiver, PORT, "u")
        send = [*_STREAM, "send", address, f"{seconds}"]
        done, used_ns = _costs(pids, lambda: sender.run(send, timeout_s=seconds + 30))
        if done.returncode != 0:
            raise LabError(f"udp stream: {done.stderr.strip()[-200:]}")
        out, _ = server.communicate(b"\n", timeout=10)
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


def _ping(lab: Lab, address: str, interval_s: float, count: int) -> list[float]:
    command = ["ping", "-c", str(count), "-i", str(interval_s), "-W", "1", address]
    times_us = parse_ping_us(lab.hosts[0].run(command, timeout_s=60).stdout)
    if not times_us:
        raise LabError(f"ping {address}: no answer")
    return times_us


def ping(lab: Lab, address: str, pids: Sequence[int], seconds: int) -> Sample:
    """The round trip of one packet at a time, to a ping that never sleeps."""
    times_us = _ping(lab, address, PING_INTERVAL_S, max(20, int(seconds / PING_INTERVAL_S / 4)))
    return {f"ping_p{p}_us": percentile(times_us, p) for p in (50, 90, 99)}


def quiet_ping(lab: Lab, address: str, pids: Sequence[int], seconds: int) -> Sample:
    """The same on a link where nothing else happens, and ping sleeps like everybody."""
    times_us = _ping(lab, address, QUIET_INTERVAL_S, max(20, int(seconds / QUIET_INTERVAL_S)))
    return {f"quiet_ping_p{p}_us": percentile(times_us, p) for p in (50, 90)}


def request_response(lab: Lab, address: str, pids: Sequence[int], seconds: int) -> Sample:
    """The round trip of one UDP message at a time between two programs, the next one at once."""
    from ipoibu.bench.echo import PORT

    sender, receiver = lab.hosts[:2]
    server = receiver.namespace.popen([*_ECHO, "answer", address])
    try:
        wait_listening(receiver, PORT, "u")
        done = sender.run([*_ECHO, "ask", address, f"{seconds}"], timeout_s=seconds + 30)
    finally:
        server.kill()
        server.wait()
    times_us = [float(line) for line in done.stdout.splitlines()]
    if not times_us:
        raise LabError(f"request and response to {address}: no answer {done.stderr[-200:]}".strip())
    return {f"rr_p{p}_us": percentile(times_us, p) for p in (50, 99)}


Measure = Callable[[Lab, str, Sequence[int], int], Sample]


def measures(streams: int = 1) -> tuple[Measure, ...]:
    """All that is measured, with so many streams of TCP."""
    stream = partial(tcp, streams=streams)
    return stream, udp, super_frames, small, request_response, ping, quiet_ping
