# SPDX-License-Identifier: BSD-2-Clause
"""A guest whose stack is PyTCP, on a TAP.

pytcp_guest.py TAP MAC IPV4/24 IPV6/64 [PEER...]: detect duplicates of both addresses, and print those that
it may use ("holds ..."); ask port 7 of the peers by TCP and UDP, and print a line for each ("tcp4 ok");
answer at port 7 itself, print "serving", and end with the input. A guest that lost an address only waits
for its end.

PyTCP is GPL-3, so it has a virtual environment and a process of its own, which imports nothing of ipoibu.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from pytcp import TcpIpStack
from pytcp.lib import socket, stack
from pytcp.protocols.tcp.session import FsmState

PORT = 7
BODY = bytes((number * 7 + (number >> 8)) & 0xFF for number in range(32768))
LENGTHS = (1, 1400, 5000)
ANSWER_S = 20


def echo_streams(listening: Any) -> None:
    while True:
        accepted, _ = listening.accept()
        threading.Thread(target=echo_stream, args=(accepted,), daemon=True).start()


def echo_stream(accepted: Any) -> None:
    while data := received(accepted):
        accepted.send(data)
    accepted.close()


def received(stream: Any) -> bytes:
    """Return what comes next; PyTCP 2.7 may return nothing although the connection goes on."""
    while not (data := stream.recv()) and stream.state is FsmState.ESTABLISHED:
        pass
    return bytes(data)


def echo_datagrams(bound: Any) -> None:
    while True:
        data, sender = bound.recvfrom()
        bound.sendto(data, sender)


def ask_stream(family: Any, peer: str) -> str:
    asking = socket.socket(family=family, type=socket.SOCK_STREAM)
    asking.connect((peer, PORT))
    asking.send(BODY)
    got = b""
    while len(got) < len(BODY) and (data := received(asking)):
        got += data
    asking.close()
    return "ok" if got == BODY else f"{len(got)} bytes"


def ask_datagrams(family: Any, peer: str) -> str:
    asking = socket.socket(family=family, type=socket.SOCK_DGRAM)
    asking.connect((peer, PORT))
    for length in LENGTHS:
        asking.send(BODY[:length])
        got = asking.recv(timeout=ANSWER_S)
        if got != BODY[:length]:
            return f"{len(got)} of {length} bytes"
    return "ok"


def family_of(address: str) -> tuple[int, Any]:
    return (6, socket.AF_INET6) if ":" in address else (4, socket.AF_INET4)


def ask(peer: str) -> None:
    number, family = family_of(peer)
    for kind, run in (("tcp", ask_stream), ("udp", ask_datagrams)):
        try:
            result = run(family, peer)
        except Exception as problem:
            result = repr(problem)
        print(f"{kind}{number}", result, flush=True)


def serve(own: str) -> None:
    _, family = family_of(own)
    stream = socket.socket(family=family, type=socket.SOCK_STREAM)
    stream.bind((own, PORT))
    stream.listen()
    datagrams = socket.socket(family=family, type=socket.SOCK_DGRAM)
    datagrams.bind((own, PORT))
    for run, bound in ((echo_streams, stream), (echo_datagrams, datagrams)):
        threading.Thread(target=run, args=(bound,), daemon=True).start()


def main(tap: str, mac: str, ipv4: str, ipv6: str, *peers: str) -> None:
    started = TcpIpStack(interface=tap, mac_address=mac, ip4_address=ipv4, ip6_address=ipv6)
    started.start()
    held = {
        *(str(it) for it in stack.packet_handler.ip4_unicast),
        *(str(it) for it in stack.packet_handler.ip6_unicast),
    }
    # It notes a conflict here, and looks for it elsewhere: so it takes the address nevertheless.
    held -= {str(it) for it in stack.arp_probe_unicast_conflict}
    own = [it for it in (ipv4.partition("/")[0], ipv6.partition("/")[0]) if it in held]
    print("holds", *own, flush=True)
    if len(own) == 2:
        for peer in peers:
            ask(peer)
        for address in own:
            serve(address)
    print("serving", flush=True)
    sys.stdin.read()
    os._exit(0)  # its threads end in their own time


if __name__ == "__main__":
    main(*sys.argv[1:])
