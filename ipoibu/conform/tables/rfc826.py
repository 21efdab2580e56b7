# SPDX-License-Identifier: BSD-2-Clause
"""ARP: RFC 826 and RFC 1122 §2.3.2, with the hardware type and lengths of RFC 4391 §9.1."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import icmp_echo, ipv4
from ipoibu.conform.headers.link import arp, encap
from ipoibu.conform.link import QueuePair
from ipoibu.conform.packet import Cut, Given, Layer, Packet
from ipoibu.conform.symbols import (
    BROADCAST,
    FREE4,
    ME4,
    MY_HW,
    OTHER_HW,
    PEER4,
    PEER_HW,
    any_flags,
)
from ipoibu.conform.test import MUST, SHOULD, Answer, Expect, Send, Silence, Step, Test, Wait

OTHER: Final = QueuePair.OTHER
LOCKED_S: Final = 1.5
"""Longer than hosts keep an entry as it is although they hear otherwise (Linux: 1 s)."""


def request(**values: Given) -> Layer:
    """A request of the tester for the peer's address."""
    return arp(**({"sender_hwaddr": MY_HW, "sender_ip": ME4, "target_ip": PEER4} | values))


def reply(**values: Given) -> Layer:
    """The tester's reply, which resolves its address."""
    own: dict[str, Given] = {"sender_hwaddr": MY_HW, "sender_ip": ME4}
    return arp(operation=2, **(own | {"target_hwaddr": PEER_HW, "target_ip": PEER4} | values))


def ping(sequence: int = 1) -> Packet:
    return ipv4(source=ME4, destination=PEER4) / icmp_echo(id=7, sequence=sequence)


def pong(sequence: int = 1) -> Packet:
    return ipv4(source=PEER4, destination=ME4) / icmp_echo(type=0, id=7, sequence=sequence)


REPLY: Final = arp(operation=2, target_ip=ME4)
QUESTION: Final = arp(operation=1, target_ip=ME4)
KNOWN: Final[tuple[Step, ...]] = (Send(request(), to=BROADCAST), Expect(REPLY), Wait(LOCKED_S))
"""The peer has an entry for us, and may change it again."""
MOVED: Final[tuple[Step, ...]] = (Send(ping(), by=OTHER), Expect(pong(), by=OTHER))
"""The peer's entry for us has the other queue pair."""
ASKED: Final[tuple[Step, ...]] = (Answer(False), Send(ping()), Expect(QUESTION))
"""The peer has asked for our hardware address."""


def ignored(id: str, title: str, clauses: str = "R1", **values: Given) -> Test:
    """A request with an unusual field gets no answer."""
    return Test(
        id,
        clauses,
        MUST,
        "RFC 826",
        title,
        Send(request(**values), to=BROADCAST),
        Silence(REPLY),
    )


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
    ignored("ARP-3", "a request of hardware type 1 (Ethernet) gets no answer", hardware_type=1),
    Test(
        "ARP-4",
        "R2",
        MUST,
        "RFC 826",
        "the mapping of a request's sender is used: a ping from there is answered without a question",
        Send(request(), to=BROADCAST),
        Expect(REPLY),
        Send(ping()),
        Expect(pong()),
        Silence(QUESTION, for_s=0.2),
    ),
    ignored("ARP-5", "a request of another protocol than IPv4 gets no answer", protocol=0x86DD),
    ignored("ARP-6", "a request of hardware length 6 gets no answer", hardware_length=6),
    ignored("ARP-7", "a request of protocol length 16 gets no answer", protocol_length=16),
    ignored("ARP-8", "a request of hardware type 0 gets no answer", hardware_type=0),
    ignored("ARP-9", "a request of hardware length 0 gets no answer", hardware_length=0),
    ignored("ARP-10", "operation 0 gets no answer", "RFC826-request", operation=0),
    ignored("ARP-11", "a reply gets no answer", "RFC826-request", operation=2),
    ignored("ARP-12", "operation 3 gets no answer", "RFC826-request", operation=3),
    ignored("ARP-13", "operation 65535 gets no answer", "RFC826-request", operation=65535),
    ignored(
        "ARP-14",
        "a request for an address that the host does not have gets no answer",
        "RFC826-target",
        target_ip=FREE4,
    ),
    ignored(
        "ARP-15",
        "a request for the group of all hosts gets no answer",
        "RFC826-target",
        target_ip="224.0.0.1",
    ),
    ignored(
        "ARP-16",
        "a request for 255.255.255.255 gets no answer",
        "RFC826-target",
        target_ip="255.255.255.255",
    ),
    ignored(
        "ARP-17",
        "a request for 127.0.0.1 gets no answer",
        "RFC826-target",
        target_ip="127.0.0.1",
    ),
    Test(
        "ARP-18",
        "R1",
        MUST,
        "RFC 826",
        "a request that comes by unicast is answered, too",
        Send(request()),
        Expect(REPLY),
    ),
    Test(
        "ARP-19",
        "R1",
        MUST,
        "RFC 4391 §9.1.1",
        "a message that ends within its addresses gets no answer",
        Send(encap(type=0x0806) / Cut(Packet((request(),)), end=40, without=0), to=BROADCAST),
        Silence(REPLY),
    ),
    Test(
        "ARP-20",
        "R1",
        MUST,
        "RFC 826",
        "a message that ends within its first fields gets no answer",
        Send(encap(type=0x0806) / Cut(Packet((request(),)), end=7, without=0), to=BROADCAST),
        Silence(REPLY),
    ),
    Test(
        "ARP-21",
        "RFC826-swap",
        MUST,
        "RFC 826",
        "a reply has the asker's addresses as its target",
        Send(request(), to=BROADCAST),
        Expect(arp(operation=2, target_hwaddr=any_flags(MY_HW), target_ip=ME4)),
    ),
    Test(
        "ARP-22",
        "R3",
        MUST,
        "RFC 826",
        "the target's hardware address in a request may be anything: all ones",
        Send(request(target_hwaddr=b"\xff" * 20), to=BROADCAST),
        Expect(REPLY),
    ),
    Test(
        "ARP-23",
        "R3",
        MUST,
        "RFC 826",
        "the target's hardware address in a request may be anything: the broadcast address",
        Send(request(target_hwaddr=BROADCAST), to=BROADCAST),
        Expect(REPLY),
    ),
    Test(
        "ARP-24",
        "R3",
        MUST,
        "RFC 826",
        "the target's hardware address in a request may be anything: the asker's",
        Send(request(target_hwaddr=MY_HW), to=BROADCAST),
        Expect(REPLY),
    ),
    Test(
        "ARP-25",
        "R1",
        MUST,
        "RFC 4391 §9.1.1",
        "a question of the host has hardware type 32, lengths 20 and 4, and its own addresses",
        Send(ping()),
        Expect(
            arp(
                operation=1,
                hardware_type=32,
                protocol=0x0800,
                hardware_length=20,
                protocol_length=4,
                sender_ip=PEER4,
                target_ip=ME4,
            )
        ),
    ),
    Test(
        "ARP-26",
        "A1",
        MUST,
        "RFC 4391 §9.1.1",
        "the sender of a question is the queue pair number and GID that the question comes from",
        Send(ping()),
        Expect(arp(operation=1, sender_hwaddr=any_flags(PEER_HW), target_ip=ME4)),
    ),
    Test(
        "ARP-27",
        "R2",
        MUST,
        "RFC 826",
        "a reply resolves the address that the host asked for",
        ASKED,
        Send(reply()),
        Send(ping(2)),
        Expect(pong(2)),
    ),
    Test(
        "ARP-28",
        "R2",
        MUST,
        "RFC 826",
        "a request for another host makes no entry: the host asks before it sends",
        Send(request(target_ip=FREE4), to=BROADCAST),
        Wait(0.2),
        Send(ping()),
        Expect(QUESTION),
    ),
    Test(
        "ARP-29",
        "R2",
        MUST,
        "RFC 826",
        "a request for another host updates the sender's entry, though it is not for this host",
        KNOWN,
        Send(request(sender_hwaddr=OTHER_HW, target_ip=FREE4), to=BROADCAST, by=OTHER),
        Wait(0.2),
        MOVED,
    ),
    Test(
        "ARP-30",
        "R2",
        MUST,
        "RFC 826",
        "a request to this host updates the sender's entry",
        KNOWN,
        Send(request(sender_hwaddr=OTHER_HW), to=BROADCAST, by=OTHER),
        Wait(0.2),
        MOVED,
    ),
    Test(
        "ARP-31",
        "RFC1122-2.3.2.1",
        MUST,
        "RFC 1122 §2.3.2.1",
        "the host repeats a question about the same address once in a second at most",
        Answer(False),
        Send(ping(), times=5),
        Expect(QUESTION, within_s=4.0, count=2, apart_s=(0.9, 4.0)),
    ),
    Test(
        "ARP-32",
        "RFC1122-2.3.2.2",
        SHOULD,
        "RFC 1122 §2.3.2.2",
        "the host saves the latest packet while it asks for the address, and sends it then",
        ASKED,
        Send(ping(2)),
        Wait(0.1),
        Send(reply()),
        Expect(pong(2)),
    ),
    Test(
        "ARP-33",
        "RFC1812-3.3.2",
        SHOULD,
        "RFC 1812 §3.3.2",
        "a reply whose sender has the address of a group is not believed",
        ASKED,
        Send(reply(sender_hwaddr=BROADCAST)),
        Wait(0.2),
        Send(ping(2)),
        Silence(pong(2), to=BROADCAST),
    ),
    Test(
        "ARP-34",
        "R2",
        MUST,
        "RFC 826",
        "the addresses in a reply count, and not the queue pair that sent it",
        ASKED,
        Send(reply(), by=OTHER),
        Wait(0.2),
        Send(ping(2)),
        Expect(pong(2)),
    ),
)
