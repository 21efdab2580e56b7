# SPDX-License-Identifier: BSD-2-Clause
"""ARP: RFC 826, with the hardware type and lengths of RFC 4391 §9.1."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import icmp_echo, ipv4
from ipoibu.conform.headers.link import arp
from ipoibu.conform.packet import Given, Layer
from ipoibu.conform.symbols import BROADCAST, ME4, MY_HW, PEER4, PEER_HW, any_flags
from ipoibu.conform.test import MUST, Expect, Send, Silence, Test


def request(**values: Given) -> Layer:
    """A request of the tester for the peer's address."""
    return arp(sender_hwaddr=MY_HW, sender_ip=ME4, **({"target_ip": PEER4} | values))


REPLY: Final = arp(operation=2, target_ip=ME4)
PING: Final = ipv4(source=ME4, destination=PEER4) / icmp_echo(id=7, sequence=1)
PONG: Final = ipv4(source=PEER4, destination=ME4) / icmp_echo(type=0, id=7, sequence=1)

TESTS: Final = (
    Test(
        "ARP-1",
        "R1",
        MUST,
        "RFC 4391 §9.1.1",
        "a broadcast request is answered with hardware type 32 and lengths 20 and 4",
        Send(request(), to=BROADCAST),
        Expect(
            arp(
                operation=2,
                hardware_type=32,
                protocol=0x0800,
                hardware_length=20,
                protocol_length=4,
                sender_ip=PEER4,
                target_ip=ME4,
            ),
            to=MY_HW,
        ),
    ),
    Test(
        "ARP-2",
        "A1",
        MUST,
        "RFC 4391 §9.1.1",
        "the sender of a reply is the queue pair number and GID that the reply comes from",
        Send(request(), to=BROADCAST),
        Expect(arp(operation=2, sender_hwaddr=any_flags(PEER_HW), target_ip=ME4)),
    ),
    Test(
        "ARP-3",
        "R1",
        MUST,
        "RFC 826",
        "a request of another hardware type gets no answer",
        Send(request(hardware_type=1), to=BROADCAST),
        Silence(REPLY),
    ),
    Test(
        "ARP-4",
        "R2",
        MUST,
        "RFC 826",
        "the mapping of a request's sender is used: a ping from there is answered without a question",
        Send(request(), to=BROADCAST),
        Expect(REPLY),
        Send(PING),
        Expect(PONG),
        Silence(arp(operation=1, target_ip=ME4), for_s=0.2),
    ),
)
