# SPDX-License-Identifier: BSD-2-Clause
"""IPv4 groups of the host: IGMPv3 (RFC 3376), and what the link does for them (RFC 4391 §5)."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.groups import (
    IGMP_TYPES,
    igmp,
    igmp3_query,
    igmp3_record,
    igmp3_report,
)
from ipoibu.conform.headers.ip import icmp_echo, ipv4, router_alert
from ipoibu.conform.packet import Given, Packet
from ipoibu.conform.symbols import ME4, PEER4, PEER_HW
from ipoibu.conform.test import MUST, SHOULD, Act, Expect, Join, Send, Silence, Step, Test, Wait

GROUP: Final = "239.77.7.7"  # of the acts join4 and leave4
NOT_JOINED: Final = "239.77.7.9"
PINGED: Final = "239.77.7.8"  # of the act ping_group4
ALL_SYSTEMS: Final = "224.0.0.1"
REPORTS: Final = "224.0.0.22"
SOON_S: Final = 5.0  # an act may take so long, and so may a report that has no time of its own
LATE_S: Final = 1.4  # the maximum response time of the queries, and some time for the way

IS_EXCLUDE, TO_INCLUDE, TO_EXCLUDE = 2, 3, 4


def query(
    group: str = "0.0.0.0",
    destination: Given = ALL_SYSTEMS,
    *,
    interval: int = 125,
    **values: Given,
) -> Packet:
    """A query of version 3, to be answered within a second."""
    head = ipv4(source=ME4, destination=destination, ttl=1, tos=0xC0) / router_alert()
    return head / igmp(max_response=10, group=group, **values) / igmp3_query(interval=interval)


def old_query(group: str = "0.0.0.0", destination: Given = ALL_SYSTEMS) -> Packet:
    """A query of version 2, to be answered within a second."""
    head = ipv4(source=ME4, destination=destination, ttl=1, tos=0xC0) / router_alert()
    return head / igmp(max_response=10, group=group)


def report(kind: int, group: str = GROUP) -> Packet:
    """Expect a report of version 3 with this record among others."""
    return igmp3_report() / igmp3_record(type=kind, group=group)


OLD_REPORT: Final = ipv4(destination=GROUP) / igmp(type=IGMP_TYPES["report2"], group=GROUP)
JOINED: Final[tuple[Step, ...]] = (
    Act("join4"),
    Expect(report(TO_EXCLUDE), within_s=SOON_S),
    Wait(1.1),  # for the last repetition (§8.11)
)
OLD_MODE: Final[tuple[Step, ...]] = (
    # Thus the host is back at version 3 after 2 times 3 s and the response interval (§8.12).
    Send(query(NOT_JOINED, interval=3), to=ALL_SYSTEMS),
    Send(old_query(), to=ALL_SYSTEMS),
)

TESTS: Final = (
    Test(
        "IGMP-1",
        "RFC3376-5.1",
        MUST,
        "RFC 3376 §5.1, §8.1, §8.11",
        "a host reports twice that it has joined a group",
        Act("join4"),
        Expect(report(TO_EXCLUDE), within_s=SOON_S, count=2),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-2",
        "RFC3376-4.2.14",
        MUST,
        "RFC 3376 §4.2.14, RFC 4391 §4",
        "a report goes to 224.0.0.22, in a datagram to that group's GID",
        Act("join4"),
        Expect(ipv4(destination=REPORTS) / report(TO_EXCLUDE), to=REPORTS, within_s=SOON_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-3",
        "RFC3376-4",
        MUST,
        "RFC 3376 §4",
        "a report has the time to live 1 and the router alert option",
        Act("join4"),
        Expect(
            ipv4(ttl=1) / router_alert(option=0x9404, value=0) / report(TO_EXCLUDE),
            within_s=SOON_S,
        ),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-4",
        "RFC3376-4.2.3",
        MUST,
        "RFC 3376 §4.2.3",
        "the checksum of a report is right",
        Act("join4"),
        Expect(igmp3_report(sound=1) / igmp3_record(type=TO_EXCLUDE, group=GROUP), within_s=SOON_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-5",
        "RFC3376-5.2",
        MUST,
        "RFC 3376 §5.2",
        "a general query is answered by the state of each group within the maximum response time",
        JOINED,
        Send(query(), to=ALL_SYSTEMS),
        Expect(report(IS_EXCLUDE), within_s=LATE_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-6",
        "M3",
        MUST,
        "RFC 4391 §10, RFC 3376 §5.2",
        "a query to the GID of a group that the host has joined reaches it, and is answered",
        Join(GROUP),
        JOINED,
        Send(query(GROUP, GROUP), to=GROUP),
        Expect(report(IS_EXCLUDE), within_s=SOON_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-7",
        "RFC3376-4.1.12",
        MUST,
        "RFC 3376 §4.1.12",
        "a query to a unicast address of the host is answered",
        JOINED,
        Send(query(GROUP, PEER4), to=PEER_HW),
        Expect(report(IS_EXCLUDE), within_s=SOON_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-8",
        "RFC3376-5.2-other",
        MUST,
        "RFC 3376 §5.2",
        "a query about a group that the host has not joined gets no report of it",
        JOINED,
        Send(query(NOT_JOINED), to=ALL_SYSTEMS),
        Silence(igmp3_report() / igmp3_record(group=NOT_JOINED), for_s=LATE_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-9",
        "RFC3376-4.1.2",
        MUST,
        "RFC 3376 §4.1.2",
        "a query whose checksum is wrong gets no answer",
        JOINED,
        Send(query(checksum=0xBAD0), to=ALL_SYSTEMS),
        Silence(report(IS_EXCLUDE), for_s=LATE_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-10",
        "RFC3376-5",
        MUST,
        "RFC 3376 §5",
        "a host never reports 224.0.0.1",
        JOINED,
        Send(query(), to=ALL_SYSTEMS),
        Silence(igmp3_report() / igmp3_record(group=ALL_SYSTEMS), for_s=LATE_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-11",
        "RFC3376-5.1-leave",
        MUST,
        "RFC 3376 §5.1",
        "a host reports that it has left a group",
        JOINED,
        Act("leave4"),
        Expect(report(TO_INCLUDE), within_s=SOON_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-12",
        "RFC3376-5.2-left",
        MUST,
        "RFC 3376 §5.2",
        "a query about a group that the host has left gets no report of it",
        JOINED,
        Act("leave4"),
        Wait(1.1),
        Send(query(GROUP), to=ALL_SYSTEMS),
        Silence(report(IS_EXCLUDE), for_s=LATE_S),
        cleanup=(Act("leave4"),),
    ),
    Test(
        "IGMP-13",
        "M1",
        MUST,
        "RFC 4391 §10",
        "a host sends to an IPv4 group that it has not joined, in datagrams to the group's GID",
        Join(PINGED),
        Act("ping_group4"),
        Expect(ipv4(destination=PINGED) / icmp_echo(type=8), to=PINGED, within_s=SOON_S),
    ),
    Test(
        "IGMP-14",
        "RFC3376-7.2.1",
        MUST,
        "RFC 3376 §7.2.1, RFC 2236 §3",
        "behind a query of version 2 a host reports by version 2, to the group itself",
        Join(GROUP),
        Act("join4"),
        Wait(1.5),
        OLD_MODE,
        Expect(OLD_REPORT, to=GROUP, within_s=SOON_S),
        destructive=True,
        cleanup=(
            Act("leave4"),
            Wait(8.0),
        ),
    ),
    Test(
        "IGMP-15",
        "S3",
        MUST,
        "RFC 3376 §7.3.2, RFC 4391 §10",
        "a group that a host joins by version 2 reaches it by the group's GID",
        Join(GROUP),
        OLD_MODE,
        Wait(0.2),
        Act("join4"),
        Expect(OLD_REPORT, within_s=SOON_S),
        Wait(1.0),
        Send(old_query(GROUP, GROUP), to=GROUP),
        Expect(igmp(group=GROUP), within_s=SOON_S),
        destructive=True,
        cleanup=(
            Act("leave4"),
            Wait(8.0),
        ),
    ),
    Test(
        "IGMP-16",
        "RFC3376-4.1.10",
        SHOULD,
        "RFC 3376 §4.1.10",
        "what follows the sources of a query is ignored",
        JOINED,
        Send(query(GROUP) / b"further bytes...", to=ALL_SYSTEMS),
        Expect(report(IS_EXCLUDE), within_s=SOON_S),
        cleanup=(Act("leave4"),),
    ),
)
