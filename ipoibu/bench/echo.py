# SPDX-License-Identifier: BSD-2-Clause
"""One UDP message at a time, answered by a program: `ask ADDRESS SECONDS` prints each round trip in
microseconds, a line each; `answer ADDRESS` sends back what it gets, until it is ended."""

from __future__ import annotations

import itertools
import struct
import sys
import time
from typing import Final

from ipoibu.bench.stream import udp_socket

PORT: Final = 5203
MESSAGE_BYTES: Final = 64
PATIENCE_S: Final = 0.2  # then the message or its answer is lost, and the next one is sent


def ask(address: str, seconds: float) -> list[float]:
    times_us = []
    with udp_socket(address) as way:
        way.connect((address, PORT))
        way.settimeout(PATIENCE_S)
        end = time.perf_counter() + seconds
        numbers = itertools.count()
        while (began := time.perf_counter()) < end:
            message = struct.pack(">Q", next(numbers)).ljust(MESSAGE_BYTES, b"\0")
            try:
                way.send(message)
                while way.recv(MESSAGE_BYTES) != message:
                    pass  # a late answer to an earlier one
            except OSError:
                continue
            times_us.append((time.perf_counter() - began) * 1e6)
    return times_us


def answer(address: str) -> None:
    with udp_socket(address) as way:
        way.bind((address, PORT))
        while True:
            way.sendto(*way.recvfrom(MESSAGE_BYTES))


def main(words: list[str]) -> None:
    if words[0] == "answer":
        answer(words[1])
    else:
        print(*(f"{time_us:.2f}" for time_us in ask(words[1], float(words[2]))), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
