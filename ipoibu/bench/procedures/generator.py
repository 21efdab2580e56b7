# SPDX-License-Identifier: BSD-2-Clause
"""The traffic generator: `send ADDRESS` sends numbered and stamped UDP datagrams, `receive ADDRESS` counts
them. Each reads one JSON object a line from stdin, and answers with one on stdout, until stdin ends.

Both are Python, one system call for each datagram: the limit of that is measured, too (`control`). The
sender sends what has become due, sleeps, and never catches up on more than BURST_S, so that a sender that
was late makes no burst that the offered rate does not have.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, Final

from ipoibu.bench.stream import BUFFER_BYTES, udp_socket
from ipoibu.host import receive_buffer

PORT: Final = 5202
HEADERS: Final = {4: 28, 6: 48}  # of IP and UDP
HEAD: Final = struct.Struct("!IQQ")  # trial, number, time of sending in nanoseconds
BURST_S: Final = 0.002
NAP_S: Final = 0.0005
CHUNK: Final = 64  # datagrams between two looks at the clock, or at stdin
IP_MTU: Final = 14  # linux/in.h
IPV6_MTU: Final = 24  # linux/in6.h
SO_TIMESTAMPNS: Final = 35  # asm-generic/socket.h
TIMESPEC: Final = struct.Struct("@qq")
ANCILLARY_BYTES: Final = 64
LATE: Final = 1.1  # a trial that takes longer by this factor ends short


def send(
    stream: socket.socket, *, trial: int, payload_bytes: int, frames: int, rate: float
) -> dict[str, float]:
    """Send `frames` datagrams at `rate` a second, or as fast as this program can for 0."""
    payload = bytearray(payload_bytes)
    pack, clock, stamp, out = HEAD.pack_into, time.monotonic, time.time_ns, stream.send
    most = max(1, int(rate * BURST_S)) if rate else CHUNK
    number, refused = 0, 0
    began = start = clock()
    end = start + LATE * frames / rate + NAP_S if rate else float("inf")
    while number < frames and (now := clock()) < end:
        due = min(frames, int((now - start) * rate) + 1) if rate else frames
        if due - number > most:
            if rate:
                start += (due - number - most) / rate
            due = number + most
        while number < due:
            pack(payload, 0, trial, number, stamp())
            try:
                out(payload)
            except OSError:  # a full queue; nobody listens
                refused += 1
            number += 1
        if rate and number < frames:
            time.sleep(NAP_S)
    return {"sent": number - refused, "refused": refused, "took_s": clock() - began}


def sender(address: str) -> None:
    with udp_socket(address) as stream:
        stream.connect((address, PORT))
        is_ipv4 = stream.family == socket.AF_INET
        mtu_option = (socket.IPPROTO_IP, IP_MTU) if is_ipv4 else (socket.IPPROTO_IPV6, IPV6_MTU)
        headers = HEADERS[4 if is_ipv4 else 6]
        _say({"mtu": stream.getsockopt(*mtu_option)})
        for line in sys.stdin:
            order = json.loads(line)
            size = order.pop("size") - headers
            _say(send(stream, payload_bytes=size, **order))


class Receiver:
    """Counts the datagrams of one trial, and keeps the delays of every `every`th one."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._buffer = bytearray(1 << 16)
        self.begin(trial=-1, every=1)

    def begin(self, *, trial: int, every: int) -> None:
        self._trial, self._every = trial, every
        self.received = self._reordered = self._last = 0
        self._tagged: list[tuple[int, int]] = []
        self._overflowed = overflows()

    def drain(self) -> bool:
        """Count what has arrived, up to CHUNK datagrams; return whether there was any."""
        buffer, unpack, take = self._buffer, HEAD.unpack_from, self._stream.recvmsg_into
        any_came = False
        for _ in range(CHUNK):
            try:
                size, ancillary, _, _ = take([buffer], ANCILLARY_BYTES)
            except BlockingIOError:
                break
            any_came = True
            if size < HEAD.size:
                continue
            trial, number, sent_ns = unpack(buffer)
            if trial != self._trial:
                continue
            self.received += 1
            if number < self._last:
                self._reordered += 1
            self._last = number
            if number % self._every == 0 and ancillary:
                seconds, nanoseconds = TIMESPEC.unpack_from(ancillary[0][2])
                self._tagged.append((number, seconds * 10**9 + nanoseconds - sent_ns))
        return any_came

    def result(self) -> dict[str, Any]:
        return {
            "received": self.received,
            "reordered": self._reordered,
            "overflowed": overflows() - self._overflowed,
            "tagged": self._tagged,
        }


def overflows() -> int:
    """Return how many datagrams this network namespace has dropped for full sockets, such as this
    program's."""
    names, numbers = (
        line.split()
        for line in Path("/proc/self/net/snmp").read_text().splitlines()
        if line.startswith("Udp:")
    )
    return int(numbers[names.index("RcvbufErrors")])


def receiver(address: str) -> None:
    with udp_socket(address) as stream:
        receive_buffer.enlarge(stream, BUFFER_BYTES)
        stream.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        stream.bind((address, PORT))
        stream.setblocking(False)
        _say({})
        counter = Receiver(stream)
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        poll.register(0, select.POLLIN)
        settle_s, expected, end = 0.0, 0, float("inf")
        while True:
            wait_ms = None if end == float("inf") else max(0.0, (end - time.monotonic()) * 1000)
            ready = {fd for fd, _ in poll.poll(wait_ms)}
            if stream.fileno() in ready and counter.drain() and end < float("inf"):
                end = time.monotonic() + settle_s
            if 0 in ready:
                text = os.read(0, 1 << 16)
                if not text:
                    return
                order = json.loads(text)
                if "settle_s" in order:
                    settle_s, expected = order["settle_s"], order["expected"]
                    end = time.monotonic() + settle_s
                else:
                    counter.begin(**order)
                    _say({})
            if end < float("inf") and (counter.received >= expected or time.monotonic() >= end):
                _say(counter.result())
                end = float("inf")


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def main(arguments: list[str]) -> None:
    {"send": sender, "receive": receiver}[arguments[0]](arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
