# SPDX-License-Identifier: BSD-2-Clause
"""Packets without copies: written into frames of the data path, and read where they arrived.

Run: python docs/examples/frames.py
"""

from __future__ import annotations

import ipaddress
import struct

from ipoibu import Endpoint, EndpointConfig, Gid
from ipoibu.fabric.memory import MemoryPort, MemorySwitch

EXPERIMENT = 253  # RFC 3692: an IP protocol number for experiments
HEADER = struct.Struct(">BBHHHBBH4s4s")
ALICE, BOB = ipaddress.IPv4Interface("10.0.0.1/24"), ipaddress.IPv4Interface("10.0.0.2/24")


def send_words(endpoint: Endpoint, words: list[bytes]) -> None:
    frames = endpoint.reserve(len(words))
    for frame, word in zip(frames, words, strict=True):
        length = HEADER.size + len(word)
        with memoryview(frame) as view:
            HEADER.pack_into(
                view, 0, 0x45, 0, length, 0, 0, 64, EXPERIMENT, 0, ALICE.ip.packed, BOB.ip.packed
            )
            view[HEADER.size : length] = word
        frame.length = length
    endpoint.send_frames(frames)


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
        words = [b"one", b"two", b"three"]
        send_words(alice, words)
        received = 0
        while received < len(words):
            for frame in bob.recv_frames(timeout=10):
                with frame, memoryview(frame) as view:
                    print("in place:", bytes(view[HEADER.size :]).decode())
                received += 1


if __name__ == "__main__":
    main()
