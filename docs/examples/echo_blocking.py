# SPDX-License-Identifier: BSD-2-Clause
"""Two endpoints in one process, no device and no privilege: a UDP-like echo over the memory fabric.

Run: python docs/examples/echo_blocking.py
"""

from __future__ import annotations

import ipaddress
import struct
import threading

from ipoibu import Endpoint, EndpointConfig, Gid
from ipoibu.fabric.memory import MemoryPort, MemorySwitch

EXPERIMENT = 253  # RFC 3692: an IP protocol number for experiments
ALICE, BOB = ipaddress.IPv4Interface("10.0.0.1/24"), ipaddress.IPv4Interface("10.0.0.2/24")


def packet(source: ipaddress.IPv4Address, target: ipaddress.IPv4Address, data: bytes) -> bytes:
    """An IPv4 packet; the receiving application does not look at the header checksum."""
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(data), 0, 0, 64, EXPERIMENT, 0)
    return head + source.packed + target.packed + data


def echo(endpoint: Endpoint, count: int) -> None:
    """Send `count` packets back to where they came from."""
    while count > 0:
        received = endpoint.recv(timeout=10)
        if not received:
            raise TimeoutError("nothing came")
        endpoint.send(p[:12] + p[16:20] + p[12:16] + p[20:] for p in received)
        count -= len(received)


def main() -> None:
    switch = MemorySwitch()
    alice = Endpoint(
        EndpointConfig("alice", "memory"), port=MemoryPort(switch, Gid.parse("fe80::1"))
    )
    bob = Endpoint(EndpointConfig("bob", "memory"), port=MemoryPort(switch, Gid.parse("fe80::2")))
    with alice, bob:
        alice.address_added(ALICE)
        bob.address_added(BOB)
        for host in (alice, bob):
            host.wait_up(timeout=30)
        server = threading.Thread(target=echo, args=(bob, 3))
        server.start()
        for word in (b"one", b"two", b"three"):
            alice.send([packet(ALICE.ip, BOB.ip, word)])
            (answer,) = alice.recv(timeout=10)
            print(answer[20:].decode(), "came back from", ipaddress.ip_address(answer[12:16]))
        server.join()
        (neighbour,) = alice.neighbours()
        print(neighbour["ip"], "has", len(neighbour["hwaddr"].split(":")), "octets of address")


if __name__ == "__main__":
    main()
