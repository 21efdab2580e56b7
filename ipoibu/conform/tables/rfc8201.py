# SPDX-License-Identifier: BSD-2-Clause
"""Path MTU discovery for IPv6: RFC 8201, by the procedures of TAHI (4.1)."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import echo6, fragment, ipv6, too_big
from ipoibu.conform.packet import Cut, Given, Packet, Symbol, at_least, at_most
from ipoibu.conform.symbols import ME6, ME6_GLOBAL, PEER6, PEER6_GLOBAL
from ipoibu.conform.test import MUST, Expect, Need, Send, Silence, Step, Test

NEEDS: Final = (Need.IPV6,)
GLOBAL: Final = (Need.IPV6, Need.GLOBAL_IPV6)
DATA: Final = bytes(range(250)) * 6
"""A ping with this is 1548 bytes long."""


def ping(me: Symbol = ME6, peer: Symbol = PEER6) -> Packet:
    return ipv6(source=me, destination=peer) / echo6(id=0x81, sequence=1) / DATA


def pong(me: Symbol = ME6) -> Packet:
    """The answer in one piece."""
    return ipv6(destination=me, next_header=58) / echo6(type=129, id=0x81) / DATA


def report(mtu: int, me: Symbol = ME6, peer: Symbol = PEER6, **values: Given) -> Send:
    """Send a packet too big of this MTU about the answer."""
    about = ipv6(source=peer, destination=me) / echo6(type=129, id=0x81, sequence=1) / DATA
    quote = Cut(about, 0, 1232, without=0)
    return Send(ipv6(source=me, destination=peer) / too_big(mtu=mtu, **values) / quote)


def pieces(me: Symbol = ME6) -> tuple[Step, ...]:
    """Expect an answer in fragments of one identification, of at most 1280 bytes."""
    small = at_most(1240)
    first = ipv6(destination=me, length=small) / fragment(offset=0, more=1) / echo6(type=129)
    last = fragment(offset=at_least(1), more=0, id=Symbol("piece"))
    return (
        Expect(first, keep={"piece": ("fragment", "id")}),
        Expect(ipv6(destination=me, length=small) / last),
    )


TESTS: Final = (
    Test(
        "PMTU6-1",
        "TAHI-4.1.4",
        MUST,
        "RFC 8201 §4",
        "behind a packet too big of 1280 a host sends fragments of at most 1280 bytes",
        Send(ping()),
        Expect(pong()),
        report(1280),
        Send(ping()),
        pieces(),
        needs=NEEDS,
        destructive=True,
    ),
    Test(
        "PMTU6-2",
        "TAHI-4.1.4",
        MUST,
        "RFC 8201 §4",
        "the same holds between global addresses",
        Send(ping(ME6_GLOBAL, PEER6_GLOBAL)),
        Expect(pong(ME6_GLOBAL)),
        report(1280, ME6_GLOBAL, PEER6_GLOBAL),
        Send(ping(ME6_GLOBAL, PEER6_GLOBAL)),
        pieces(ME6_GLOBAL),
        needs=GLOBAL,
        destructive=True,
    ),
    Test(
        "PMTU6-3",
        "TAHI-4.1.6",
        MUST,
        "RFC 8201 §4",
        "a packet too big of less than 1280 is discarded",
        Send(ping()),
        Expect(pong()),
        report(1279),
        Send(ping()),
        Expect(pong()),
        needs=NEEDS,
        destructive=True,
    ),
    Test(
        "PMTU6-4",
        "TAHI-4.1.6",
        MUST,
        "RFC 8201 §4",
        "a packet too big of 56 causes no fragment",
        Send(ping()),
        Expect(pong()),
        report(56),
        Send(ping()),
        Silence(ipv6(destination=ME6) / fragment()),
        needs=NEEDS,
        destructive=True,
    ),
    Test(
        "PMTU6-5",
        "RFC8201-4",
        MUST,
        "RFC 8201 §4",
        "a packet too big never raises the path MTU",
        Send(ping(ME6_GLOBAL, PEER6_GLOBAL)),
        Expect(pong(ME6_GLOBAL)),
        report(1280, ME6_GLOBAL, PEER6_GLOBAL),
        report(9000, ME6_GLOBAL, PEER6_GLOBAL),
        Send(ping(ME6_GLOBAL, PEER6_GLOBAL)),
        Expect(ipv6(destination=ME6_GLOBAL, length=at_most(1240)) / fragment(offset=0)),
        needs=GLOBAL,
        destructive=True,
    ),
    Test(
        "PMTU6-6",
        "RFC8201-sum",
        MUST,
        "RFC 4443 §2.3",
        "a packet too big whose checksum is wrong has no effect",
        Send(ping()),
        Expect(pong()),
        report(1280, checksum=0xBAD0),
        Send(ping()),
        Expect(pong()),
        needs=NEEDS,
        destructive=True,
    ),
)
