# SPDX-License-Identifier: BSD-2-Clause
"""IPv6: RFC 8200; for fragments RFC 5722, RFC 6946 and RFC 7112; RFC 4291 for addresses."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import (
    destination_options,
    echo6,
    fragment,
    hop_by_hop,
    icmpv6_error,
    ipv6,
    routing,
)
from ipoibu.conform.packet import Cut, Given, Layer, Packet
from ipoibu.conform.symbols import ALL_NODES, FREE6, ME6, PEER6, of_test
from ipoibu.conform.test import MUST, SHOULD, Expect, Need, Send, Silence, Test

DATA: Final = bytes(range(128))
NEEDS: Final = (Need.IPV6,)


def to_peer(**values: Given) -> Layer:
    """An IPv6 header from the tester to the peer."""
    return ipv6(**{"source": ME6, "destination": PEER6} | values)


def reply(**values: Given) -> Packet:
    """The answer to `ECHO`, wherever its other fields come from."""
    return ipv6(destination=ME6, **values) / echo6(type=129, id=0x82)


def error(code: int, pointer: int) -> Layer:
    """A parameter problem."""
    return icmpv6_error(type=4, code=code, pointer=pointer)


ID: Final = of_test(0)
OTHER_ID: Final = of_test(1)
ECHO: Final = echo6(id=0x82, sequence=1) / DATA
WHOLE: Final = to_peer() / ECHO
SIZE: Final = 8 + len(DATA)
ANY_REPLY: Final = echo6(type=129, id=0x82)
ANY_ERROR: Final = icmpv6_error()


def piece(first: int, end: int, of: Packet = WHOLE, source: Given = ME6, **values: Given) -> Packet:
    """Bytes `first` to `end` of what follows the IPv6 header of `of`, as a fragment."""
    given: dict[str, Given] = {
        "next_header": 58,
        "offset": first // 8,
        "more": int(end < SIZE),
        "id": ID,
    }
    return to_peer(source=source) / fragment(**given | values) / Cut(of, first, end)


KNOWN: Final = (Send(to_peer() / echo6(id=0x83)), Expect(echo6(type=129, id=0x83)))
"""The peer has the tester's address: whether it asks for it to send an error is a matter of ICMP6-17."""
LARGE: Final = to_peer() / echo6(id=0x82, sequence=2) / (bytes(range(242)) * 6)  # of 1500 bytes

TESTS: Final = (
    Test(
        "IP6-1",
        "RFC8200-3",
        MUST,
        "RFC 8200 §3",
        "a packet whose version is not 6 gets no answer",
        Send(to_peer(version=5) / ECHO),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "IP6-2",
        "RFC8200-3",
        MUST,
        "RFC 8200 §3",
        "a packet that is shorter than its payload length says gets no answer",
        Send(to_peer(length=SIZE + 64) / ECHO),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "IP6-3",
        "RFC8200-3",
        SHOULD,
        "RFC 8200 §3",
        "the destination processes a packet whose hop limit is 0",
        Send(to_peer(hop_limit=0) / ECHO),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "IP6-4",
        "RFC8200-6",
        MUST,
        "RFC 8200 §6, §7",
        "a packet with a flow label and a traffic class is answered",
        Send(to_peer(flow_label=0xFFFFF, traffic_class=0xFC) / ECHO),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "IP6-5",
        "RFC8200-4",
        SHOULD,
        "RFC 8200 §4",
        "an unknown next header is answered by a parameter problem, code 1, that points to its number",
        KNOWN,
        Send(to_peer(next_header=253) / DATA),
        Expect(error(1, 6)),
        needs=NEEDS,
    ),
    Test(
        "IP6-6",
        "RFC8200-4",
        SHOULD,
        "RFC 8200 §4",
        "an unknown next header behind an extension header is pointed to there",
        KNOWN,
        Send(to_peer() / destination_options(next_header=253) / DATA),
        Expect(error(1, 40)),
        needs=NEEDS,
    ),
    Test(
        "IP6-7",
        "RFC8200-4",
        SHOULD,
        "RFC 8200 §4",
        "hop-by-hop options behind another header count as an unknown next header",
        KNOWN,
        Send(to_peer() / destination_options() / hop_by_hop() / ECHO),
        Expect(error(1, 40)),
        needs=NEEDS,
    ),
    Test(
        "IP6-8",
        "RFC8200-4.1",
        MUST,
        "RFC 8200 §4.1",
        "a host processes extension headers that occur twice",
        Send(to_peer() / destination_options() / destination_options() / ECHO),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "IP6-9",
        "RFC8200-4.3",
        MUST,
        "RFC 8200 §4.3",
        "a packet with hop-by-hop options that are known is answered",
        Send(to_peer() / hop_by_hop() / ECHO),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "IP6-10",
        "RFC8200-4.7",
        MUST,
        "RFC 8200 §4.7",
        "what follows the number of no next header is ignored",
        KNOWN,
        Send(to_peer(next_header=59) / ECHO),
        Silence(ANY_REPLY),
        Silence(ANY_ERROR),
        needs=NEEDS,
    ),
    Test(
        "IP6-11",
        "RFC8200-4.2-00",
        MUST,
        "RFC 8200 §4.2",
        "an unknown option of action 00 is skipped",
        Send(to_peer() / destination_options(option=0x1E) / ECHO),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "IP6-12",
        "RFC8200-4.2-01",
        MUST,
        "RFC 8200 §4.2",
        "an unknown option of action 01 ends the packet without a word",
        KNOWN,
        Send(to_peer() / destination_options(option=0x5E) / ECHO),
        Silence(ANY_REPLY),
        Silence(ANY_ERROR),
        needs=NEEDS,
    ),
    Test(
        "IP6-13",
        "RFC8200-4.2-10",
        MUST,
        "RFC 8200 §4.2",
        "an unknown option of action 10 is answered by a parameter problem, code 2, that points to it",
        KNOWN,
        Send(to_peer() / destination_options(option=0x9E) / ECHO),
        Expect(error(2, 42)),
        needs=NEEDS,
    ),
    Test(
        "IP6-14",
        "RFC8200-4.2-10",
        MUST,
        "RFC 8200 §4.2",
        "an unknown option of action 10 in a multicast packet is answered, too",
        KNOWN,
        Send(
            to_peer(destination=ALL_NODES) / destination_options(option=0x9E) / ECHO, to=ALL_NODES
        ),
        Expect(error(2, 42)),
        needs=NEEDS,
    ),
    Test(
        "IP6-15",
        "RFC8200-4.2-11",
        MUST,
        "RFC 8200 §4.2",
        "an unknown option of action 11 is answered by a parameter problem, code 2",
        KNOWN,
        Send(to_peer() / destination_options(option=0xDE) / ECHO),
        Expect(error(2, 42)),
        needs=NEEDS,
    ),
    Test(
        "IP6-16",
        "RFC8200-4.2-11",
        MUST,
        "RFC 8200 §4.2",
        "an unknown option of action 11 ends a multicast packet without a word",
        KNOWN,
        Send(
            to_peer(destination=ALL_NODES) / destination_options(option=0xDE) / ECHO, to=ALL_NODES
        ),
        Silence(ANY_ERROR),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "IP6-17",
        "RFC8200-4.3",
        MUST,
        "RFC 8200 §4.2, §4.3",
        "an unknown hop-by-hop option of action 10 is answered by a parameter problem",
        KNOWN,
        Send(to_peer() / hop_by_hop(option1=0x9E02) / ECHO),
        Expect(error(2, 42)),
        needs=NEEDS,
    ),
    Test(
        "IP6-18",
        "RFC8200-4.4",
        MUST,
        "RFC 8200 §4.4, RFC 5095 §3",
        "a routing header of type 0 with segments left is answered by a parameter problem, code 0",
        KNOWN,
        Send(to_peer() / routing(type=0, segments_left=1) / ECHO),
        Expect(error(0, 42)),
        needs=NEEDS,
    ),
    Test(
        "IP6-19",
        "RFC8200-4.4",
        MUST,
        "RFC 8200 §4.4",
        "a routing header of an unknown type without segments left is skipped",
        Send(to_peer() / routing(type=253, segments_left=0) / ECHO),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-1",
        "RFC8200-4.5",
        MUST,
        "RFC 8200 §4.5",
        "a packet of two fragments is answered",
        Send(piece(0, 64)),
        Send(piece(64, SIZE)),
        Expect(reply() / DATA),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-2",
        "RFC8200-4.5",
        MUST,
        "RFC 8200 §4.5",
        "a packet whose last fragment comes first is answered",
        Send(piece(64, SIZE)),
        Send(piece(0, 64)),
        Expect(reply() / DATA),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-3",
        "RFC8200-4.5",
        MUST,
        "RFC 8200 §4.5",
        "a packet whose middle fragment comes last is answered",
        Send(piece(0, 48)),
        Send(piece(96, SIZE)),
        Send(piece(48, 96)),
        Expect(reply() / DATA),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-4",
        "RFC8200-4.5-id",
        MUST,
        "RFC 8200 §4.5",
        "fragments of two identifications make no packet",
        Send(piece(0, 64)),
        Send(piece(64, SIZE, id=OTHER_ID)),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-5",
        "RFC8200-4.5-source",
        MUST,
        "RFC 8200 §4.5",
        "fragments of two sources make no packet",
        Send(piece(0, 64, source=FREE6)),
        Send(piece(64, SIZE)),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-6",
        "RFC8200-4.5",
        MUST,
        "RFC 8200 §4.5",
        "a packet of which a fragment lacks gets no answer",
        Send(piece(0, 48)),
        Send(piece(96, SIZE)),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-7",
        "RFC5722-4",
        MUST,
        "RFC 5722 §4, RFC 8200 §4.5",
        "two fragments that overlap make no packet",
        Send(piece(0, 64)),
        Send(piece(56, SIZE)),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-8",
        "RFC5722-4",
        MUST,
        "RFC 5722 §4, RFC 8200 §4.5",
        "an overlap ends the whole packet: its further fragments complete nothing",
        Send(piece(0, 64)),
        Send(piece(32, 96)),
        Send(piece(96, SIZE)),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-9",
        "RFC8200-4.5-length",
        SHOULD,
        "RFC 8200 §4.5",
        "a fragment that is not the last, of no multiple of 8 bytes, is answered by a parameter problem",
        KNOWN,
        Send(piece(0, 60)),
        Expect(error(0, 4)),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-10",
        "RFC8200-4.5-length",
        SHOULD,
        "RFC 8200 §4.5",
        "a fragment that ends behind byte 65535 is answered by a parameter problem at its offset",
        KNOWN,
        Send(piece(64, 80, offset=8191, more=0)),
        Expect(error(0, 42)),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-11",
        "RFC8200-4.5-next",
        MUST,
        "RFC 8200 §4.5",
        "the next header of a fragment behind the first is of no matter",
        Send(piece(0, 64)),
        Send(piece(64, SIZE, next_header=59)),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-12",
        "RFC8200-4.5-reserved",
        MUST,
        "RFC 8200 §4.5",
        "the reserved bits of a fragment header are ignored",
        Send(piece(0, 64, reserved=0xFF, reserved2=3)),
        Send(piece(64, SIZE, reserved=0xFF, reserved2=3)),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-13",
        "RFC7112-5",
        SHOULD,
        "RFC 7112 §5, RFC 8200 §4.5",
        "a first fragment without the whole chain of headers is answered by a parameter problem, code 3",
        KNOWN,
        Send(to_peer() / fragment(more=1, id=ID) / destination_options(next_header=58)),
        Expect(error(3, 0)),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-14",
        "RFC6946-4",
        MUST,
        "RFC 6946 §4, RFC 8200 §4.5",
        "a packet that is its only fragment is answered",
        Send(to_peer() / fragment(id=ID) / ECHO),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-15",
        "RFC6946-4",
        MUST,
        "RFC 6946 §4, RFC 8200 §4.5",
        "a packet that is its only fragment has nothing to do with fragments of the same identification",
        Send(piece(0, 64)),
        Send(to_peer() / fragment(id=ID) / echo6(id=0x83)),
        Expect(ipv6(destination=ME6) / echo6(type=129, id=0x83)),
        Send(piece(64, SIZE)),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "FRAG6-16",
        "RFC8200-5",
        MUST,
        "RFC 8200 §5",
        "a packet of 1500 bytes in fragments is answered",
        Send(piece(0, 1232, LARGE, more=1)),
        Send(piece(1232, 1460, LARGE, more=0)),
        Expect(reply()),
        needs=NEEDS,
    ),
    Test(
        "IP6-20",
        "T3",
        MUST,
        "RFC 8200 §5",
        "a packet of 1280 bytes is answered by one as long, in one piece",
        Send(to_peer() / echo6(id=0x82) / bytes(1232)),
        Expect(reply(length=1240, next_header=58)),
        needs=NEEDS,
    ),
    Test(
        "IP6-21",
        "RFC4291-2.5.3",
        MUST,
        "RFC 4291 §2.5.3",
        "a packet to the loopback address that comes by the link gets no answer",
        Send(to_peer(destination="::1") / ECHO),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
    Test(
        "IP6-22",
        "RFC4291-2.7",
        MUST,
        "RFC 4291 §2.7",
        "a packet from a multicast address gets no answer",
        Send(to_peer(source=ALL_NODES) / ECHO),
        Silence(ANY_REPLY),
        needs=NEEDS,
    ),
)
