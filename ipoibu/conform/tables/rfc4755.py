# SPDX-License-Identifier: BSD-2-Clause
"""Connected mode: RFC 4755. The messages themselves are in `iba_cm`."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.connection import (
    ANSWERED_BY,
    CARRIED,
    CONNECTED,
    ENDED,
    GRANT,
    GRANTED,
    LINUX_FORM,
    OF_OFFER,
    OFFER,
    ON_IPV4,
    ON_IPV6,
    PING,
    PONG,
    RC_FLAG,
    READY,
    RFC_FORM,
    THEIR_ID,
    THEIR_SERVICE,
    THEIR_TID,
    asked,
    grant,
    offered,
    request,
    tell,
    told,
)
from ipoibu.conform.headers.cm import (
    ABOUT_REQ,
    CONSUMER,
    INVALID_SERVICE_ID,
    mad,
    rej,
    rep,
    rep_private,
    req,
    req_private,
)
from ipoibu.conform.headers.ip import echo6, fragment, icmp_echo, ipv4, ipv6
from ipoibu.conform.headers.link import arp, encap
from ipoibu.conform.headers.nd import na, ns, source_option, target_option
from ipoibu.conform.link import QueuePair
from ipoibu.conform.packet import (
    Cut,
    Derived,
    Fill,
    Names,
    Packet,
    Rule,
    Symbol,
    at_least,
    other_than,
)
from ipoibu.conform.symbols import (
    BROADCAST,
    COMM_ID,
    COMM_ID2,
    FREE4,
    ME4,
    ME6,
    MTU,
    MY_HW,
    OTHER_HW,
    PEER4,
    PEER6,
    PEER_HW,
    TID,
    of_test,
    qpn_of,
    solicited,
    with_flags,
)
from ipoibu.conform.test import (
    MUST,
    SHOULD,
    Answer,
    Connect,
    Expect,
    Need,
    Repeat,
    Require,
    Send,
    Silence,
    Test,
    Try,
    Wait,
)

RC: Final = QueuePair.RC
LONG: Final = 6000  # bytes of a packet that no datagram carries
LATER_PING: Final = ipv4(source=ME4, destination=PEER4) / icmp_echo(id=7, sequence=2)
LATER_PONG: Final = ipv4(source=PEER4, destination=ME4) / icmp_echo(type=0, id=7, sequence=2)
"""The answer to an earlier ping may still be on its way."""
TAKES_CONNECTIONS: Final = Rule(
    "the flag 0x80", lambda value: isinstance(value, bytes) and bool(value[0] & RC_FLAG)
)
ASK: Final = arp(sender_hwaddr=MY_HW, sender_ip=ME4, target_ip=PEER4)
ASK_AGAIN: Final = arp(sender_hwaddr=with_flags(MY_HW, RC_FLAG), sender_ip=ME4, target_ip=PEER4)
TOLD: Final = arp(operation=2, target_ip=ME4)
SOLICIT: Final = (
    ipv6(source=ME6, destination=PEER6, hop_limit=255)
    / ns(target=PEER6)
    / source_option(hwaddr=with_flags(MY_HW, RC_FLAG))
)
ADVERTISED: Final = ipv6(source=PEER6, destination=ME6) / na(target=PEER6)
LONG_PING: Final = ipv4(source=ME4, destination=PEER4) / icmp_echo(id=8, sequence=1) / Fill(of=LONG)
LONG_PONG: Final = ipv4(source=PEER4, destination=ME4, length=LONG, more_fragments=0)
SHORT: Final = 5004  # bytes of a receive MTU
CUT_AT: Final = 480
IN_FRAGMENTS: Final = tuple(
    Send(
        ipv4(
            source=ME4,
            destination=PEER4,
            protocol=1,
            id=of_test(26),
            fragment_offset=first // 8,
            more_fragments=int(first + CUT_AT < LONG - 20),
        )
        / Cut(LONG_PING, first, first + CUT_AT)
    )
    for first in range(0, LONG - 20, CUT_AT)
)
LONG_PING6: Final = ipv6(source=ME6, destination=PEER6) / echo6(id=8, sequence=1) / Fill(of=LONG)


OFFERED_AGAIN: Final = told(OFFER, within_s=1.0, keep=OF_OFFER)
CROSSING_ID: Final = Symbol("crossing_id")
ANSWERED: Final = (
    Try(
        (
            told(mad() / rep(remote_id=COMM_ID2), keep={"crossing_id": ("cm_rep", "local_id")}),
            tell(
                mad(tid=TID)
                / rej(local_id=COMM_ID2, remote_id=CROSSING_ID, about=1, reason=CONSUMER)
            ),
        ),
        (told(mad() / rej(remote_id=COMM_ID2, reason=other_than(INVALID_SERVICE_ID))),),
    ),
)
"""The peer has granted our second request, which we take back, or has refused it."""


def crossing(form: int) -> Send:
    return tell(request(form, local_id=COMM_ID2))


def refusal(reason: int) -> Packet:
    """A REJ for the peer's REQ."""
    return mad(tid=THEIR_TID) / rej(remote_id=THEIR_ID, about=ABOUT_REQ, reason=reason)


def no_less_than(of: Symbol, more: int) -> Derived:
    def least(names: Names) -> Rule:
        value = names[of.name]
        assert isinstance(value, int)
        return at_least(value + more)

    return Derived(f"at least {of}{more:+d}", least)


def form_for(of: Symbol, form: int, other: int = 0) -> Derived:
    """The service ID of a form for the queue pair of an address, or for a different queue pair."""

    def service(names: Names) -> int:
        value = names[of.name]
        assert isinstance(value, bytes)
        return form | int.from_bytes(value[1:4], "big") ^ other

    return Derived(
        f"the service ID {form:#x} for {of}" + (" and another" if other else ""), service
    )


OTHER: Final = QueuePair.OTHER
AT_OTHER: Final = (
    Answer(False),
    Send(arp(sender_hwaddr=OTHER_HW, sender_ip=ME4, target_ip=PEER4), to=BROADCAST, by=OTHER),
    Send(arp(operation=2, sender_hwaddr=OTHER_HW, sender_ip=ME4, target_ip=PEER4), by=OTHER),
    Wait(0.2),  # whether the answer comes here is a matter of R1
)
"""The tester is a neighbour that never offered connections: a host may keep offers by hardware address."""
AT_OTHER6: Final = (
    Answer(False),
    Send(
        ipv6(source=ME6, destination=PEER6, hop_limit=255)
        / ns(target=PEER6)
        / source_option(hwaddr=OTHER_HW),
        by=OTHER,
    ),
    Expect(ADVERTISED, by=OTHER),
)

TESTS: Final = (
    Test(
        "CM-1",
        "C1",
        MUST,
        "RFC 4755 §3.1",
        "a host in connected mode says so in its ARP replies by the flag 0x80 of its address",
        Send(ASK, to=BROADCAST),
        Expect(arp(operation=2, sender_hwaddr=TAKES_CONNECTIONS, target_ip=ME4)),
        needs=(Need.IPV4, Need.CONNECTED),
    ),
    Test(
        "CM-2",
        "C1",
        MUST,
        "RFC 4755 §3.1",
        "a host in connected mode says so in its neighbour advertisements, too",
        Send(
            ipv6(source=ME6, destination=solicited(PEER6), hop_limit=255)
            / ns(target=PEER6)
            / source_option(hwaddr=MY_HW),
            to=solicited(PEER6),
        ),
        Expect(na(target=PEER6) / target_option(hwaddr=TAKES_CONNECTIONS)),
        needs=(Need.IPV6, Need.CONNECTED),
    ),
    Test(
        "CM-3",
        "C7",
        MUST,
        "RFC 4755 §3.5",
        "the host takes connections at the service ID 01 00 00 00 00 and its queue pair",
        Connect(),
        tell(request(RFC_FORM)),
        GRANTED,
        READY,
        needs=ON_IPV4,
    ),
    Test(
        "CM-4",
        "C7",
        MUST,
        "RFC 4755 §3.5",
        "the host refuses a request at the service ID of a queue pair that it does not have",
        Connect(),
        tell(request(form_for(PEER_HW, RFC_FORM, 0x5A5A))),
        told(mad() / rej(remote_id=COMM_ID, about=0)),
        needs=ON_IPV4,
    ),
    Test(
        "CM-5",
        "C3",
        MUST,
        "RFC 4755 §6",
        "the private data of its REP has the queue pair of its datagrams",
        asked(told(GRANT / rep_private(qpn=qpn_of(PEER_HW)), keep=dict(GRANTED.keep))),
        READY,
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-6",
        "C4",
        MUST,
        "RFC 4755 §6",
        "its REP's private data begins with a zero byte, and a receive MTU no less than a datagram's",
        asked(
            told(
                GRANT / rep_private(reserved=0, receive_mtu=no_less_than(MTU, 4)),
                keep=dict(GRANTED.keep),
            )
        ),
        READY,
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-7",
        "C4",
        MUST,
        "RFC 4755 §6",
        "the first byte of the private data is reserved: a request with other bits there is granted",
        asked(private={"reserved": 0xA5}),
        READY,
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-8",
        "C4",
        SHOULD,
        "RFC 4755 §6",
        "what follows the eight bytes of the private data is of no matter",
        asked(private={"rest": bytes(range(84))}),
        READY,
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-9",
        "C8",
        MUST,
        "RFC 4755 §3",
        "a ping by the tester's connection is answered",
        CONNECTED,
        Repeat((Send(PING, by=RC), Expect(PONG, within_s=1.0, by=ANSWERED_BY)), tries=3),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-10",
        "C8",
        MUST,
        "RFC 4755 §3",
        "a ping by a datagram is answered though there is a connection",
        CONNECTED,
        Repeat((Send(PING), Expect(PONG, within_s=1.0, by=ANSWERED_BY)), tries=3),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-11",
        "C5",
        MUST,
        "RFC 4755 §5.1",
        "the host takes messages up to the receive MTU that it has declared",
        AT_OTHER,
        CONNECTED,
        Repeat(
            (
                Send(
                    ipv4(source=ME4, destination=PEER4)
                    / icmp_echo(id=8, sequence=1)
                    / Fill(more=-4, of="their_mtu"),
                    by=RC,
                ),
                Expect(ipv4(source=PEER4, destination=ME4, protocol=1), within_s=1.0, by=OTHER),
            )
        ),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-12",
        "C13",
        MUST,
        "RFC 4755 §7.2",
        "a long IPv4 answer to a neighbour without connections comes in fragments, once the host knows",
        AT_OTHER,
        CONNECTED,
        Repeat(
            (
                Send(LONG_PING, by=RC),
                Expect(
                    ipv4(source=PEER4, destination=ME4, more_fragments=1), within_s=1.0, by=OTHER
                ),
            )
        ),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-13",
        "C13",
        MUST,
        "RFC 4755 §7.2",
        "a long IPv6 answer to a neighbour without connections comes in fragments, once the host knows",
        AT_OTHER6,
        CONNECTED,
        Repeat(
            (
                Send(LONG_PING6, by=RC),
                Expect(
                    ipv6(source=PEER6, destination=ME6) / fragment(more=1), within_s=1.0, by=OTHER
                ),
            )
        ),
        needs=ON_IPV6,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-14",
        "C9",
        SHOULD,
        "RFC 4755 §4",
        "only IPv4 and IPv6 go by connections: an ARP request by a connection gets no answer",
        CONNECTED,
        Send(ASK, by=RC),
        Silence(TOLD),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-15",
        "RFC4755-4",
        MUST,
        "RFC 4755 §4",
        "a message of an unknown type does no harm to the connection",
        CONNECTED,
        Send(encap(type=0x88B5) / bytes(64), by=RC),
        Repeat((Send(PING, by=RC), Expect(PONG, within_s=1.0, by=ANSWERED_BY)), tries=3),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-25",
        "RFC4755-4",
        MUST,
        "RFC 4755 §4",
        "a message without anything behind the encapsulation header does no harm to the connection",
        CONNECTED,
        Send(encap(type=0x0800) / b"", by=RC),
        Repeat((Send(PING, by=RC), Expect(PONG, within_s=1.0, by=ANSWERED_BY)), tries=3),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-16",
        "C7",
        MUST,
        "RFC 4755 §3.5",
        "the host asks for connections at the service ID of the RFC, or does so when another was refused",
        offered(),
        Try(
            (Require(THEIR_SERVICE, qpn_of(MY_HW, RFC_FORM)),),
            (
                tell(refusal(INVALID_SERVICE_ID)),
                Repeat(
                    (
                        Send(PING),
                        told(
                            mad() / req(service_id=qpn_of(MY_HW, RFC_FORM)),
                            within_s=1.5,
                            keep=OF_OFFER,
                        ),
                    )
                ),
            ),
        ),
        grant(),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-17",
        "C3",
        MUST,
        "RFC 4755 §6",
        "the private data of its REQ has the queue pair of its datagrams",
        offered(OFFER / req_private(qpn=qpn_of(PEER_HW))),
        grant(),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-18",
        "C4",
        MUST,
        "RFC 4755 §6",
        "its REQ's private data begins with a zero byte, and a receive MTU no less than a datagram's",
        offered(OFFER / req_private(reserved=0, receive_mtu=no_less_than(MTU, 4))),
        grant(),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-19",
        "C2",
        MUST,
        "RFC 4755 §2.2",
        "ARP replies go by datagrams though the host has a connection",
        offered(),
        grant(),
        CARRIED,
        Send(ASK_AGAIN, to=BROADCAST),
        Expect(TOLD),
        Silence(TOLD, by=RC),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-20",
        "C2",
        MUST,
        "RFC 4755 §2.2",
        "neighbour advertisements go by datagrams though the host has a connection",
        offered(),
        grant(),
        CARRIED,
        Send(SOLICIT),
        Expect(ADVERTISED),
        Silence(ADVERTISED, by=RC),
        needs=(*ON_IPV4, Need.IPV6),
        cleanup=(ENDED,),
    ),
    Test(
        "CM-21",
        "C2",
        MUST,
        "RFC 4755 §2.1",
        "packets to groups go by datagrams though the host has a connection",
        offered(),
        grant(),
        CARRIED,
        Send(ipv4(source=FREE4, destination=PEER4) / icmp_echo(id=9, sequence=1)),
        Expect(arp(operation=1, target_ip=FREE4)),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-26",
        "C12",
        SHOULD,
        "RFC 4755 §7.2",
        "a packet longer than a datagram goes whole by a connection that takes it",
        offered(),
        grant(),
        CARRIED,
        Repeat(
            (
                *IN_FRAGMENTS,
                Expect(LONG_PONG / icmp_echo(type=0, id=8), within_s=1.0, by=RC),
            )
        ),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-27",
        "C5",
        MUST,
        "RFC 4755 §5.1",
        "no message of the host is longer than the receive MTU of the other side",
        offered(),
        grant(SHORT),
        CARRIED,
        *IN_FRAGMENTS,
        Silence(ipv4(source=PEER4, destination=ME4, length=at_least(SHORT - 3)), for_s=0.5, by=RC),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-22",
        "C6",
        MUST,
        "RFC 4755 §3.3",
        "a request that crosses the host's own is granted or refused, but not left alone",
        offered(),
        Connect(),
        Try((crossing(LINUX_FORM), *ANSWERED), (crossing(RFC_FORM), *ANSWERED)),
        grant(),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
    Test(
        "CM-23",
        "RFC4755-3.2",
        SHOULD,
        "RFC 4755 §3.2",
        "a neighbour that refuses the host's request gets datagrams",
        offered(),
        tell(refusal(CONSUMER)),
        Repeat((Send(LATER_PING), Expect(LATER_PONG, within_s=1.0, by=ANSWERED_BY)), tries=3),
        needs=ON_IPV4,
    ),
    Test(
        "CM-24",
        "RFC4755-3.4",
        MUST,
        "RFC 4755 §3.4",
        "after the end of its connection the host's answers go by datagrams, or it asks for a new one",
        offered(),
        grant(),
        CARRIED,
        ENDED,
        Connect(),
        Repeat(
            (
                Send(LATER_PING),
                Try(
                    (Expect(LATER_PONG, within_s=1.0, by=ANSWERED_BY),),
                    (told(OFFER, within_s=1.0, keep=OF_OFFER), *grant(), ENDED),
                ),
            ),
            tries=12,
        ),
        needs=ON_IPV4,
        cleanup=(ENDED,),
    ),
)
