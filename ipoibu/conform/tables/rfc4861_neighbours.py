# SPDX-License-Identifier: BSD-2-Clause
"""The neighbour cache: RFC 4861 §7.2.3, §7.2.5, §7.3, by TAHI's procedures.

The states are reached by steps: INCOMPLETE by a ping without an answer, REACHABLE by an answer, STALE by an
unsolicited advertisement of another address, PROBE 5 s after a packet to a neighbour that is not confirmed.
An advertisement is named by its Solicited and Override flags and its address: none, the one that the host
has, or another one. Letters: A to D without an address, E to H with the same, I to L with another, each in
the order S=0 O=0, S=0 O=1, S=1 O=0, S=1 O=1.
"""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import ipv6
from ipoibu.conform.headers.nd import na, ns
from ipoibu.conform.link import QueuePair
from ipoibu.conform.packet import Given
from ipoibu.conform.symbols import (
    ME6,
    ME6_GLOBAL,
    MY_HW,
    OTHER_HW,
    PEER6,
    PEER6_GLOBAL,
)
from ipoibu.conform.tables.rfc4861 import (
    ANSWER,
    DELAY,
    INCOMPLETE,
    OTHER,
    PEER_GROUP,
    PROBE,
    QUESTION,
    REACHABLE,
    SOON,
    ask,
    ping,
    pong,
    tell,
)
from ipoibu.conform.test import MUST, SHOULD, Answer, Expect, Send, Silence, Step, Test

MINE: Final = QueuePair.MINE
Steps = tuple[Step, ...]

STALE: Final = (*REACHABLE, Send(tell(0, 1, OTHER_HW), by=OTHER), SOON)  # has the other address


def alone(target: Given) -> Step:
    """Three solicitations to the neighbour alone, 5 s after it was used, and no more."""
    return Expect(
        ipv6(destination=target, hop_limit=255) / ns(target=target),
        to=MY_HW,
        count=3,
        exactly=True,
        apart_s=(0.8, 1.5),
        after_s=4.5,
        within_s=9,
    )


def used(at: QueuePair) -> Steps:
    """The host sends to this address of ours."""
    return (Send(ping(2)), Expect(pong(2), by=at))


def doubted(at: QueuePair) -> Steps:
    """The host sends to this address of ours, and asks whether it is still right."""
    return (*used(at), Expect(QUESTION, by=at, within_s=6.5))


def believed(at: QueuePair) -> Steps:
    """The host sends to this address of ours, and does not ask for long."""
    return (*used(at), Silence(QUESTION, by=at, for_s=6))


def probed(at: QueuePair) -> Steps:
    """The host sends to this address of ours, and goes on with its probes."""
    return (*used(at), Expect(QUESTION, by=at, within_s=1.5))


def settled(at: QueuePair) -> Steps:
    """The host sends to this address of ours, and ends its probes."""
    return (*used(at), Silence(QUESTION, by=at, for_s=1.5))


_STATES: Final = {
    "2.1.18": ("confirmed", REACHABLE, MINE),
    "2.1.19": ("stale", STALE, OTHER),
    "2.1.20": ("probed", PROBE, MINE),
}
"""The procedure of each state, and the address that the host has in it."""


def advertised(
    letter: str, flags: tuple[int, int], address: QueuePair | None, title: str, *end: Step | Steps
) -> Test:
    """What an advertisement with these flags (S, O) and this address does to an entry."""
    procedure = letter[:-1]
    state, begin, known = _STATES[procedure]
    by = known if address is None else address
    hwaddr = None if address is None else {MINE: MY_HW, OTHER: OTHER_HW}[by]
    words = (
        "no address" if address is None else f"{'the same' if by is known else 'another'} address"
    )
    return Test(
        f"ND-{letter}",
        "N10",
        MUST,
        f"RFC 4861 §7.2.5, TAHI {procedure}",
        f"an advertisement S={flags[0]} O={flags[1]} with {words} of a {state} neighbour: {title}",
        begin,
        Send(tell(*flags, hwaddr), by=by),
        SOON,
        *end,
    )


KEEPS: Final = "the host keeps address and state"
CONFIRMS: Final = "the host keeps the address and counts it as confirmed"
DOUBTS: Final = "the host keeps the address, and doubts it"
IGNORES: Final = "the host ignores it"
TAKES: Final = "the host takes the address, and doubts it"
BELIEVES: Final = "the host takes the address, and counts it as confirmed"

TESTS: Final = (
    # §7.2.3: solicitations
    Test(
        "ND-2.1.8A",
        "N5",
        SHOULD,
        "RFC 4861 §7.2.3, TAHI 2.1.8",
        "the host learns the address of an unknown asker by a unicast solicitation",
        Answer(False),
        Send(ask()),
        Expect(ANSWER),
        Send(ping(2)),
        Expect(pong(2)),
        Silence(QUESTION),
    ),
    Test(
        "ND-2.1.8B",
        "N5",
        SHOULD,
        "RFC 4861 §7.2.3, TAHI 2.1.8",
        "the host learns the address of an unknown asker by a multicast solicitation",
        Answer(False),
        Send(ask(PEER_GROUP), to=PEER_GROUP),
        Expect(ANSWER),
        Send(ping(2)),
        Expect(pong(2)),
        Silence(QUESTION),
    ),
    Test(
        "ND-2.1.8C",
        "N4",
        MUST,
        "RFC 4861 §7.2.4, TAHI 2.1.8",
        "a unicast solicitation without an address is answered",
        Send(ask(hwaddr=None)),
        Expect(na(solicited=1, target=PEER6)),
    ),
    Test(
        "ND-2.1.9A",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.9",
        "a unicast solicitation of a neighbour that is asked for gives its address, not confirmed",
        INCOMPLETE,
        Send(ask()),
        Expect(pong(1)),
        Expect(QUESTION, within_s=6.5),
    ),
    Test(
        "ND-2.1.9B",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.9",
        "a multicast solicitation of a neighbour that is asked for gives its address",
        INCOMPLETE,
        Send(ask(PEER_GROUP), to=PEER_GROUP),
        Expect(ANSWER),
        Expect(pong(1)),
    ),
    Test(
        "ND-2.1.10A",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.10",
        "a unicast solicitation with the known address changes no confirmed neighbour",
        REACHABLE,
        Send(ask()),
        Expect(ANSWER),
        believed(MINE),
    ),
    Test(
        "ND-2.1.10B",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.10",
        "a unicast solicitation with another address changes a confirmed neighbour, which is doubted",
        REACHABLE,
        Send(ask(hwaddr=OTHER_HW), by=OTHER),
        Expect(ANSWER, by=OTHER),
        doubted(OTHER),
    ),
    Test(
        "ND-2.1.10C",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.10",
        "a multicast solicitation with the known address changes no confirmed neighbour",
        REACHABLE,
        Send(ask(PEER_GROUP), to=PEER_GROUP),
        Expect(ANSWER),
        used(MINE),
    ),
    Test(
        "ND-2.1.10D",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.10",
        "a multicast solicitation with another address changes a confirmed neighbour",
        REACHABLE,
        Send(ask(PEER_GROUP, OTHER_HW), to=PEER_GROUP, by=OTHER),
        Expect(ANSWER, by=OTHER),
        used(OTHER),
    ),
    Test(
        "ND-2.1.11A",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.11",
        "a unicast solicitation with the known address confirms no stale neighbour",
        REACHABLE,
        Send(ask(hwaddr=OTHER_HW), by=OTHER),
        Expect(ANSWER, by=OTHER),
        Send(ask(hwaddr=OTHER_HW), by=OTHER),
        Expect(ANSWER, by=OTHER),
        doubted(OTHER),
    ),
    Test(
        "ND-2.1.11B",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.11",
        "a unicast solicitation with another address changes a stale neighbour, which is doubted",
        REACHABLE,
        Send(ask(hwaddr=OTHER_HW), by=OTHER),
        Expect(ANSWER, by=OTHER),
        Send(ask()),
        Expect(ANSWER),
        doubted(MINE),
    ),
    Test(
        "ND-2.1.11C",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.11",
        "a multicast solicitation with the known address changes no stale neighbour",
        REACHABLE,
        Send(ask(hwaddr=OTHER_HW), by=OTHER),
        Expect(ANSWER, by=OTHER),
        Send(ask(PEER_GROUP, OTHER_HW), to=PEER_GROUP, by=OTHER),
        Expect(ANSWER, by=OTHER),
        used(OTHER),
    ),
    Test(
        "ND-2.1.11D",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.11",
        "a multicast solicitation with another address changes a stale neighbour",
        REACHABLE,
        Send(ask(hwaddr=OTHER_HW), by=OTHER),
        Expect(ANSWER, by=OTHER),
        Send(ask(PEER_GROUP), to=PEER_GROUP),
        Expect(ANSWER),
        used(MINE),
    ),
    Test(
        "ND-2.1.12A",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.12",
        "a unicast solicitation with the known address ends no probes",
        PROBE,
        Send(ask()),
        Expect(ANSWER),
        probed(MINE),
    ),
    Test(
        "ND-2.1.12B",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.12",
        "a unicast solicitation with another address changes a probed neighbour",
        PROBE,
        Send(ask(hwaddr=OTHER_HW), by=OTHER),
        Expect(ANSWER, by=OTHER),
        settled(OTHER),
    ),
    # §7.2.5: advertisements without an entry, and of a neighbour that is asked for
    *(
        Test(
            f"ND-2.1.16{letter}",
            "N10",
            MUST,
            "RFC 4861 §7.2.5, TAHI 2.1.16",
            f"an advertisement S={s} O={o} of an unknown neighbour makes no entry",
            Answer(False),
            Send(tell(s, o)),
            SOON,
            Send(ping(1)),
            Expect(QUESTION),
        )
        for letter, s, o in (("A", 0, 0), ("B", 0, 1), ("C", 1, 0), ("D", 1, 1))
    ),
    Test(
        "ND-2.1.17A",
        "N10",
        MUST,
        "RFC 4861 §7.2.5, TAHI 2.1.17",
        "an advertisement S=0 O=0 resolves a neighbour, which is doubted",
        INCOMPLETE,
        Send(tell(0, 0)),
        Expect(pong(1)),
        Expect(QUESTION, within_s=6.5),
    ),
    Test(
        "ND-2.1.17B",
        "N10",
        MUST,
        "RFC 4861 §7.2.5, TAHI 2.1.17",
        "an advertisement S=0 O=1 resolves a neighbour",
        INCOMPLETE,
        Send(tell(0, 1)),
        Expect(pong(1)),
    ),
    Test(
        "ND-2.1.17C",
        "N10",
        MUST,
        "RFC 4861 §7.2.5, TAHI 2.1.17",
        "an advertisement S=1 O=0 resolves a neighbour",
        INCOMPLETE,
        Send(tell(1, 0)),
        Expect(pong(1)),
    ),
    Test(
        "ND-2.1.17D",
        "N10",
        MUST,
        "RFC 4861 §7.2.5, TAHI 2.1.17",
        "an advertisement S=1 O=1 resolves a neighbour, which is confirmed",
        INCOMPLETE,
        Send(tell(1, 1)),
        Expect(pong(1)),
        Silence(QUESTION, for_s=6),
    ),
    Test(
        "ND-2.1.17E",
        "N10",
        MUST,
        "RFC 4861 §7.2.5, TAHI 2.1.17",
        "an advertisement without an address resolves nothing: the host asks on",
        INCOMPLETE,
        Send(tell(1, 1, None)),
        Expect(QUESTION, within_s=3),
        Silence(pong(1)),
    ),
    # §7.2.5: a confirmed neighbour
    advertised("2.1.18A", (0, 0), None, KEEPS, believed(MINE)),
    advertised("2.1.18B", (0, 1), None, KEEPS, used(MINE)),
    advertised("2.1.18C", (1, 0), None, KEEPS, used(MINE)),
    advertised("2.1.18D", (1, 1), None, KEEPS, used(MINE)),
    advertised("2.1.18E", (0, 0), MINE, KEEPS, used(MINE)),
    advertised("2.1.18F", (0, 1), MINE, KEEPS, used(MINE)),
    advertised("2.1.18G", (1, 0), MINE, KEEPS, used(MINE)),
    advertised("2.1.18H", (1, 1), MINE, KEEPS, used(MINE)),
    advertised("2.1.18I", (0, 0), OTHER, DOUBTS, doubted(MINE)),
    advertised("2.1.18J", (0, 1), OTHER, TAKES, doubted(OTHER)),
    advertised("2.1.18K", (1, 0), OTHER, DOUBTS, doubted(MINE)),
    advertised("2.1.18L", (1, 1), OTHER, BELIEVES, believed(OTHER)),
    # §7.2.5: a stale neighbour
    advertised("2.1.19A", (0, 0), None, KEEPS, doubted(OTHER)),
    advertised("2.1.19B", (0, 1), None, KEEPS, used(OTHER)),
    advertised("2.1.19C", (1, 0), None, CONFIRMS, believed(OTHER)),
    advertised("2.1.19D", (1, 1), None, CONFIRMS, used(OTHER)),
    advertised("2.1.19E", (0, 0), OTHER, KEEPS, used(OTHER)),
    advertised("2.1.19F", (0, 1), OTHER, KEEPS, used(OTHER)),
    advertised("2.1.19G", (1, 0), OTHER, CONFIRMS, used(OTHER)),
    advertised("2.1.19H", (1, 1), OTHER, CONFIRMS, used(OTHER)),
    advertised("2.1.19I", (0, 0), MINE, IGNORES, used(OTHER)),
    advertised("2.1.19J", (0, 1), MINE, TAKES, doubted(MINE)),
    advertised("2.1.19K", (1, 0), MINE, IGNORES, doubted(OTHER)),
    advertised("2.1.19L", (1, 1), MINE, BELIEVES, believed(MINE)),
    # §7.2.5: a neighbour that is probed
    advertised("2.1.20A", (0, 0), None, KEEPS, probed(MINE)),
    advertised("2.1.20B", (0, 1), None, KEEPS, probed(MINE)),
    advertised("2.1.20C", (1, 0), None, CONFIRMS, settled(MINE)),
    advertised("2.1.20D", (1, 1), None, CONFIRMS, settled(MINE)),
    advertised("2.1.20E", (0, 0), MINE, KEEPS, probed(MINE)),
    advertised("2.1.20F", (0, 1), MINE, KEEPS, probed(MINE)),
    advertised("2.1.20G", (1, 0), MINE, CONFIRMS, settled(MINE)),
    advertised("2.1.20H", (1, 1), MINE, CONFIRMS, settled(MINE)),
    advertised("2.1.20I", (0, 0), OTHER, IGNORES, probed(MINE)),
    advertised(
        "2.1.20J", (0, 1), OTHER, TAKES, settled(OTHER), Expect(QUESTION, by=OTHER, within_s=6.5)
    ),
    advertised("2.1.20K", (1, 0), OTHER, IGNORES, probed(MINE)),
    advertised("2.1.20L", (1, 1), OTHER, BELIEVES, settled(OTHER)),
    # §7.3: unreachability
    Test(
        "ND-2.1.6A",
        "N12",
        MUST,
        "RFC 4861 §7.3.3, TAHI 2.1.6",
        "5 s after its use a neighbour is asked alone three times; after that the host asks all again",
        DELAY,
        alone(ME6),
        Send(ping(2)),
        Expect(QUESTION),
    ),
    Test(
        "ND-2.1.6B",
        "N12",
        MUST,
        "RFC 4861 §7.3.3, TAHI 2.1.6",
        "5 s after its use a neighbour with a global address is asked alone three times",
        Answer(False),
        Send(ping(1, ME6_GLOBAL, PEER6_GLOBAL)),
        Expect(ns(target=ME6_GLOBAL)),
        Send(tell(0, 1, source=ME6_GLOBAL, to=PEER6_GLOBAL)),
        Expect(pong(1, ME6_GLOBAL)),
        alone(ME6_GLOBAL),
    ),
    Test(
        "ND-16",
        "RFC4861-7.3.1",
        MUST,
        "RFC 4861 §7.3.1",
        "packets that a neighbour sends confirm nothing: it is asked all the same",
        DELAY,
        Send(ping(3), times=5, every_s=1),
        Expect(QUESTION, within_s=6.5),
    ),
)
