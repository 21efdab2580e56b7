# SPDX-License-Identifier: BSD-2-Clause
"""ICMPv6: RFC 4443. Neighbour discovery and MLD have tables of their own."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import destination_options, echo6, icmpv6_error, ipv6, udp
from ipoibu.conform.headers.nd import redirect
from ipoibu.conform.packet import Cut, Given, Layer
from ipoibu.conform.symbols import (
    ALL_NODES,
    FREE6,
    ME6,
    ME6_GLOBAL,
    PEER6,
    PEER6_GLOBAL,
)
from ipoibu.conform.test import MUST, SHOULD, Expect, Need, Send, Silence, Test

NEEDS: Final = (Need.IPV6,)
GLOBAL: Final = (Need.IPV6, Need.GLOBAL_IPV6)
DATA: Final = bytes(range(200, 256))
CLOSED_PORT: Final = 1  # tcpmux (RFC 1078): nobody offers it by UDP


def to_peer(**values: Given) -> Layer:
    """An IPv6 header from the tester to the peer."""
    return ipv6(**{"source": ME6, "destination": PEER6} | values)


ECHO: Final = echo6(id=0x44, sequence=0x43) / DATA
UNKNOWN: Final = to_peer(next_header=253) / DATA
LARGE: Final = to_peer(next_header=253) / bytes(1240)  # of 1280 bytes
ANY_ERROR: Final = icmpv6_error()
ANY_REPLY: Final = echo6(type=129, id=0x44)
KNOWN: Final = (Send(to_peer() / echo6(id=0x45)), Expect(echo6(type=129, id=0x45)))
"""The peer has the tester's address: whether it asks for it to send an error is a matter of ICMP6-17."""
KNOWN_GLOBAL: Final = (
    Send(ipv6(source=ME6_GLOBAL, destination=PEER6_GLOBAL) / echo6(id=0x45)),
    Expect(echo6(type=129, id=0x45)),
)

TESTS: Final = (
    Test(
        "ICMP6-1",
        "RFC4443-4.2",
        MUST,
        "RFC 4443 §4.2",
        "an echo reply has the identifier, the sequence number and the data of the request",
        Send(to_peer() / ECHO),
        Expect(ipv6(destination=ME6) / echo6(type=129, code=0, id=0x44, sequence=0x43) / DATA),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-2",
        "RFC4443-2.2",
        MUST,
        "RFC 4443 §2.2, §4.2",
        "an echo reply comes from the link-local address that the request went to",
        Send(to_peer() / ECHO),
        Expect(ipv6(source=PEER6, destination=ME6) / ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-3",
        "RFC4443-2.2",
        MUST,
        "RFC 4443 §2.2, §4.2",
        "an echo reply comes from the global address that the request went to",
        Send(ipv6(source=ME6_GLOBAL, destination=PEER6_GLOBAL) / ECHO),
        Expect(ipv6(source=PEER6_GLOBAL, destination=ME6_GLOBAL) / ANY_REPLY),
        needs=GLOBAL,
    ),
    Test(
        "ICMP6-4",
        "RFC4443-4.2-multicast",
        SHOULD,
        "RFC 4443 §4.2",
        "an echo request to all nodes is answered from a unicast address of the link",
        Send(to_peer(destination=ALL_NODES) / ECHO, to=ALL_NODES),
        Expect(ipv6(source=PEER6, destination=ME6) / ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-5",
        "RFC4443-2.3",
        MUST,
        "RFC 4443 §2.3",
        "an echo request whose checksum is wrong gets no answer",
        Send(to_peer() / echo6(id=0x44, checksum=0xBAD0)),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-6",
        "RFC4443-2.3",
        MUST,
        "RFC 4443 §2.3",
        "the checksum of an echo reply covers the pseudo header and the message",
        Send(to_peer() / ECHO),
        Expect(echo6(type=129, id=0x44, sound=1)),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-7",
        "RFC4443-2.4b",
        MUST,
        "RFC 4443 §2.4 (b)",
        "an informational message of an unknown type gets no answer",
        KNOWN,
        Send(to_peer() / echo6(type=200, id=0x44)),
        Silence(ANY_ERROR),
        Silence(ipv6(destination=ME6) / echo6(id=0x44)),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-8",
        "RFC4443-2.4c",
        MUST,
        "RFC 4443 §2.4 (c)",
        "an error quotes the whole packet that it is about, if that is short",
        KNOWN,
        Send(UNKNOWN),
        Expect(icmpv6_error(type=4) / Cut(UNKNOWN, without=0)),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-9",
        "RFC4443-2.4c",
        MUST,
        "RFC 4443 §2.4 (c)",
        "an error about a long packet is 1280 bytes long: not longer, and quotes no less",
        KNOWN,
        Send(LARGE),
        Expect(ipv6(length=1240) / icmpv6_error(type=4)),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-10",
        "RFC4443-2.4e1",
        MUST,
        "RFC 4443 §2.4 (e.1)",
        "an error message causes no error message",
        KNOWN,
        Send(to_peer() / destination_options(option=0x9E) / icmpv6_error(type=1) / DATA),
        Silence(ANY_ERROR),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-11",
        "RFC4443-2.4e2",
        MUST,
        "RFC 4443 §2.4 (e.2)",
        "a redirect causes no error message",
        KNOWN,
        Send(
            to_peer(hop_limit=255)
            / destination_options(option=0x9E)
            / redirect(target=FREE6, destination=FREE6)
        ),
        Silence(ANY_ERROR),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-12",
        "RFC4443-2.4e3",
        MUST,
        "RFC 4443 §2.4 (e.3)",
        "a multicast packet with an unknown next header causes no error message",
        KNOWN,
        Send(to_peer(destination=ALL_NODES, next_header=253) / DATA, to=ALL_NODES),
        Silence(ANY_ERROR),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-13",
        "RFC4443-2.4e4",
        MUST,
        "RFC 4443 §2.4 (e.4)",
        "a unicast packet that comes by a multicast group of the link causes no error message",
        KNOWN,
        Send(UNKNOWN, to=ALL_NODES),
        Silence(ANY_ERROR),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-14",
        "RFC4443-2.4f",
        MUST,
        "RFC 4443 §2.4 (f)",
        "a host limits the rate of its errors: 200 packets in a moment cause at most 100",
        KNOWN,
        Send(UNKNOWN, times=200),
        Expect(icmpv6_error(type=4), within_s=1.0, at_most=100),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-15",
        "RFC4443-3.1",
        SHOULD,
        "RFC 4443 §3.1",
        "a datagram to a UDP port that nobody has is answered by destination unreachable, code 4",
        KNOWN,
        Send(to_peer() / udp(source_port=4443, destination_port=CLOSED_PORT) / DATA),
        Expect(ipv6(destination=ME6) / icmpv6_error(type=1, code=4)),
        needs=NEEDS,
    ),
    Test(
        "ICMP6-16",
        "RFC4443-2.2-error",
        MUST,
        "RFC 4443 §2.2 (a)",
        "an error about a packet to a global address comes from there",
        KNOWN_GLOBAL,
        Send(ipv6(source=ME6_GLOBAL, destination=PEER6_GLOBAL, next_header=253) / DATA),
        Expect(ipv6(source=PEER6_GLOBAL, destination=ME6_GLOBAL) / icmpv6_error(type=4)),
        needs=GLOBAL,
    ),
    Test(
        "ICMP6-17",
        "RFC4443-2.4-resolution",
        SHOULD,
        "RFC 4443 §2.4",
        "an error goes to a host, too, whose address the peer has to ask for first",
        Send(UNKNOWN),
        Expect(icmpv6_error(type=4)),
        needs=NEEDS,
    ),
)
