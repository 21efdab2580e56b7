# SPDX-License-Identifier: BSD-2-Clause
"""Frames, hardware addresses, groups and the MTU of a link: RFC 4391, and RFC 4755 for the flags."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import echo6, icmp_echo, ipv4, ipv6
from ipoibu.conform.headers.link import arp, encap
from ipoibu.conform.headers.nd import na, ns, source_option, target_option
from ipoibu.conform.link import QueuePair
from ipoibu.conform.packet import Fill, Given, Layer, Packet
from ipoibu.conform.symbols import (
    BROADCAST,
    ME4,
    ME6,
    MY_HW,
    OF_GUID,
    OTHER_HW,
    PEER4,
    PEER6,
    PEER_HW,
    UNIVERSAL_IF_OF_GUID,
    no_flags_but,
    same_prefix,
    solicited,
    with_flags,
)
from ipoibu.conform.test import (
    MUST,
    SHOULD,
    Act,
    Answer,
    Expect,
    Join,
    Send,
    Silence,
    Step,
    Test,
    Wait,
    What,
)

OTHER: Final = QueuePair.OTHER
TYPE4, TYPE_ARP, TYPE_RARP, TYPE6 = 0x0800, 0x0806, 0x8035, 0x86DD
CONNECTED_FLAGS: Final = 0xC0
"""RFC 4755 §3.1: reliable and unreliable connections."""
GROUP_28_BITS: Final = "238.129.7.9"
GROUP_80_BITS: Final = "ff12::1:2:3:4:5"
GROUP_WIDE: Final = "ff0e::7709"


def request(**values: Given) -> Layer:
    """A request of the tester for the peer's address."""
    return arp(**({"sender_hwaddr": MY_HW, "sender_ip": ME4, "target_ip": PEER4} | values))


PING: Final = ipv4(source=ME4, destination=PEER4) / icmp_echo(id=8, sequence=1)
PONG: Final = ipv4(source=PEER4, destination=ME4) / icmp_echo(type=0, id=8, sequence=1)
PING6: Final = ipv6(source=ME6, destination=PEER6) / echo6(id=8, sequence=1)
PONG6: Final = ipv6(source=PEER6, destination=ME6) / echo6(type=129, id=8, sequence=1)
REPLY: Final = arp(operation=2, target_ip=ME4)
QUESTION: Final = arp(operation=1, target_ip=ME4)
SOLICIT: Final = (
    ipv6(source=ME6, destination=solicited(PEER6), hop_limit=255)
    / ns(target=PEER6)
    / source_option(hwaddr=MY_HW)
)
ADVERTISEMENT: Final = na(target=PEER6)


def dropped(id: str, clauses: str, title: str, frame: What, answer: What) -> Test:
    """A frame that has no effect."""
    return Test(id, clauses, MUST, "RFC 4391 §6", title, Send(frame), Silence(answer))


def short(size: int) -> Test:
    """A frame without a whole header. The ping behind it says whether the host lives."""
    frame = Packet((), (b"\x08\x00\x00")[:size])
    return Test(
        f"ENC-{20 + size}",
        "E2",
        MUST,
        "RFC 4391 §6",
        f"the host drops a frame of {size} bytes, and lives",
        Send(frame, times=3),
        Send(PING),
        Expect(PONG),
    )


def whole_mtu(id: str, title: str, more: int) -> Test:
    """A ping of the MTU, or some bytes less, is answered by as large a datagram."""
    return Test(
        id,
        "T1",
        MUST,
        "RFC 4391 §7",
        title,
        Send(PING / Fill(more)),
        Expect(PONG / Fill(more)),
    )


def flagged(flags: int) -> tuple[Step, ...]:
    """The peer hears of our address with flags."""
    return Send(request(sender_hwaddr=with_flags(MY_HW, flags)), to=BROADCAST), Wait(0.2)


def moves(id: str, title: str, **values: Given) -> Test:
    """An announcement of another queue pair moves the entry."""
    announced = arp(sender_hwaddr=OTHER_HW, sender_ip=ME4, target_ip=ME4, **values)
    return Test(
        id,
        "A5",
        SHOULD,
        "RFC 4391 §9.4",
        title,
        Send(PING),
        Expect(PONG),
        Wait(1.5),  # Linux keeps an entry for 1 s
        Send(announced, to=BROADCAST, by=OTHER),
        Wait(0.2),
        Send(PING, by=OTHER),
        Expect(PONG, by=OTHER),
    )


ENCAPSULATION: Final = (
    Test(
        "ENC-1",
        "E1",
        MUST,
        "RFC 4391 §2",
        "a ping over IPv4 by UD is answered by UD",
        Send(PING),
        Expect(PONG),
    ),
    Test(
        "ENC-2",
        "E1",
        MUST,
        "RFC 4391 §2",
        "a ping over IPv6 by UD is answered by UD",
        Send(PING6),
        Expect(PONG6),
    ),
    Test(
        "ENC-3",
        "E2",
        MUST,
        "RFC 4391 §6",
        "the reserved bits in front of an IPv4 packet are 0",
        Send(PING),
        Expect(encap(type=TYPE4, reserved=0) / PONG),
    ),
    Test(
        "ENC-4",
        "E2",
        MUST,
        "RFC 4391 §6",
        "the reserved bits in front of an ARP message are 0",
        Send(request(), to=BROADCAST),
        Expect(encap(type=TYPE_ARP, reserved=0) / REPLY),
    ),
    Test(
        "ENC-5",
        "E2",
        MUST,
        "RFC 4391 §6",
        "the reserved bits in front of an IPv6 packet are 0",
        Send(PING6),
        Expect(encap(type=TYPE6, reserved=0) / PONG6),
    ),
    Test(
        "ENC-6",
        "E2",
        MUST,
        "RFC 4391 §6",
        "the host ignores the reserved bits in front of an IPv4 packet",
        Send(encap(reserved=0xFFFF) / PING),
        Expect(PONG),
    ),
    Test(
        "ENC-7",
        "E2",
        MUST,
        "RFC 4391 §6",
        "the host ignores the reserved bits in front of an ARP message",
        Send(encap(reserved=0x8001) / request(), to=BROADCAST),
        Expect(REPLY),
    ),
    Test(
        "ENC-8",
        "E2",
        MUST,
        "RFC 4391 §6",
        "the host ignores the reserved bits in front of an IPv6 packet",
        Send(encap(reserved=0x0001) / PING6),
        Expect(PONG6),
    ),
    dropped("ENC-9", "E3", "type 0 is not IPv4", encap(type=0) / PING, PONG),
    dropped("ENC-10", "E3", "type 0x0801 is not IPv4", encap(type=0x0801) / PING, PONG),
    dropped("ENC-11", "E3", "type 0xFFFF is not IPv4", encap(type=0xFFFF) / PING, PONG),
    dropped("ENC-12", "E3", "a packet of type IPv6 is not IPv4", encap(type=TYPE6) / PING, PONG),
    dropped("ENC-13", "E3", "a packet of type IPv4 is not IPv6", encap(type=TYPE4) / PING6, PONG6),
    dropped(
        "ENC-14", "E3", "a message of type IPv4 is not ARP", encap(type=TYPE4) / request(), REPLY
    ),
    dropped(
        "ENC-15",
        "E3",
        "a message of type RARP is not ARP",
        encap(type=TYPE_RARP) / request(),
        REPLY,
    ),
    dropped("ENC-16", "E3", "a message of type ARP is not IPv4", encap(type=TYPE_ARP) / PING, PONG),
    Test(
        "ENC-17",
        "E4",
        MUST,
        "RFC 4391 §6",
        "the host accepts IPv6 by unicast, and by multicast, which has a GRH",
        Send(PING6),
        Expect(PONG6),
        Send(SOLICIT, to=solicited(PEER6)),
        Expect(ADVERTISEMENT),
    ),
    Test(
        "ENC-18",
        "E4",
        MUST,
        "RFC 4391 §6",
        "the host accepts IPv4 by unicast, and ARP by multicast, which has a GRH",
        Send(PING),
        Expect(PONG),
        Send(request(), to=BROADCAST),
        Expect(REPLY),
    ),
    Test(
        "ENC-19",
        "E5",
        MUST,
        "RFC 4391 §4",
        "a question of the host comes by multicast, with a GRH to the group's GID",
        Send(PING),
        Expect(QUESTION, to=BROADCAST),
    ),
    *(short(size) for size in range(4)),
    Test(
        "ENC-24",
        "E2",
        MUST,
        "RFC 4391 §6",
        "the host drops a frame that ends with its header, and lives",
        Send(encap(type=TYPE4), times=3),
        Send(PING),
        Expect(PONG),
    ),
)

KEYS: Final = (
    Test(
        "KEY-1",
        "E6",
        MUST,
        "RFC 4391 §9.1.2",
        "a packet with another Q_Key than the link's gets no answer",
        Send(PING, by=QueuePair.WRONG_QKEY),
        Silence(PONG),
    ),
    Test(
        "KEY-2",
        "E6",
        MUST,
        "RFC 4391 §9.1.2",
        "a request to the group with another Q_Key than the link's gets no answer",
        Send(request(), to=BROADCAST, by=QueuePair.WRONG_QKEY),
        Silence(REPLY),
    ),
    Test(
        "KEY-3",
        "E6",
        MUST,
        "RFC 4391 §9.1.2",
        "what the host sends has the link's Q_Key, to a group and to a host",
        Answer(False),
        Send(PING),
        Expect(QUESTION),
        Send(request(), to=BROADCAST),
        Expect(REPLY),
    ),
    Test(
        "KEY-4",
        "E7",
        MUST,
        "RFC 4391 §4.1",
        "a packet in another partition gets no answer",
        Send(PING, by=QueuePair.WRONG_PKEY),
        Silence(PONG),
    ),
    Test(
        "KEY-5",
        "E7",
        MUST,
        "RFC 4391 §4.1",
        "a packet over IPv6 in another partition gets no answer",
        Send(PING6, by=QueuePair.WRONG_PKEY),
        Silence(PONG6),
    ),
)

ADDRESSES: Final = (
    Test(
        "HWA-1",
        "A2",
        MUST,
        "RFC 4755 §3.1",
        "a reply announces no flags but those of connected mode",
        Send(request(), to=BROADCAST),
        Expect(arp(operation=2, sender_hwaddr=no_flags_but(CONNECTED_FLAGS), target_ip=ME4)),
    ),
    Test(
        "HWA-2",
        "A2",
        MUST,
        "RFC 4755 §3.1",
        "an advertisement announces no flags but those of connected mode",
        Send(SOLICIT, to=solicited(PEER6)),
        Expect(ADVERTISEMENT / target_option(hwaddr=no_flags_but(CONNECTED_FLAGS))),
    ),
    Test(
        "HWA-3",
        "A2",
        MUST,
        "RFC 4391 §9.1.1",
        "the host ignores unknown flags in a request, and answers",
        Send(request(sender_hwaddr=with_flags(MY_HW, 0x3F)), to=BROADCAST),
        Expect(REPLY),
    ),
    Test(
        "HWA-4",
        "A2",
        MUST,
        "RFC 4391 §9.1.1",
        "the host ignores unknown flags in a solicitation, and answers",
        Send(
            ipv6(source=ME6, destination=solicited(PEER6), hop_limit=255)
            / ns(target=PEER6)
            / source_option(hwaddr=with_flags(MY_HW, 0x3F)),
            to=solicited(PEER6),
        ),
        Expect(ADVERTISEMENT),
    ),
    Test(
        "HWA-5",
        "A3",
        SHOULD,
        "RFC 4391 §9.1.1",
        "the GID in the hardware address has the subnet prefix of the link",
        Send(request(), to=BROADCAST),
        Expect(arp(operation=2, sender_hwaddr=same_prefix(MY_HW), target_ip=ME4)),
    ),
    Test(
        "HWA-6",
        "A4",
        MUST,
        "RFC 4391 §9.1.1",
        "IPv4 goes to the queue pair of the announced address, wherever the packet came from",
        Answer(False),
        Send(PING),
        Expect(QUESTION),
        Send(request(operation=2, sender_hwaddr=OTHER_HW, target_hwaddr=PEER_HW), by=OTHER),
        Wait(0.2),
        Send(PING),
        Expect(PONG, by=OTHER),
    ),
    Test(
        "HWA-7",
        "A4",
        MUST,
        "RFC 4391 §9.1.1",
        "IPv6 goes to the queue pair of the announced address, wherever the packet came from",
        Answer(False),
        Send(
            ipv6(source=ME6, destination=PEER6, hop_limit=255)
            / ns(target=PEER6)
            / source_option(hwaddr=OTHER_HW),
            by=OTHER,
        ),
        Wait(0.2),
        Send(PING6),
        Expect(PONG6, by=OTHER),
    ),
    moves("HWA-8", "an announcement by a request moves an entry to the new queue pair"),
    moves(
        "HWA-9",
        "an announcement by a reply moves an entry to the new queue pair",
        operation=2,
        target_hwaddr=OTHER_HW,
    ),
    Test(
        "HWA-10",
        "A6",
        MUST,
        "RFC 4391 §9.1.1",
        "an address with unknown flags is that of the same queue pair",
        flagged(0x01),
        Send(PING),
        Expect(PONG),
    ),
    Test(
        "HWA-11",
        "A6",
        MUST,
        "RFC 4391 §9.1.1",
        "an address whose unknown flags change is that of the same queue pair",
        flagged(0),
        Wait(1.5),
        flagged(0x3F),
        Send(PING),
        Expect(PONG),
    ),
    Test(
        "HWA-12",
        "N6",
        MUST,
        "RFC 4755 §2.2",
        "a request that announces connected mode is answered by UD",
        Send(request(sender_hwaddr=with_flags(MY_HW, 0x80)), to=BROADCAST),
        Expect(REPLY),
    ),
)

GROUPS: Final = (
    Test(
        "GID-1",
        "G4",
        MUST,
        "RFC 4391 §4",
        "the host is in the group of 255.255.255.255",
        Send(request(), to="255.255.255.255"),
        Expect(REPLY),
    ),
    Test(
        "GID-2",
        "G2",
        MUST,
        "RFC 4391 §4",
        "the host is in its IPv6 group of solicited nodes, by the signature 0x601B",
        Send(SOLICIT, to=solicited(PEER6)),
        Expect(ADVERTISEMENT),
    ),
    Test(
        "GID-3",
        "G1",
        MUST,
        "RFC 4391 §4",
        "the host asks by the group's GID, with the link's scope, signature and P_Key",
        Answer(False),
        Send(PING6),
        Expect(ns(target=ME6), to=solicited(ME6)),
    ),
    Test(
        "GID-4",
        "G3",
        MUST,
        "RFC 4391 §4",
        "the GID has all 28 bits of an IPv4 group",
        Join(GROUP_28_BITS),
        Act("ping_long4"),
        Expect(ipv4(destination=GROUP_28_BITS), to=GROUP_28_BITS),
    ),
    Test(
        "GID-5",
        "G3",
        MUST,
        "RFC 4391 §4",
        "the GID has the low 80 bits of an IPv6 group",
        Join(GROUP_80_BITS),
        Act("ping_long6"),
        Expect(ipv6(destination=GROUP_80_BITS), to=GROUP_80_BITS),
    ),
    Test(
        "GID-6",
        "G5",
        MUST,
        "RFC 4391 §4",
        "the GID of a group of global scope has the scope of the link",
        Join(GROUP_WIDE),
        Act("ping_wide6"),
        Expect(ipv6(destination=GROUP_WIDE), to=GROUP_WIDE),
    ),
)

SIZES: Final = (
    whole_mtu("MTU-1", "the host takes and sends a packet of exactly the MTU", 0),
    whole_mtu("MTU-2", "the host takes and sends a packet of one byte less than the MTU", -1),
    Test(
        "MTU-3",
        "T1",
        MUST,
        "RFC 4391 §7",
        "the host takes and sends an IPv6 packet of exactly the MTU",
        Send(PING6 / Fill()),
        Expect(PONG6 / Fill()),
    ),
    Test(
        "MTU-4",
        "T3",
        MUST,
        "RFC 8200 §5",
        "the host takes and sends an IPv6 packet of 1280 bytes",
        Send(PING6 / bytes(1232)),
        Expect(PONG6 / bytes(1232)),
    ),
)

IDENTIFIERS: Final = (
    Test(
        "IID-1",
        "I1",
        SHOULD,
        "RFC 4391 §8",
        "the link-local address has the GUID of the port, or an opaque identifier",
        Send(PING6),
        Expect(ipv6(source=OF_GUID, destination=ME6) / echo6(type=129, id=8)),
    ),
    Test(
        "IID-2",
        "I2",
        MUST,
        "RFC 4391 §8",
        "a link-local address with the GUID of the port has the universal bit",
        Send(PING6),
        Expect(ipv6(source=UNIVERSAL_IF_OF_GUID, destination=ME6) / echo6(type=129, id=8)),
    ),
    Test(
        "IID-3",
        "RFC7217-5",
        SHOULD,
        "RFC 7217 §5, RFC 4391 §8",
        "a host that restarts its interface has the same link-local address again",
        Act("restart"),
        Wait(4.0),  # the host makes sure that nobody else has the address
        Send(PING6),
        Expect(ipv6(source=PEER6, destination=ME6) / echo6(type=129, id=8)),
        destructive=True,
    ),
)

TESTS: Final = (*ENCAPSULATION, *KEYS, *ADDRESSES, *GROUPS, *SIZES, *IDENTIFIERS)
