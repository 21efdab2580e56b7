# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's sockets, as the peer of a stack in user space.

kernel_peer.py serve: echo TCP and UDP at port 7 of both families; print "serving", and end with the input.
kernel_peer.py ask ADDRESS...: ask port 7 of the addresses, and print a line for each exchange.
"""

from __future__ import annotations

import socket
import sys
import threading

PORT = 7
BODY = bytes((number * 7 + (number >> 8)) & 0xFF for number in range(32768))
LENGTHS = (1, 1400, 5000)  # the last in fragments
ANSWER_S = 20


def echo_streams(listening: socket.socket) -> None:
    while True:
        accepted, _ = listening.accept()
        threading.Thread(target=echo_stream, args=(accepted,), daemon=True).start()


def echo_stream(accepted: socket.socket) -> None:
    with accepted:
        while data := accepted.recv(65536):
            accepted.sendall(data)


def echo_datagrams(bound: socket.socket) -> None:
    while True:
        data, sender = bound.recvfrom(65536)
        bound.sendto(data, sender)


def serve() -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        stream = socket.create_server(("", PORT), family=family)
        threading.Thread(target=echo_streams, args=(stream,), daemon=True).start()
        datagrams = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6:
            datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        datagrams.bind(("", PORT))
        threading.Thread(target=echo_datagrams, args=(datagrams,), daemon=True).start()
    print("serving", flush=True)
    sys.stdin.read()


def ask_stream(address: str) -> str:
    with socket.create_connection((address, PORT), timeout=ANSWER_S) as asking:
        asking.sendall(BODY)
        got = b""
        while len(got) < len(BODY) and (data := asking.recv(65536)):
            got += data
    return "ok" if got == BODY else f"{len(got)} bytes"


def ask_datagrams(address: str) -> str:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.settimeout(ANSWER_S)
        asking.connect((address, PORT))
        for length in LENGTHS:
            asking.send(BODY[:length])
            got = asking.recv(65536)
            if got != BODY[:length]:
                return f"{len(got)} of {length} bytes"
    return "ok"


def ask(*addresses: str) -> None:
    for address in addresses:
        for kind, run in (("tcp", ask_stream), ("udp", ask_datagrams)):
            try:
                result = run(address)
            except OSError as problem:
                result = repr(problem)
            print(f"{kind}{6 if ':' in address else 4}", result, flush=True)


if __name__ == "__main__":
    {"serve": serve, "ask": ask}[sys.argv[1]](*sys.argv[2:])
