# SPDX-License-Identifier: BSD-2-Clause
"""Addresses of IPv6 hosts: RFC 4862, with the procedures of TAHI (3.1.2) for duplicate addresses."""

from __future__ import annotations

import ipaddress
from typing import Final

from ipoibu.conform.headers.ip import echo6, ipv6
from ipoibu.conform.headers.nd import (
    na,
    ns,
    option,
    prefix_option,
    ra,
    source_option,
    target_option,
)
from ipoibu.conform.packet import Given, Packet, Rule, Symbol
from ipoibu.conform.symbols import ALL_NODES, FREE6, ME6, MY_HW, PEER6, solicited
from ipoibu.conform.test import MUST, Act, Expect, Need, Send, Silence, Step, Test, Wait

NEEDS: Final = (Need.IPV6,)
NEW: Final = FREE6  # what the act add6 gives the peer
GROUP: Final = solicited(NEW)
SOON_S: Final = 5.0  # an act may take so long
DETECTION_S: Final = 2.5  # more than the second of RFC 4862 §5.1, and a random delay
FORMED_S: Final = 3.5  # the same behind a router advertisement

PROBE: Final = ipv6(source="::") / ns(target=NEW)
CLAIMED: Final = na(target=NEW)


def probe(
    target: Symbol = NEW,
    destination: Given | None = None,
    hop_limit: int = 255,
    **values: Given,
) -> Packet:
    """A probe of another host for this address."""
    to = solicited(target) if destination is None else destination
    head = ipv6(source="::", destination=to, hop_limit=hop_limit)
    return head / ns(target=target, **values)


def claim(hop_limit: int = 255, **values: Given) -> Packet:
    """An advertisement of another host that has the new address."""
    head = ipv6(source=NEW, destination=ALL_NODES, hop_limit=hop_limit)
    given: dict[str, Given] = {"target": NEW, "override": 1}
    return head / na(**given | values) / target_option(hwaddr=MY_HW)


QUESTION: Final = (
    ipv6(source=ME6, destination=GROUP, hop_limit=255)
    / ns(target=NEW)
    / source_option(hwaddr=MY_HW)
)
ADDED: Final[tuple[Step, ...]] = (Act("add6"), Expect(PROBE, within_s=SOON_S))
ASSIGNED: Final[tuple[Step, ...]] = (
    Wait(DETECTION_S),
    Send(QUESTION, to=GROUP),
    Expect(CLAIMED),
)
REFUSED: Final[tuple[Step, ...]] = (
    Wait(DETECTION_S),
    Send(QUESTION, to=GROUP),
    Silence(CLAIMED),
)


def advertised(prefix: str, **values: Given) -> Send:
    """Send a router advertisement of a prefix, by a router that is none by default."""
    given: dict[str, Given] = {"prefix": prefix, "valid_s": 60, "preferred_s": 60}
    head = ipv6(source=ME6, destination=ALL_NODES, hop_limit=255)
    return Send(
        head / ra(lifetime_s=0) / prefix_option(**given | values),
        to=ALL_NODES,
    )


def asked(prefix: str) -> tuple[Step, ...]:
    """Ping all nodes from an address of the prefix, so that the answer comes from one like it."""
    source = prefix + "1"
    head = ipv6(source=source, destination=PEER6, hop_limit=255)
    return (
        Wait(FORMED_S),
        Send(head / ns(target=PEER6) / source_option(hwaddr=MY_HW)),
        Send(ipv6(source=source, destination=ALL_NODES) / echo6(id=0x62), to=ALL_NODES),
    )


def of(prefix: str) -> Packet:
    """Expect an answer from an address of the prefix."""
    network = ipaddress.IPv6Network(prefix + "/64")
    rule = Rule(
        f"an address of {network}",
        lambda found: isinstance(found, str) and ipaddress.IPv6Address(found) in network,
    )
    return ipv6(source=rule) / echo6(type=129, id=0x62)


def prefix(number: int) -> str:
    return f"2001:db8:4862:{number}::"


TESTS: Final = (
    Test(
        "DAD-1",
        "L1",
        MUST,
        "RFC 4862 §5.4.2",
        "a host probes for a new address from :: in its solicited-node group, with hop limit 255",
        Act("add6"),
        Expect(
            ipv6(source="::", destination=GROUP, hop_limit=255) / ns(target=NEW),
            to=GROUP,
            within_s=SOON_S,
        ),
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-2",
        "RFC4861-4.3",
        MUST,
        "RFC 4861 §4.3",
        "a probe has no source link-layer address option",
        Act("add6"),
        Silence(PROBE / source_option(), for_s=2.0),
        Expect(PROBE, within_s=SOON_S),
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-3",
        "RFC4862-5.4",
        MUST,
        "RFC 4862 §5.4",
        "an address that nobody else has is the peer's after the detection",
        ADDED,
        ASSIGNED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-4",
        "L3",
        MUST,
        "RFC 4862 §5.4.3",
        "a host does not answer for an address while it probes for it",
        ADDED,
        Send(QUESTION, to=GROUP),
        Silence(CLAIMED),
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-5",
        "L4",
        MUST,
        "RFC 4862 §5.4.3",
        "another host's probe makes an address a duplicate",
        ADDED,
        Send(probe(), to=GROUP),
        REFUSED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-6",
        "L4",
        MUST,
        "RFC 4862 §5.4.4",
        "another host's advertisement makes an address a duplicate",
        ADDED,
        Send(claim(), to=ALL_NODES),
        REFUSED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-7",
        "L4",
        MUST,
        "RFC 4861 §4.3, RFC 4862 §5.4.3",
        "a probe counts whatever its reserved bits are",
        ADDED,
        Send(probe(reserved=0xFFFFFFFF), to=GROUP),
        REFUSED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-8",
        "TAHI-3.1.2",
        MUST,
        "RFC 4861 §7.1.1",
        "a probe whose hop limit is 254 is ignored",
        ADDED,
        Send(probe(hop_limit=254), to=GROUP),
        ASSIGNED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-9",
        "TAHI-3.1.2",
        MUST,
        "RFC 4861 §7.1.1",
        "a probe whose checksum is wrong is ignored",
        ADDED,
        Send(probe(checksum=0xBAD0), to=GROUP),
        ASSIGNED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-10",
        "TAHI-3.1.2",
        MUST,
        "RFC 4861 §7.1.1",
        "a probe of code 1 is ignored",
        ADDED,
        Send(probe(code=1), to=GROUP),
        ASSIGNED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-11",
        "TAHI-3.1.2",
        MUST,
        "RFC 4861 §7.1.1",
        "a probe with a source link-layer address option is ignored",
        ADDED,
        Send(probe() / source_option(hwaddr=MY_HW), to=GROUP),
        ASSIGNED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-12",
        "TAHI-3.1.2",
        MUST,
        "RFC 4861 §7.1.1",
        "a probe to another address than the solicited-node group is ignored",
        ADDED,
        Send(probe(destination=ALL_NODES), to=ALL_NODES),
        ASSIGNED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-13",
        "TAHI-3.1.2",
        MUST,
        "RFC 4861 §7.1.1",
        "a probe with an option of length 0 is ignored",
        ADDED,
        Send(probe() / option(type=14) / bytes(6), to=GROUP),
        ASSIGNED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-14",
        "TAHI-3.1.2",
        MUST,
        "RFC 4861 §7.1.2",
        "an advertisement whose hop limit is 254 makes no duplicate",
        ADDED,
        Send(claim(hop_limit=254), to=ALL_NODES),
        ASSIGNED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "DAD-15",
        "TAHI-3.1.2",
        MUST,
        "RFC 4861 §7.1.2",
        "an advertisement to all nodes that says it is solicited makes no duplicate",
        ADDED,
        Send(claim(solicited=1), to=ALL_NODES),
        ASSIGNED,
        needs=NEEDS,
        cleanup=(Act("del6"),),
    ),
    Test(
        "SLAAC-1",
        "L6",
        MUST,
        "RFC 4862 §5.5.3",
        "a host forms an address by an advertised prefix",
        advertised(prefix(1)),
        asked(prefix(1)),
        Expect(of(prefix(1))),
        needs=NEEDS,
        destructive=True,
    ),
    Test(
        "SLAAC-2",
        "RFC4862-5.5.3a",
        MUST,
        "RFC 4862 §5.5.3 (a)",
        "a host forms no address by a prefix without the autonomous flag",
        advertised(prefix(2), autonomous=0),
        asked(prefix(2)),
        Silence(of(prefix(2))),
        needs=NEEDS,
        destructive=True,
    ),
    Test(
        "SLAAC-3",
        "RFC4862-5.5.3c",
        MUST,
        "RFC 4862 §5.5.3 (c)",
        "a host forms no address by a prefix that is preferred for longer than it is valid",
        advertised(prefix(3), preferred_s=120),
        asked(prefix(3)),
        Silence(of(prefix(3))),
        needs=NEEDS,
        destructive=True,
    ),
    Test(
        "SLAAC-4",
        "RFC4862-5.5.3d",
        MUST,
        "RFC 4862 §5.5.3 (d)",
        "a host forms no address by a prefix of 65 bits",
        advertised(prefix(4), prefix_length=65),
        asked(prefix(4)),
        Silence(of(prefix(4))),
        needs=NEEDS,
        destructive=True,
    ),
    Test(
        "SLAAC-5",
        "RFC4862-5.5.3d",
        MUST,
        "RFC 4862 §5.5.3 (d)",
        "a host forms no address by a prefix of which the lifetime is 0",
        advertised(prefix(5), valid_s=0, preferred_s=0),
        asked(prefix(5)),
        Silence(of(prefix(5))),
        needs=NEEDS,
        destructive=True,
    ),
)
