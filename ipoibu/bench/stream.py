# SPDX-License-Identifier: BSD-2-Clause
"""UDP in super-frames: `send ADDRESS SECONDS`, and `receive ADDRESS` until a line is on stdin.

Each prints the bytes that it sent or received. iperf3 makes a system call for each datagram, and
would measure only those calls.
"""

from __future__ import annotations

import ipaddress
import select
import socket
import sys
import time
from typing import Final

from ipoibu.host import receive_buffer

PORT: Final = 5202
UDP_SEGMENT: Final = 103  # linux/udp.h
UDP_GRO: Final = 104
SEGMENT_BYTES: Final = 1400
SEGMENTS: Final = 46  # of 1400 bytes fit into one IP packet; Linux allows 64 (UDP_MAX_SEGMENTS)
BUFFER_BYTES: Final = 8 << 20
AFTERGLOW_S: Final = 0.2  # for packets under way when the sender has ended


def udp_socket(address: str) -> socket.socket:
    version = ipaddress.ip_address(address).version
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    return socket.socket(family, socket.SOCK_DGRAM)


def send(address: str, seconds: float) -> int:
    payload = bytes(SEGMENT_BYTES * SEGMENTS)
    sent = 0
    with udp_socket(address) as stream:
        stream.setsockopt(socket.SOL_UDP, UDP_SEGMENT, SEGMENT_BYTES)
        stream.connect((address, PORT))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                sent += stream.send(payload)
            except BlockingIOError:
                continue
            except OSError as error:
                raise SystemExit(f"sending: {error.strerror}") from error
    return sent


def receive(address: str) -> int:
    received = 0
    buffer = bytearray(1 << 17)
    with udp_socket(address) as stream:
        stream.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
        receive_buffer.enlarge(stream, BUFFER_BYTES)
        stream.bind((address, PORT))
        stream.setblocking(False)
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        poll.register(sys.stdin, select.POLLIN)
        end = float("inf")
        while time.monotonic() < end:
            for fd, _ in poll.poll(50):
                if fd != stream.fileno():
                    poll.unregister(fd)
                    end = time.monotonic() + AFTERGLOW_S
            try:
                for _ in range(64):
                    received += stream.recv_into(buffer)
            except BlockingIOError:
                pass
    return received


def main(arguments: list[str]) -> None:
    print(
        send(arguments[1], float(arguments[2])) if arguments[0] == "send" else receive(arguments[1])
    )


if __name__ == "__main__":
    main(sys.argv[1:])
