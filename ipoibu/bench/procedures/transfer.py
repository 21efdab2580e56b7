# SPDX-License-Identifier: BSD-2-Clause
"""A TCP transfer and what the kernel says about it: `receive ADDRESS STREAMS`, and `send ADDRESS SECONDS
STREAMS`, which prints a JSON object. Each takes buffers of 256 KiB, which costs a thousandth of what the
path costs.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final

PORT: Final = 5201
BUFFER_BYTES: Final = 1 << 18
SAMPLE_S: Final = 0.01
CONNECT_S: Final = 20.0
# Places in struct tcp_info of linux/tcp.h
INFO_BYTES: Final = 216
_U32: Final = struct.Struct("=I")
_U64: Final = struct.Struct("=Q")
MSS_AT: Final = 16
PMTU_AT: Final = 60
RTT_AT: Final = 68
SENT_AT: Final = 200
RETRANSMITTED_AT: Final = 208


@dataclass(frozen=True, slots=True)
class Info:
    """What a TCP socket knows; `sent` has the bytes of retransmissions, too."""

    mss: int
    pmtu: int
    rtt_us: int
    sent: int
    retransmitted: int


def parse_info(raw: bytes) -> Info:
    """Parse struct tcp_info."""
    small = (_U32.unpack_from(raw, at)[0] for at in (MSS_AT, PMTU_AT, RTT_AT))
    large = (_U64.unpack_from(raw, at)[0] for at in (SENT_AT, RETRANSMITTED_AT))
    return Info(*small, *large)


def info(stream: socket.socket) -> Info:
    return parse_info(stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES))


@dataclass(frozen=True, slots=True)
class Sent:
    """One stream: its bytes, the seconds until the receiver had them all, and its round trips."""

    bytes: int
    seconds: float
    rtts_us: list[int]
    info: Info


def send(stream: socket.socket, seconds: float) -> Sent:
    """Send for so long, then wait until the receiver has read everything."""
    payload = bytes(BUFFER_BYTES)
    total, rtts_us = 0, []
    began = time.monotonic()
    next_sample = began
    while (now := time.monotonic()) < began + seconds:
        total += stream.send(payload)
        if now >= next_sample:
            rtts_us.append(info(stream).rtt_us)
            next_sample = now + SAMPLE_S
    stream.shutdown(socket.SHUT_WR)
    stream.recv(1)  # the receiver's word that it has read the end
    return Sent(total, time.monotonic() - began, rtts_us, info(stream))


def sender(address: str, seconds: float, streams: int) -> None:
    results: list[Sent] = []
    sockets = [socket.create_connection((address, PORT), CONNECT_S) for _ in range(streams)]
    for stream in sockets:
        stream.settimeout(None)
    failures: list[str] = []

    def run(stream: socket.socket) -> None:
        try:
            results.append(send(stream, seconds))
        except OSError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=run, args=(stream,)) for stream in sockets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rtts_us = [rtt for result in results for rtt in result.rtts_us]
    if failures:
        raise SystemExit(f"a stream has failed: {failures[0]}")
    answer = {
        "bytes": sum(it.bytes for it in results),
        "seconds": max(it.seconds for it in results),
        "mean_rtt_us": sum(rtts_us) / len(rtts_us),
        "mss": results[0].info.mss,
        "pmtu": results[0].info.pmtu,
        "sent": sum(it.info.sent for it in results),
        "retransmitted": sum(it.info.retransmitted for it in results),
    }
    print(json.dumps(answer))


def receiver(address: str, streams: int) -> None:
    def take(stream: socket.socket) -> None:
        buffer = bytearray(BUFFER_BYTES)
        with stream:
            while stream.recv_into(buffer):
                pass
            stream.send(b".")
            stream.shutdown(socket.SHUT_WR)

    version = ipaddress.ip_address(address).version
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with socket.create_server((address, PORT), family=family) as server:
        print("ready", flush=True)
        threads = []
        for _ in range(streams):
            stream, _ = server.accept()
            threads.append(threading.Thread(target=take, args=(stream,)))
            threads[-1].start()
        for thread in threads:
            thread.join()


def main(arguments: list[str]) -> None:
    if arguments[0] == "send":
        sender(arguments[1], float(arguments[2]), int(arguments[3]))
    else:
        receiver(arguments[1], int(arguments[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
