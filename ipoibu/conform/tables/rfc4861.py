# SPDX-License-Identifier: BSD-2-Clause
"""Neighbour discovery's messages: RFC 4861 §4, §7.1, §7.2, with the link-layer options of RFC 4391 §9.3.

Ids that begin with ND-2 have the number of TAHI's procedure in them; the letters follow the order here.
The other tables of RFC 4861 begin with the steps that stand here.
"""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import echo6, ipv6
from ipoibu.conform.headers.nd import (
    mtu_option,
    na,
    ns,
    option,
    rs,
    short_na,
    short_ns,
    source_option,
    tail,
    target_option,
)
from ipoibu.conform.link import QueuePair
from ipoibu.conform.packet import Given, Packet, other_than
from ipoibu.conform.symbols import (
    ALL_NODES,
    FREE6,
    ME6,
    ME6_GLOBAL,
    MY_HW,
    OTHER_HW,
    PEER6,
    PEER6_GLOBAL,
    PEER_HW,
    any_flags,
    bits_of,
    solicited,
)
from ipoibu.conform.test import MUST, SHOULD, Answer, Expect, Send, Silence, Step, Test, Wait

OTHER: Final = QueuePair.OTHER
SOON: Final = Wait(0.05)  # until the peer has taken a message that it does not answer
PEER_GROUP: Final = solicited(PEER6)


def ping(number: int, source: Given = ME6, to: Given = PEER6) -> Packet:
    return ipv6(source=source, destination=to) / echo6(id=7, sequence=number)


def pong(number: int, to: Given = ME6) -> Packet:
    return ipv6(destination=to) / echo6(type=129, id=7, sequence=number)


def ask(
    to: Given = PEER6,
    hwaddr: Given | None = MY_HW,
    source: Given = ME6,
    hop_limit: int = 255,
    **values: Given,
) -> Packet:
    """A solicitation of the tester for the peer's address."""
    head = ipv6(source=source, destination=to, hop_limit=hop_limit)
    packet = head / ns(**({"target": PEER6} | values))
    return packet if hwaddr is None else packet / source_option(hwaddr=hwaddr)


def tell(
    solicited: int,
    override: int,
    hwaddr: Given | None = MY_HW,
    *,
    to: Given = PEER6,
    source: Given = ME6,
    hop_limit: int = 255,
    **values: Given,
) -> Packet:
    """An advertisement of the tester for its address."""
    flags: dict[str, Given] = {"solicited": solicited, "override": override, "target": source}
    packet = ipv6(source=source, destination=to, hop_limit=hop_limit) / na(**(flags | values))
    return packet if hwaddr is None else packet / target_option(hwaddr=hwaddr)


QUESTION: Final = ns(target=ME6)  # of the peer, to a group or to us alone
ANSWER: Final = na(target=PEER6)
INCOMPLETE: Final[tuple[Step, ...]] = (Answer(False), Send(ping(1)), Expect(QUESTION))
REACHABLE: Final[tuple[Step, ...]] = (Send(ping(1)), Expect(pong(1)), Answer(False))
DELAY: Final = (*INCOMPLETE, Send(tell(0, 1)), Expect(pong(1)))  # in use, and not confirmed
PROBE: Final = (*DELAY, Expect(QUESTION, within_s=6.5))
NOT_RESOLVED: Final = Silence(pong(1))

INVALID: Final = "RFC 4861 §7.1.1, TAHI 2.1.7"
INVALID_ANSWER: Final = "RFC 4861 §7.1.2, TAHI 2.1.15"

TESTS: Final = (
    # N1: the link-layer option
    Test(
        "ND-1",
        "N1",
        MUST,
        "RFC 4391 §9.3",
        "the two bytes in front of an address that the host advertises are zero",
        Send(ask(PEER_GROUP), to=PEER_GROUP),
        Silence(na() / target_option(pad=other_than(0))),
        Expect(ANSWER),
    ),
    Test(
        "ND-2",
        "N1",
        MUST,
        "RFC 4391 §9.3",
        "the host takes no address from a link-layer option of length 4",
        REACHABLE,
        Send(ask(hwaddr=None) / source_option(length=4, hwaddr=OTHER_HW) / bytes(8), by=OTHER),
        SOON,
        Send(ping(2)),
        Expect(pong(2)),
    ),
    Test(
        "ND-3",
        "N1",
        MUST,
        "RFC 4391 §9.3",
        "the host takes no address from a link-layer option of Ethernet's length",
        REACHABLE,
        Send(ask(hwaddr=None) / option(type=1, length=1) / bytes(range(2, 8)), by=OTHER),
        SOON,
        Send(ping(2)),
        Expect(pong(2)),
    ),
    # N3: solicitations
    Test(
        "ND-2.1.5A",
        "N3",
        MUST,
        "RFC 4861 §7.2.2, TAHI 2.1.5",
        "a host that resolves an address asks the solicited-node group and gives its own address",
        Answer(False),
        Send(ping(1)),
        Expect(
            ipv6(destination=solicited(ME6), hop_limit=255)
            / ns(code=0, target=ME6)
            / source_option(hwaddr=any_flags(PEER_HW)),
            to=solicited(ME6),
        ),
    ),
    Test(
        "ND-2.1.5B",
        "N3",
        MUST,
        "RFC 4861 §7.2.2, TAHI 2.1.5",
        "a host that resolves a global address asks the solicited-node group and gives its own address",
        Answer(False),
        Send(ping(1, ME6_GLOBAL, PEER6_GLOBAL)),
        Expect(
            ipv6(destination=solicited(ME6_GLOBAL), hop_limit=255)
            / ns(code=0, target=ME6_GLOBAL)
            / source_option(hwaddr=any_flags(PEER_HW)),
            to=solicited(ME6_GLOBAL),
        ),
    ),
    Test(
        "ND-2.1.5C",
        "RFC4861-7.2.2",
        MUST,
        "RFC 4861 §7.2.2, §10",
        "a host that gets no answer asks three times, a second apart, and no more",
        Answer(False),
        Send(ping(1)),
        Expect(QUESTION, count=3, exactly=True, apart_s=(0.8, 1.5), within_s=4.8),
    ),
    Test(
        "ND-2.1.2A",
        "RFC4861-7.2.2-queue",
        MUST,
        "RFC 4861 §7.2.2, TAHI 2.1.2",
        "the last packet for an address that the host resolves is sent when the answer has come",
        Answer(False),
        Send(ping(1)),
        Expect(QUESTION),
        Send(ping(2)),
        Send(ping(3)),
        SOON,
        Send(tell(1, 1)),
        Expect(pong(3)),
    ),
    Test(
        "ND-2.1.2B",
        "RFC4861-7.2.2-queue",
        MUST,
        "RFC 4861 §7.2.2, TAHI 2.1.2",
        "packets for two addresses that the host resolves at once are both sent",
        Answer(False),
        Send(ping(1)),
        Expect(QUESTION),
        Send(ping(2, FREE6)),
        Expect(ns(target=FREE6)),
        Send(tell(1, 1, source=FREE6)),
        Expect(pong(2, FREE6)),
        Send(tell(1, 1)),
        Expect(pong(1)),
    ),
    # N4: advertisements
    Test(
        "ND-4",
        "N4",
        MUST,
        "RFC 4861 §7.2.4",
        "a multicast solicitation is answered to the asker, solicited, with the host's own address",
        Send(ask(PEER_GROUP), to=PEER_GROUP),
        Expect(
            ipv6(source=PEER6, destination=ME6, hop_limit=255)
            / na(code=0, solicited=1, target=PEER6)
            / target_option(hwaddr=any_flags(PEER_HW)),
            to=MY_HW,
        ),
    ),
    Test(
        "ND-5",
        "N4",
        MUST,
        "RFC 4861 §7.2.4",
        "a unicast solicitation is answered to the asker, solicited",
        Send(ask()),
        Expect(
            ipv6(destination=ME6, hop_limit=255) / na(code=0, solicited=1, target=PEER6), to=MY_HW
        ),
    ),
    Test(
        "ND-6",
        "N4",
        MUST,
        "RFC 4861 §7.2.4",
        "a solicitation of nobody is answered to all nodes, not solicited",
        Send(ask(PEER_GROUP, None, "::"), to=PEER_GROUP),
        Expect(
            ipv6(destination=ALL_NODES, hop_limit=255)
            / na(solicited=0, target=PEER6)
            / target_option(hwaddr=any_flags(PEER_HW)),
            to=ALL_NODES,
        ),
    ),
    Test(
        "ND-7",
        "N4",
        MUST,
        "RFC 4861 §7.2.4",
        "a host that is no router advertises without the Router flag",
        Send(ask(PEER_GROUP), to=PEER_GROUP),
        Silence(na(router=1, target=PEER6)),
        Expect(ANSWER),
    ),
    Test(
        "ND-8",
        "N4",
        SHOULD,
        "RFC 4861 §7.2.4",
        "an answer with the host's own address overrides",
        Send(ask(PEER_GROUP), to=PEER_GROUP),
        Silence(na(override=0, target=PEER6) / target_option()),
        Expect(ANSWER),
    ),
    Test(
        "ND-9",
        "N4",
        MUST,
        "RFC 4861 §7.2.4",
        "a global address is answered for like a link-local one",
        Send(ask(PEER6_GLOBAL, source=ME6_GLOBAL, target=PEER6_GLOBAL)),
        Expect(ipv6(destination=ME6_GLOBAL) / na(solicited=1, target=PEER6_GLOBAL), to=MY_HW),
    ),
    Test(
        "ND-10",
        "RFC4861-7.2.3",
        MUST,
        "RFC 4861 §7.2.3",
        "a solicitation for an address that is not the host's gets no answer",
        Send(ask(target=FREE6)),
        Silence(na(target=FREE6)),
    ),
    # what a receiver ignores
    Test(
        "ND-11",
        "RFC4861-4.3",
        MUST,
        "RFC 4861 §4.3",
        "the reserved bits of a solicitation do not matter",
        Send(ask(PEER_GROUP, reserved=0xFFFFFFFF), to=PEER_GROUP),
        Expect(ANSWER),
    ),
    Test(
        "ND-12",
        "RFC4861-4.4",
        MUST,
        "RFC 4861 §4.4",
        "the reserved bits of an advertisement do not matter",
        INCOMPLETE,
        Send(tell(1, 1, reserved=0x1FFFFFFF)),
        Expect(pong(1)),
    ),
    Test(
        "ND-13",
        "RFC4861-4.6",
        MUST,
        "RFC 4861 §4.6",
        "a solicitation with an unknown option is answered",
        Send(ask(PEER_GROUP) / option(type=201, length=2) / bytes(14), to=PEER_GROUP),
        Expect(ANSWER),
    ),
    Test(
        "ND-14",
        "RFC4861-4.6",
        MUST,
        "RFC 4861 §4.6",
        "an advertisement with an unknown option in front of the address resolves",
        INCOMPLETE,
        Send(
            ipv6(source=ME6, destination=PEER6, hop_limit=255)
            / na(solicited=1, override=1, target=ME6)
            / mtu_option(type=202)
            / target_option(hwaddr=MY_HW)
        ),
        Expect(pong(1)),
    ),
    Test(
        "ND-15",
        "RFC4861-6.1.1",
        MUST,
        "RFC 4861 §6.1.1, TAHI 2.2.4",
        "a host ignores router solicitations: it learns no address from one",
        Answer(False),
        Send(
            ipv6(source=ME6, destination=PEER6, hop_limit=255) / rs() / source_option(hwaddr=MY_HW)
        ),
        SOON,
        Send(ping(1)),
        Expect(QUESTION),
    ),
    # N2: solicitations that are not valid
    Test(
        "ND-2.1.7A",
        "N2",
        MUST,
        INVALID,
        "a solicitation for a multicast address is dropped",
        Send(ask(PEER_GROUP, target=PEER_GROUP), to=PEER_GROUP),
        Silence(na()),
    ),
    Test(
        "ND-2.1.7B",
        "N2",
        MUST,
        INVALID,
        "a solicitation of nobody to all nodes is dropped",
        Send(ask(ALL_NODES, None, "::"), to=ALL_NODES),
        Silence(ANSWER),
    ),
    Test(
        "ND-2.1.7C",
        "N2",
        MUST,
        INVALID,
        "a solicitation of nobody with an address is dropped",
        Send(ask(PEER_GROUP, MY_HW, "::"), to=PEER_GROUP),
        Silence(ANSWER),
    ),
    Test(
        "ND-2.1.7D",
        "N2",
        MUST,
        INVALID,
        "a solicitation with hop limit 254 is dropped",
        Send(ask(PEER_GROUP, hop_limit=254), to=PEER_GROUP),
        Silence(ANSWER),
    ),
    Test(
        "ND-2.1.7E",
        "N2",
        MUST,
        INVALID,
        "a solicitation with a wrong checksum is dropped",
        Send(ask(PEER_GROUP, checksum=0x1234), to=PEER_GROUP),
        Silence(ANSWER),
    ),
    Test(
        "ND-2.1.7F",
        "N2",
        MUST,
        INVALID,
        "a solicitation with code 1 is dropped",
        Send(ask(PEER_GROUP, code=1), to=PEER_GROUP),
        Silence(ANSWER),
    ),
    Test(
        "ND-2.1.7G",
        "N2",
        MUST,
        INVALID,
        "a solicitation of 23 bytes is dropped",
        Send(
            ipv6(source=ME6, destination=PEER6, hop_limit=255, length=23)
            / short_ns(target_start=bits_of(PEER6, 0, 120))
            / tail(byte=bits_of(PEER6, 120, 8))
        ),
        Silence(ANSWER),
    ),
    Test(
        "ND-2.1.7H",
        "N2",
        MUST,
        INVALID,
        "a solicitation with an option of length 0 is dropped",
        Send(ask(PEER_GROUP) / option(type=200) / bytes(6), to=PEER_GROUP),
        Silence(ANSWER),
    ),
    Test(
        "ND-2.1.7I",
        "N2",
        MUST,
        INVALID,
        "a solicitation that is dropped changes no address",
        REACHABLE,
        Send(ask(hwaddr=OTHER_HW, hop_limit=254), by=OTHER),
        SOON,
        Send(ping(2)),
        Expect(pong(2)),
    ),
    # N2: advertisements that are not valid
    Test(
        "ND-2.1.15A",
        "N2",
        MUST,
        INVALID_ANSWER,
        "a solicited advertisement to all nodes is dropped",
        INCOMPLETE,
        Send(tell(1, 1, to=ALL_NODES), to=ALL_NODES),
        NOT_RESOLVED,
    ),
    Test(
        "ND-2.1.15B",
        "N2",
        MUST,
        INVALID_ANSWER,
        "an advertisement with hop limit 254 is dropped",
        INCOMPLETE,
        Send(tell(1, 1, hop_limit=254)),
        NOT_RESOLVED,
    ),
    Test(
        "ND-2.1.15C",
        "N2",
        MUST,
        INVALID_ANSWER,
        "an advertisement with a wrong checksum is dropped",
        INCOMPLETE,
        Send(tell(1, 1, checksum=0x1234)),
        NOT_RESOLVED,
    ),
    Test(
        "ND-2.1.15D",
        "N2",
        MUST,
        INVALID_ANSWER,
        "an advertisement with code 1 is dropped",
        INCOMPLETE,
        Send(tell(1, 1, code=1)),
        NOT_RESOLVED,
    ),
    Test(
        "ND-2.1.15E",
        "N2",
        MUST,
        INVALID_ANSWER,
        "an advertisement of 23 bytes is dropped: a neighbour that is probed is not confirmed by it",
        PROBE,
        Send(
            ipv6(source=ME6, destination=PEER6, hop_limit=255, length=23)
            / short_na(flags=0x60000000, target_start=bits_of(ME6, 0, 120))
            / tail(byte=bits_of(ME6, 120, 8))
        ),
        Expect(QUESTION, within_s=1.5),
    ),
    Test(
        "ND-2.1.15F",
        "N2",
        MUST,
        INVALID_ANSWER,
        "an advertisement of a multicast address resolves nothing",
        INCOMPLETE,
        Send(tell(1, 1, target=solicited(ME6))),
        NOT_RESOLVED,
    ),
    Test(
        "ND-2.1.15G",
        "N2",
        MUST,
        INVALID_ANSWER,
        "an advertisement with an option of length 0 is dropped",
        INCOMPLETE,
        Send(tell(1, 1) / option(type=200) / bytes(6)),
        NOT_RESOLVED,
    ),
)
