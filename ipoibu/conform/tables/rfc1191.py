# SPDX-License-Identifier: BSD-2-Clause
"""Path MTU discovery for IPv4: RFC 1191."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import icmp_echo, icmp_unreachable, ipv4
from ipoibu.conform.packet import Cut, Given, at_least, at_most
from ipoibu.conform.symbols import ME4, PEER4
from ipoibu.conform.test import MUST, Expect, Send, Silence, Test

DATA: Final = bytes(range(200)) * 7
"""A ping with this is 1428 bytes long."""
PING: Final = ipv4(source=ME4, destination=PEER4) / icmp_echo(id=0x91, sequence=1) / DATA
PONG: Final = ipv4(destination=ME4, fragment_offset=0, more_fragments=0) / icmp_echo(type=0)
ABOUT: Final = (
    ipv4(source=PEER4, destination=ME4, dont_fragment=1)
    / icmp_echo(type=0, id=0x91, sequence=1)
    / DATA
)


def report(mtu: int, **values: Given) -> Send:
    """Send a "fragmentation needed" with this MTU about the answer."""
    head = ipv4(source=ME4, destination=PEER4)
    return Send(head / icmp_unreachable(code=4, mtu=mtu, **values) / Cut(ABOUT, 0, 528, without=0))


TESTS: Final = (
    Test(
        "PMTU4-1",
        "RFC1191-3",
        MUST,
        "RFC 1191 §3",
        "behind a report of a path MTU of 1000 a host sends at most 1000 bytes",
        Send(PING),
        Expect(PONG),
        report(1000),
        Send(PING),
        Expect(
            ipv4(destination=ME4, length=at_most(1000), fragment_offset=0, more_fragments=1)
            / icmp_echo(type=0, id=0x91)
        ),
        destructive=True,
    ),
    Test(
        "PMTU4-2",
        "RFC1191-3-68",
        MUST,
        "RFC 1191 §3",
        "a host never lowers the path MTU below 68 bytes",
        Send(PING),
        Expect(PONG),
        report(48),
        Send(PING),
        Silence(ipv4(destination=ME4, length=at_most(67), more_fragments=1)),
        destructive=True,
    ),
    Test(
        "PMTU4-3",
        "RFC1191-3-raise",
        MUST,
        "RFC 1191 §3",
        "a report never raises the path MTU",
        Send(PING),
        Expect(PONG),
        report(1000),
        report(1300),
        Send(PING),
        Silence(ipv4(destination=ME4, length=at_least(1001), more_fragments=1)),
        destructive=True,
    ),
    Test(
        "PMTU4-4",
        "RFC1191-sum",
        MUST,
        "RFC 792",
        "a report whose checksum is wrong has no effect",
        Send(PING),
        Expect(PONG),
        report(1000, checksum=0xBAD0),
        Send(PING),
        Expect(PONG),
        destructive=True,
    ),
)
