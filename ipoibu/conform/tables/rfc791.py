# SPDX-License-Identifier: BSD-2-Clause
"""IPv4 and ICMP: RFC 791, RFC 792, with what RFC 1122 demands of a host."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import icmp_echo, icmp_unreachable, ipv4, router_alert, udp
from ipoibu.conform.packet import Cut, Given, Layer, Packet
from ipoibu.conform.symbols import BROADCAST, FREE4, ME4, PEER4, of_test
from ipoibu.conform.test import MUST, SHOULD, Expect, Send, Silence, Test

DATA: Final = bytes(range(100, 228))
SIZE: Final = 8 + len(DATA)
CLOSED_PORT: Final = 1  # tcpmux (RFC 1078): nobody offers it by UDP
ID: Final = of_test(0)
OTHER_ID: Final = of_test(1)


def to_peer(**values: Given) -> Layer:
    """An IPv4 header from the tester to the peer."""
    return ipv4(**{"source": ME4, "destination": PEER4} | values)


def reply(**values: Given) -> Packet:
    """The answer to `ECHO`, wherever its other fields come from."""
    return ipv4(destination=ME4, **values) / icmp_echo(type=0, id=0x79)


ECHO: Final = icmp_echo(id=0x79, sequence=0x78) / DATA
WHOLE: Final = to_peer() / ECHO
ANY_REPLY: Final = icmp_echo(type=0, id=0x79)
ANY_ERROR: Final = icmp_unreachable()
UNKNOWN: Final = to_peer(protocol=253) / b"8 bytes."


def piece(first: int, end: int, of: Packet = WHOLE, **values: Given) -> Packet:
    """Bytes `first` to `end` of what follows the IPv4 header of `of`, as a fragment."""
    given: dict[str, Given] = {
        "protocol": 1,
        "fragment_offset": first // 8,
        "more_fragments": int(end < SIZE),
        "id": ID,
    }
    return to_peer(**given | values) / Cut(of, first, end)


LARGE: Final = to_peer() / icmp_echo(id=0x79) / (bytes(range(137)) * 4)  # of 576 bytes

KNOWN: Final = (
    Send(to_peer() / icmp_echo(id=0x7B)),
    Expect(icmp_echo(type=0, id=0x7B)),
)
"""The peer has the tester's address: whether it asks for it to send an error is a matter of ICMP6-17."""

TESTS: Final = (
    Test(
        "IP4-1",
        "RFC1122-3.2.2.6",
        MUST,
        "RFC 792, RFC 1122 §3.2.2.6",
        "an echo reply has the identifier, the sequence number and the data of the request",
        Send(to_peer() / icmp_echo(id=0x7A, sequence=0x78) / DATA),
        Expect(ipv4(destination=ME4) / icmp_echo(type=0, code=0, id=0x7A, sequence=0x78) / DATA),
    ),
    Test(
        "IP4-2",
        "RFC1122-3.2.2.6",
        MUST,
        "RFC 1122 §3.2.2.6",
        "an echo reply comes from the address that the request went to",
        Send(WHOLE),
        Expect(reply(source=PEER4)),
    ),
    Test(
        "IP4-3",
        "RFC1122-3.2.1.2",
        MUST,
        "RFC 1122 §3.2.1.2",
        "a datagram whose header has a wrong checksum gets no answer",
        Send(to_peer(checksum=0xBAD0) / ECHO),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-4",
        "RFC1122-3.2.1.1",
        MUST,
        "RFC 1122 §3.2.1.1",
        "a datagram whose version is not 4 gets no answer",
        Send(to_peer(version=5) / ECHO),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-5",
        "RFC791-3.1",
        MUST,
        "RFC 791 §3.1",
        "a datagram whose header is shorter than 20 bytes gets no answer",
        Send(to_peer(header_words=4) / ECHO),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-6",
        "RFC791-3.1",
        MUST,
        "RFC 791 §3.1",
        "a datagram that is shorter than its length says gets no answer",
        Send(to_peer(length=20 + SIZE + 64) / ECHO),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-7",
        "RFC791-3.1-length",
        MUST,
        "RFC 791 §3.1",
        "what follows the length of a datagram is no part of it",
        Send(to_peer(length=36) / icmp_echo(id=0x79) / (b"the data" + bytes(8))),
        Expect(reply() / b"the data"),
    ),
    Test(
        "IP4-8",
        "RFC792-sum",
        MUST,
        "RFC 792",
        "an echo request whose checksum is wrong gets no answer",
        Send(to_peer() / icmp_echo(id=0x79, checksum=0xBAD0)),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-9",
        "RFC792-sum",
        MUST,
        "RFC 791 §3.1, RFC 792",
        "the checksums of an echo reply are right",
        Send(WHOLE),
        Expect(ipv4(destination=ME4, sound=1) / icmp_echo(type=0, id=0x79, sound=1)),
    ),
    Test(
        "IP4-10",
        "RFC1122-3.2.1.3-source",
        MUST,
        "RFC 1122 §3.2.1.3",
        "a datagram from the broadcast address gets no answer",
        Send(to_peer(source="255.255.255.255") / ECHO),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-11",
        "RFC1122-3.2.1.3-source",
        MUST,
        "RFC 1122 §3.2.1.3",
        "a datagram from a multicast address gets no answer",
        Send(to_peer(source="224.0.0.1") / ECHO),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-12",
        "RFC1122-3.2.1.3-destination",
        MUST,
        "RFC 1122 §3.2.1.3",
        "a datagram to another host's address gets no answer",
        Send(to_peer(destination=FREE4) / ECHO),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-13",
        "RFC1122-3.2.1.3-destination",
        MUST,
        "RFC 1122 §3.2.1.3 (g)",
        "a datagram to the loopback address that comes by the link gets no answer",
        Send(to_peer(destination="127.0.0.1") / ECHO),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-14",
        "RFC1122-3.2.1.7",
        MUST,
        "RFC 1122 §3.2.1.7",
        "the destination takes a datagram whose time to live is 1",
        Send(to_peer(ttl=1) / ECHO),
        Expect(reply()),
    ),
    Test(
        "IP4-15",
        "RFC1122-3.2.1.8",
        MUST,
        "RFC 1122 §3.2.1.8",
        "an unknown option is ignored",
        Send(to_peer() / router_alert(option=0x9E04) / ECHO),
        Expect(reply()),
    ),
    Test(
        "IP4-16",
        "RFC1122-3.2.2.1",
        SHOULD,
        "RFC 1122 §3.2.2.1",
        "an unknown protocol is answered by destination unreachable, code 2",
        KNOWN,
        Send(UNKNOWN),
        Expect(ipv4(destination=ME4) / icmp_unreachable(code=2)),
    ),
    Test(
        "IP4-17",
        "RFC1122-4.1.3.1",
        SHOULD,
        "RFC 1122 §3.2.2.1, §4.1.3.1",
        "a datagram to a UDP port that nobody has is answered by destination unreachable, code 3",
        KNOWN,
        Send(to_peer() / udp(source_port=791, destination_port=CLOSED_PORT) / DATA),
        Expect(ipv4(destination=ME4) / icmp_unreachable(code=3)),
    ),
    Test(
        "IP4-18",
        "RFC1122-3.2.2-quote",
        MUST,
        "RFC 1122 §3.2.2",
        "an error quotes the header and the 8 bytes behind it as they came",
        KNOWN,
        Send(UNKNOWN),
        Expect(icmp_unreachable() / Cut(UNKNOWN, without=0)),
    ),
    Test(
        "IP4-19",
        "RFC1122-3.2.2-type",
        MUST,
        "RFC 1122 §3.2.2",
        "an ICMP message of an unknown type gets no answer",
        KNOWN,
        Send(to_peer() / icmp_echo(type=200, id=0x79)),
        Silence(ANY_ERROR),
        Silence(ANY_REPLY),
    ),
    Test(
        "IP4-20",
        "RFC1122-3.2.2-group",
        MUST,
        "RFC 1122 §3.2.2",
        "a broadcast of an unknown protocol causes no error",
        KNOWN,
        Send(to_peer(destination="255.255.255.255", protocol=253) / DATA, to=BROADCAST),
        Silence(ANY_ERROR),
    ),
    Test(
        "IP4-21",
        "RFC1122-3.2.2-group",
        MUST,
        "RFC 1122 §3.2.2",
        "a multicast datagram of an unknown protocol causes no error",
        KNOWN,
        Send(to_peer(destination="224.0.0.1", protocol=253) / DATA, to="224.0.0.1"),
        Silence(ANY_ERROR),
    ),
    Test(
        "IP4-22",
        "RFC1122-3.2.2-link",
        MUST,
        "RFC 1122 §3.2.2",
        "a unicast datagram that comes by the link's broadcast group causes no error",
        KNOWN,
        Send(UNKNOWN, to=BROADCAST),
        Silence(ANY_ERROR),
    ),
    Test(
        "IP4-23",
        "RFC1122-3.2.2-fragment",
        MUST,
        "RFC 1122 §3.2.2",
        "a fragment that is not the first causes no error",
        KNOWN,
        Send(piece(64, SIZE, protocol=253)),
        Silence(ANY_ERROR),
    ),
    Test(
        "IP4-24",
        "RFC1122-3.3.6",
        SHOULD,
        "RFC 1122 §3.3.6",
        "a unicast datagram that comes by the link's broadcast group is discarded",
        Send(WHOLE, to=BROADCAST),
        Silence(ANY_REPLY),
    ),
    Test(
        "FRAG4-1",
        "RFC791-3.2",
        MUST,
        "RFC 791 §3.2",
        "a datagram of two fragments is answered",
        Send(piece(0, 64)),
        Send(piece(64, SIZE)),
        Expect(reply() / DATA),
    ),
    Test(
        "FRAG4-2",
        "RFC791-3.2",
        MUST,
        "RFC 791 §3.2",
        "a datagram whose last fragment comes first is answered",
        Send(piece(64, SIZE)),
        Send(piece(0, 64)),
        Expect(reply() / DATA),
    ),
    Test(
        "FRAG4-3",
        "RFC791-3.2",
        MUST,
        "RFC 791 §3.2",
        "a datagram whose middle fragment comes last is answered",
        Send(piece(0, 48)),
        Send(piece(96, SIZE)),
        Send(piece(48, 96)),
        Expect(reply() / DATA),
    ),
    Test(
        "FRAG4-4",
        "RFC791-3.2",
        MUST,
        "RFC 791 §3.2",
        "a datagram of which a fragment lacks gets no answer",
        Send(piece(0, 48)),
        Send(piece(96, SIZE)),
        Silence(ANY_REPLY),
    ),
    Test(
        "FRAG4-5",
        "RFC791-3.2-key",
        MUST,
        "RFC 791 §3.2",
        "fragments of two identifications make no datagram",
        Send(piece(0, 64)),
        Send(piece(64, SIZE, id=OTHER_ID)),
        Silence(ANY_REPLY),
    ),
    Test(
        "FRAG4-6",
        "RFC791-3.2-key",
        MUST,
        "RFC 791 §3.2",
        "fragments of two sources make no datagram",
        Send(piece(0, 64, source=FREE4)),
        Send(piece(64, SIZE)),
        Silence(ANY_REPLY),
    ),
    Test(
        "FRAG4-7",
        "RFC791-3.2-key",
        MUST,
        "RFC 791 §3.2",
        "fragments of two protocols make no datagram",
        Send(piece(64, SIZE, protocol=17)),
        Send(piece(0, 64)),
        Silence(ANY_REPLY),
    ),
    Test(
        "FRAG4-8",
        "RFC1122-3.3.2",
        MUST,
        "RFC 1122 §3.3.2",
        "a datagram of 576 bytes in two fragments is answered",
        Send(piece(0, 552, LARGE, more_fragments=1)),
        Send(piece(552, 556, LARGE, more_fragments=0)),
        Expect(reply()),
    ),
)
