# SPDX-License-Identifier: BSD-2-Clause
"""Routers, prefixes and redirects: RFC 4861 §6 and §8.

Each test makes the tester a router for some seconds, which changes where the peer sends to: destructive. It
pings from an address that is not on the link, whose answers go to the router. Its lifetime is over soon even
if the test does not come to its end.
"""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.ip import echo6, ipv6
from ipoibu.conform.headers.nd import (
    ns,
    option,
    prefix_option,
    ra,
    redirect,
    source_option,
    target_option,
)
from ipoibu.conform.packet import Given, Packet, Symbol
from ipoibu.conform.symbols import (
    ALL_NODES,
    FREE6,
    ME6,
    ME6_GLOBAL,
    MY_HW,
    OTHER_HW,
    PEER6_GLOBAL,
    within,
)
from ipoibu.conform.tables.rfc4861 import (
    ANSWER,
    OTHER,
    QUESTION,
    SOON,
    ask,
    ping,
    pong,
    tell,
)
from ipoibu.conform.test import MUST, SHOULD, Answer, Expect, Send, Silence, Step, Test, Wait

FAR: Final = within("2001:db8:ffff:1::", ME6)  # nobody's; a test's own
ON_LINK: Final = within("2001:db8:ffff:2::", ME6)
OFF_LINK: Final = within("2001:db8:ffff:3::", ME6)
HIGH: Final = 1  # preference (RFC 4191): before a router that the peer has


def router(
    source: Given = ME6, hwaddr: Given = MY_HW, *, received: int = 255, **values: Given
) -> Packet:
    """An advertisement of the tester; `received` is the hop limit that it arrives with."""
    given: dict[str, Given] = {"hop_limit": 0, "preference": HIGH, "lifetime_s": 12}
    head = ipv6(source=source, destination=ALL_NODES, hop_limit=received)
    return head / ra(**(given | values)) / source_option(hwaddr=hwaddr)


def better(target: Given, source: Given = ME6, hop_limit: int = 255, **values: Given) -> Packet:
    """A redirect of the tester: `target` with the tester's other address is better for `FAR`."""
    given: dict[str, Given] = {"target": target, "destination": FAR}
    head = ipv6(source=source, destination=PEER6_GLOBAL, hop_limit=hop_limit)
    return head / redirect(**(given | values)) / target_option(hwaddr=OTHER_HW)


def far(number: int) -> Send:
    return Send(ping(number, FAR, PEER6_GLOBAL))


def by_us(number: int) -> Expect:
    """The answer comes to us as the router."""
    return Expect(pong(number, FAR))


def not_by_us(number: int) -> Silence:
    return Silence(pong(number, FAR))


def prefix(address: str, *, on_link: int = 1, valid_s: int = 12) -> Packet:
    """An advertisement with a prefix that makes no addresses."""
    return router() / prefix_option(
        on_link=on_link, autonomous=0, valid_s=valid_s, preferred_s=valid_s, prefix=address
    )


ROUTER: Final[tuple[Step, ...]] = (
    Answer(True, as_router=True),
    Send(router(), to=ALL_NODES),
    SOON,
)
END: Final[tuple[Step, ...]] = (Send(router(lifetime_s=0), to=ALL_NODES), SOON)
IN_USE: Final = (*ROUTER, far(1), by_us(1))
INVALID: Final = "RFC 4861 §6.1.2, TAHI 2.2"
INVALID_REDIRECT: Final = "RFC 4861 §8.1"


def not_valid(letter: str, title: str, packet: Packet) -> Test:
    """An advertisement that teaches the host nothing: it asks for the router's address."""
    return Test(
        f"RA-2{letter}",
        "N2",
        MUST,
        INVALID,
        title,
        Answer(False),
        Send(packet, to=ALL_NODES),
        SOON,
        Send(ping(1)),
        Expect(QUESTION),
        cleanup=END,
        destructive=True,
    )


def no_redirect(letter: str, clause: str, title: str, packet: Packet) -> Test:
    """A redirect that is dropped: packets go to the router all the same."""
    return Test(
        f"RD-2{letter}",
        clause,
        MUST,
        INVALID_REDIRECT,
        title,
        IN_USE,
        Send(packet),
        SOON,
        far(2),
        by_us(2),
        cleanup=END,
        destructive=True,
    )


TESTS: Final = (
    # These need a host without another router of ours: a host that keeps one fails the last of them alone.
    Test(
        "RA-4",
        "RFC4861-6.3.5",
        MUST,
        "RFC 4861 §6.3.5, TAHI 2.2",
        "a router whose lifetime is over is no default router any more",
        Answer(True, as_router=True),
        Send(router(lifetime_s=2), to=ALL_NODES),
        SOON,
        far(1),
        by_us(1),
        Wait(3),
        far(2),
        not_by_us(2),
        cleanup=END,
        destructive=True,
    ),
    Test(
        "ND-2.1.21A",
        "N10",
        MUST,
        "RFC 4861 §7.2.5, TAHI 2.1.21",
        "a solicited advertisement without the Router flag ends a router's role",
        IN_USE,
        Send(tell(1, 1)),
        SOON,
        far(2),
        not_by_us(2),
        cleanup=END,
        destructive=True,
    ),
    Test(
        "ND-2.1.21B",
        "N10",
        MUST,
        "RFC 4861 §7.2.5, TAHI 2.1.21",
        "an unsolicited advertisement without the Router flag ends a router's role",
        IN_USE,
        Send(tell(0, 0)),
        SOON,
        far(2),
        not_by_us(2),
        cleanup=END,
        destructive=True,
    ),
    Test(
        "RA-3",
        "RFC4861-6.3.4-router",
        MUST,
        "RFC 4861 §6.3.4, TAHI 2.2",
        "a router that advertises a lifetime of 0 is no default router any more",
        IN_USE,
        END,
        far(2),
        not_by_us(2),
        cleanup=END,
        destructive=True,
    ),
    # the rest does not mind
    Test(
        "RA-1",
        "N7",
        MUST,
        "RFC 4861 §6.3.4",
        "the host learns a router's address from its advertisement",
        Answer(False),
        Send(router(), to=ALL_NODES),
        SOON,
        Send(ping(1)),
        Expect(pong(1)),
        Silence(QUESTION),
        cleanup=END,
        destructive=True,
    ),
    Test(
        "RA-5",
        "RFC4861-6.3.4-hop-limit",
        SHOULD,
        "RFC 4861 §6.3.4, TAHI 2.2",
        "the host sends with the hop limit that a router advertises",
        Answer(True, as_router=True),
        Send(ping(1)),
        Expect(pong(1), keep={"hop_limit_before": ("ipv6", "hop_limit")}),
        Send(router(hop_limit=77), to=ALL_NODES),
        SOON,
        Send(ping(2)),
        Expect(ipv6(destination=ME6, hop_limit=77) / echo6(type=129, sequence=2)),
        cleanup=(
            Send(router(hop_limit=Symbol("hop_limit_before"), lifetime_s=0), to=ALL_NODES),
            SOON,
        ),
        destructive=True,
    ),
    Test(
        "RA-6",
        "N8",
        SHOULD,
        "RFC 4861 §6.3.4, TAHI 2.2",
        "the host asks again after the retransmission timer that a router advertises",
        Answer(True, as_router=True),
        Send(router(retransmit_ms=400), to=ALL_NODES),
        SOON,
        Send(ping(1, FREE6)),
        Expect(ns(target=FREE6), count=2, apart_s=(0.25, 0.7)),
        cleanup=(Send(router(retransmit_ms=1000, lifetime_s=0), to=ALL_NODES), SOON),
        destructive=True,
    ),
    Test(
        "RA-7",
        "N8",
        SHOULD,
        "RFC 4861 §6.3.4, TAHI 2.2",
        "the host doubts a neighbour after the reachable time that a router advertises",
        Send(router(reachable_ms=1000), to=ALL_NODES),
        SOON,
        Send(ping(1, ME6_GLOBAL, PEER6_GLOBAL)),
        Expect(pong(1, ME6_GLOBAL)),
        Wait(2),
        Send(ping(2, ME6_GLOBAL, PEER6_GLOBAL)),
        Expect(ns(target=ME6_GLOBAL), within_s=6.5),
        cleanup=(Send(router(reachable_ms=30000, lifetime_s=0), to=ALL_NODES), SOON),
        destructive=True,
    ),
    Test(
        "RA-9",
        "N13",
        MUST,
        "RFC 4861 §7.3.3, §10",
        "a router that is confirmed is not asked again for the reachable time",
        Answer(True, as_router=True),
        Send(router(lifetime_s=30), to=ALL_NODES),
        SOON,
        far(1),
        by_us(1),
        Send(tell(1, 1, router=1)),
        Wait(9),
        far(2),
        by_us(2),
        Silence(QUESTION, for_s=5.5),
        cleanup=END,
        destructive=True,
    ),
    # §7.2.3, §7.2.5: a router's role
    Test(
        "ND-2.1.13",
        "N5",
        MUST,
        "RFC 4861 §7.2.3, TAHI 2.1.13",
        "a router that solicits stays a router",
        IN_USE,
        Send(ask()),
        Expect(ANSWER),
        far(2),
        by_us(2),
        cleanup=END,
        destructive=True,
    ),
    Test(
        "ND-2.1.21C",
        "N10",
        MUST,
        "RFC 4861 §7.2.5, TAHI 2.1.21",
        "an advertisement with the Router flag keeps a router's role",
        IN_USE,
        Send(tell(1, 1, router=1)),
        SOON,
        far(2),
        by_us(2),
        cleanup=END,
        destructive=True,
    ),
    Test(
        "ND-2.1.21D",
        "N10",
        MUST,
        "RFC 4861 §7.2.5, TAHI 2.1.21",
        "an advertisement without an effect (O=0, another address) leaves a router its role",
        IN_USE,
        Send(tell(0, 0, OTHER_HW), by=OTHER),
        SOON,
        far(2),
        by_us(2),
        cleanup=END,
        destructive=True,
    ),
    # §6.3.4: prefixes
    Test(
        "ND-2.1.3A",
        "RFC4861-6.3.4-prefix",
        MUST,
        "RFC 4861 §6.3.4, TAHI 2.1.1, 2.1.3",
        "an address of a prefix that a router advertises as on-link is asked for on the link",
        ROUTER,
        Send(prefix("2001:db8:ffff:2::"), to=ALL_NODES),
        SOON,
        Send(ping(1, ON_LINK, PEER6_GLOBAL)),
        Expect(ns(target=ON_LINK)),
        cleanup=END,
        destructive=True,
    ),
    Test(
        "ND-2.1.3B",
        "RFC4861-6.3.4-prefix",
        MUST,
        "RFC 4861 §6.3.4, TAHI 2.1.1, 2.1.3",
        "an address of a prefix without the on-link flag is reached by the router",
        ROUTER,
        Send(prefix("2001:db8:ffff:3::", on_link=0), to=ALL_NODES),
        SOON,
        Send(ping(1, OFF_LINK, PEER6_GLOBAL)),
        Expect(pong(1, OFF_LINK)),
        Silence(ns(target=OFF_LINK)),
        cleanup=END,
        destructive=True,
    ),
    Test(
        "ND-2.1.4",
        "RFC4861-6.3.4-prefix",
        MUST,
        "RFC 4861 §6.3.4, TAHI 2.1.4",
        "a prefix that a router advertises with a lifetime of 0 is on the link no more",
        ROUTER,
        Send(prefix("2001:db8:ffff:2::"), to=ALL_NODES),
        SOON,
        Send(prefix("2001:db8:ffff:2::", valid_s=0), to=ALL_NODES),
        SOON,
        Send(ping(1, ON_LINK, PEER6_GLOBAL)),
        Expect(pong(1, ON_LINK)),
        Silence(ns(target=ON_LINK)),
        cleanup=END,
        destructive=True,
    ),
    # §8: redirects
    Test(
        "RD-1A",
        "RFC4861-8.3",
        SHOULD,
        "RFC 4861 §8.3",
        "the host sends to a better router that the first one names",
        IN_USE,
        Send(better(FREE6)),
        SOON,
        far(2),
        Expect(pong(2, FAR), by=OTHER),
        cleanup=END,
        destructive=True,
    ),
    Test(
        "RD-1B",
        "RFC4861-8.3",
        SHOULD,
        "RFC 4861 §8.3",
        "the host sends at once to a destination that the router names as on the link",
        IN_USE,
        Send(better(FAR)),
        SOON,
        far(2),
        Expect(pong(2, FAR), by=OTHER),
        cleanup=END,
        destructive=True,
    ),
    no_redirect(
        "A",
        "RFC4861-8.1",
        "a redirect of a host that is not the destination's first hop is dropped",
        better(FREE6, source=FREE6),
    ),
    no_redirect(
        "B",
        "RFC4861-8.1",
        "a redirect to a target that is neither link-local nor the destination is dropped",
        better(ME6_GLOBAL),
    ),
    no_redirect(
        "C", "N2", "a redirect with hop limit 254 is dropped", better(FREE6, hop_limit=254)
    ),
    no_redirect("D", "N2", "a redirect with code 1 is dropped", better(FREE6, code=1)),
    no_redirect(
        "E", "N2", "a redirect with a wrong checksum is dropped", better(FREE6, checksum=0x1234)
    ),
    # the only test with two routers
    Test(
        "RA-8",
        "N9",
        MUST,
        "RFC 4861 §6.3.6, TAHI 2.2",
        "of two routers the host uses the one that answers",
        Answer(True, as_router=True),
        Send(router(lifetime_s=30), to=ALL_NODES),
        SOON,
        Send(router(FREE6, OTHER_HW, lifetime_s=30), to=ALL_NODES, by=OTHER),
        SOON,
        Send(ping(1, FAR, PEER6_GLOBAL), times=10, every_s=1),
        far(2),
        by_us(2),
        cleanup=(*END, Send(router(FREE6, OTHER_HW, lifetime_s=0), to=ALL_NODES, by=OTHER), SOON),
        destructive=True,
    ),
    # advertisements that are not valid; a host that takes them has a router for some seconds more
    not_valid("A", "an advertisement with hop limit 254 is dropped", router(received=254)),
    not_valid("B", "an advertisement with a wrong checksum is dropped", router(checksum=0x1234)),
    not_valid("C", "an advertisement with code 1 is dropped", router(code=1)),
    not_valid(
        "D",
        "an advertisement with an option of length 0 is dropped",
        router() / option(type=200) / bytes(6),
    ),
    Test(
        "RA-2E",
        "N2",
        MUST,
        INVALID,
        "an advertisement whose source is a global address is dropped",
        Answer(False),
        Send(router(ME6_GLOBAL), to=ALL_NODES),
        SOON,
        Send(ping(1, ME6_GLOBAL, PEER6_GLOBAL)),
        Expect(ns(target=ME6_GLOBAL)),
        cleanup=(Send(router(ME6_GLOBAL, lifetime_s=0), to=ALL_NODES), SOON),
        destructive=True,
    ),
)
