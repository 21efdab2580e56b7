# SPDX-License-Identifier: BSD-2-Clause
"""UDP messages, one at a time: `answer ADDRESS` sends each message back, until a signal ends it.
`ask ADDRESS SECONDS` sends messages and prints each round trip in microseconds on its own line."""

from __future__ import annotations

import itertools
import struct
import sys
import time
from typing import Final

from ipoibu.bench.stream import udp_socket

PORT: Final = 5203
MESSAGE_BYTES: Final = 64
PATIENCE_S: Final = 0.2  # then the message counts as lost, and the next one goes out
FIRST_S: Final = 20.0  # more, until a message has come back: a busy machine may be late


def ask(address: str, seconds: float) -> list[float]:
    times_us: list[float] = []
    with udp_socket(address) as messages:
        messages.connect((address, PORT))
        messages.settimeout(PATIENCE_S)
        end = time.perf_counter() + seconds
        numbers = itertools.count()
        while (began := time.perf_counter()) < end or (not times_us and began < end + FIRST_S):
            message = struct.pack(">Q", next(numbers)).ljust(MESSAGE_BYTES, b"\0")
            try:
                messages.send(message)
                while messages.recv(MESSAGE_BYTES) != message:
                    pass  # a late answer to an earlier message
            except OSError:
                continue
            times_us.append((time.perf_counter() - began) * 1e6)
    return times_us


def answer(address: str) -> None:
    with udp_socket(address) as messages:
        messages.bind((address, PORT))
        while True:
            messages.sendto(*messages.recvfrom(MESSAGE_BYTES))


def main(arguments: list[str]) -> None:
    if arguments[0] == "answer":
        answer(arguments[1])
    else:
        print(*(f"{time_us:.2f}" for time_us in ask(arguments[1], float(arguments[2]))), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
