# SPDX-License-Identifier: BSD-2-Clause
"""IPv6 groups of the host: MLDv2 (RFC 3810), and what the link does for them (RFC 4391 §5)."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.groups import mld, mld2_query, mld2_record, mld2_report
from ipoibu.conform.headers.ip import echo6, hop_by_hop, ipv6
from ipoibu.conform.packet import Given, Layer, Packet, Rule
from ipoibu.conform.symbols import ALL_NODES, ME6, PEER6, PEER_HW, solicited
from ipoibu.conform.test import MUST, Act, Expect, Join, Need, Send, Silence, Step, Test, Wait

NEEDS: Final = (Need.IPV6,)
GROUP: Final = "ff05::7707"  # of the acts join6 and leave6
NOT_JOINED: Final = "ff05::7709"
PINGED: Final = "ff05::7708"  # of the act ping_group6
REPORTS: Final = "ff02::16"
OWN: Final = solicited(PEER6)
SOON_S: Final = 5.0  # an act may take so long, and so may a report that has no time of its own
LATE_S: Final = 1.4  # the maximum response delay of the queries, and some time for the way

IS_EXCLUDE, TO_INCLUDE, TO_EXCLUDE = 2, 3, 4
OLD_REPORT: Final = 131
LINK_LOCAL: Final = Rule(
    "a link-local address", lambda found: isinstance(found, str) and found.startswith("fe80:")
)


def head(destination: Given = ALL_NODES, **values: Given) -> Layer:
    """The IPv6 header of a query."""
    return ipv6(**{"source": ME6, "destination": destination, "hop_limit": 1} | values)


def asked(group: Given = "::", interval: int = 125, **values: Given) -> Packet:
    """A query of version 2, to be answered within a second."""
    return mld(max_response_ms=1000, group=group, **values) / mld2_query(interval=interval)


def report(kind: int, group: Given = GROUP) -> Packet:
    """Expect a report of version 2 with this record among others."""
    return mld2_report() / mld2_record(type=kind, group=group)


QUERY: Final = head() / hop_by_hop() / asked()
ANSWER: Final = report(IS_EXCLUDE)
REPORT: Final = report(TO_EXCLUDE)
JOINED: Final[tuple[Step, ...]] = (
    Act("join6"),
    Expect(REPORT, within_s=SOON_S),
    Wait(1.1),  # for the last repetition (§9.11)
)
OLD_MODE: Final[tuple[Step, ...]] = (
    # Thus the host is back at version 2 after 2 times 3 s and the response interval (§9.12).
    Send(head() / hop_by_hop() / asked(NOT_JOINED, interval=3), to=ALL_NODES),
    Send(head() / hop_by_hop() / mld(max_response_ms=1000), to=ALL_NODES),
)

TESTS: Final = (
    Test(
        "MLD-1",
        "RFC3810-6.2",
        MUST,
        "RFC 3810 §6.2",
        "a general query is answered by the state of each group within the maximum response delay",
        JOINED,
        Send(QUERY, to=ALL_NODES),
        Expect(ANSWER, within_s=LATE_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-2",
        "RFC3810-5.2.14",
        MUST,
        "RFC 3810 §5.2.14, RFC 4391 §4",
        "a report goes to ff02::16, in a datagram to that group's GID",
        Act("join6"),
        Expect(ipv6(destination=REPORTS) / REPORT, within_s=SOON_S, to=REPORTS),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-3",
        "RFC3810-5",
        MUST,
        "RFC 3810 §5",
        "a report has the hop limit 1 and the router alert option",
        Act("join6"),
        Expect(ipv6(hop_limit=1) / hop_by_hop(option1=0x0502, value=0) / REPORT, within_s=SOON_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-4",
        "RFC3810-5.2.13",
        MUST,
        "RFC 3810 §5.2.13",
        "a report comes from a link-local address",
        Act("join6"),
        Expect(ipv6(source=LINK_LOCAL) / REPORT, within_s=SOON_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-5",
        "RFC3810-5.2.3",
        MUST,
        "RFC 3810 §5.2.3",
        "the checksum of a report is right",
        Act("join6"),
        Expect(mld2_report(sound=1) / mld2_record(group=GROUP), within_s=SOON_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-6",
        "RFC4861-7.2.1",
        MUST,
        "RFC 4861 §7.2.1, RFC 3810 §6",
        "a host is in the solicited-node group of its address, and reports that when it is asked",
        Send(QUERY, to=ALL_NODES),
        Expect(report(IS_EXCLUDE, OWN), within_s=SOON_S),
        needs=NEEDS,
    ),
    Test(
        "MLD-7",
        "RFC3810-5.1.14",
        MUST,
        "RFC 3810 §5.1.14",
        "a query from the unspecified address gets no answer",
        JOINED,
        Send(head(source="::") / hop_by_hop() / asked(), to=ALL_NODES),
        Silence(ANSWER, for_s=LATE_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-8",
        "RFC3810-6.2-hop",
        MUST,
        "RFC 3810 §6.2",
        "a query whose hop limit is not 1 gets no answer",
        JOINED,
        Send(head(hop_limit=2) / hop_by_hop() / asked(), to=ALL_NODES),
        Silence(ANSWER, for_s=LATE_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-9",
        "RFC3810-6.2-alert",
        MUST,
        "RFC 3810 §6.2",
        "a query without the router alert option gets no answer",
        JOINED,
        Send(head() / asked(), to=ALL_NODES),
        Silence(ANSWER, for_s=LATE_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-10",
        "RFC3810-5.1.3",
        MUST,
        "RFC 3810 §5.1.3",
        "a query whose checksum is wrong gets no answer",
        JOINED,
        Send(head() / hop_by_hop() / asked(checksum=0xBAD0), to=ALL_NODES),
        Silence(ANSWER, for_s=LATE_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-11",
        "RFC3810-6",
        MUST,
        "RFC 3810 §6",
        "a host never reports ff02::1",
        Send(QUERY, to=ALL_NODES),
        Silence(mld2_report() / mld2_record(group=ALL_NODES), for_s=LATE_S),
        needs=NEEDS,
    ),
    Test(
        "MLD-12",
        "RFC3810-6.2-other",
        MUST,
        "RFC 3810 §6.2",
        "a query about a group that the host has not joined gets no report of it",
        Send(head() / hop_by_hop() / asked(NOT_JOINED), to=ALL_NODES),
        Silence(mld2_report() / mld2_record(group=NOT_JOINED), for_s=LATE_S),
        needs=NEEDS,
    ),
    Test(
        "MLD-13",
        "RFC3810-5.1.15",
        MUST,
        "RFC 3810 §5.1.15",
        "a query to a unicast address of the host is answered",
        JOINED,
        Send(head(PEER6) / hop_by_hop() / asked(), to=PEER_HW),
        Expect(ANSWER, within_s=SOON_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-14",
        "RFC3810-5.1.12",
        MUST,
        "RFC 3810 §5.1.12",
        "what follows the sources of a query is ignored",
        JOINED,
        Send(QUERY / b"further bytes...", to=ALL_NODES),
        Expect(ANSWER, within_s=SOON_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-15",
        "RFC3810-6.1",
        MUST,
        "RFC 3810 §6.1, §9.1, §9.11",
        "a host reports twice that it has joined a group",
        Act("join6"),
        Expect(REPORT, within_s=SOON_S, count=2),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-16",
        "M3",
        MUST,
        "RFC 4391 §10, RFC 3810 §6.2",
        "a query to the GID of a group that the host has joined reaches it, and is answered",
        Join(GROUP),
        JOINED,
        Send(head(GROUP) / hop_by_hop() / asked(GROUP), to=GROUP),
        Expect(ANSWER, within_s=SOON_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-17",
        "RFC3810-6.1-leave",
        MUST,
        "RFC 3810 §6.1",
        "a host reports that it has left a group",
        JOINED,
        Act("leave6"),
        Expect(report(TO_INCLUDE), within_s=SOON_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-18",
        "RFC3810-6.2-left",
        MUST,
        "RFC 3810 §6.2",
        "a query about a group that the host has left gets no report of it",
        JOINED,
        Act("leave6"),
        Wait(1.1),
        Send(head() / hop_by_hop() / asked(GROUP), to=ALL_NODES),
        Silence(ANSWER, for_s=LATE_S),
        needs=NEEDS,
        cleanup=(Act("leave6"),),
    ),
    Test(
        "MLD-19",
        "M1",
        MUST,
        "RFC 4391 §10",
        "a host sends to an IPv6 group that it has not joined, in datagrams to the group's GID",
        Join(PINGED),
        Act("ping_group6"),
        Expect(ipv6(destination=PINGED) / echo6(type=128), to=PINGED, within_s=SOON_S),
        needs=NEEDS,
    ),
    Test(
        "MLD-20",
        "RFC3810-8.2.1",
        MUST,
        "RFC 3810 §8.2.1, RFC 2710 §4",
        "behind a query of version 1 a host reports by version 1, to the group itself",
        Join(GROUP),
        Act("join6"),
        Wait(1.5),
        OLD_MODE,
        Expect(
            ipv6(destination=GROUP) / mld(type=OLD_REPORT, group=GROUP), to=GROUP, within_s=SOON_S
        ),
        needs=NEEDS,
        destructive=True,
        cleanup=(
            Act("leave6"),
            Wait(8.0),
        ),
    ),
    Test(
        "MLD-21",
        "S3",
        MUST,
        "RFC 3810 §8.3.2, RFC 4391 §10",
        "a group that a host joins behind a query of version 1 reaches it by the group's GID",
        Join(GROUP),
        OLD_MODE,
        Wait(0.2),
        Act("join6"),
        Wait(1.5),
        Send(head(GROUP) / hop_by_hop() / mld(max_response_ms=1000, group=GROUP), to=GROUP),
        Expect(mld(type=OLD_REPORT, group=GROUP), within_s=SOON_S),
        needs=NEEDS,
        destructive=True,
        cleanup=(
            Act("leave6"),
            Wait(8.0),
        ),
    ),
    Test(
        "MLD-22",
        "RFC3810-8.2.1-join",
        MUST,
        "RFC 3810 §8.2.1",
        "a host that joins a group soon behind a query of version 1 reports that by version 1",
        Join(GROUP),
        OLD_MODE,
        Wait(0.2),
        Act("join6"),
        Expect(mld(type=OLD_REPORT, group=GROUP), within_s=SOON_S),
        needs=NEEDS,
        destructive=True,
        cleanup=(
            Act("leave6"),
            Wait(8.0),
        ),
    ),
)
