# SPDX-License-Identifier: BSD-2-Clause
"""The clauses of docs/understand/conformance.md, and why the suite cannot grade some of them.

`tests/unit/conform` compares the table with the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ipoibu.conform.catalogue import all_tests
from ipoibu.conform.test import MAY, MUST, SHOULD, Level


@dataclass(frozen=True, slots=True)
class Clause:
    """A demand of an RFC or of InfiniBand, in the words of the page; a test may show several."""

    id: str
    level: Level
    source: str
    demand: str


CLAUSES: Final = (
    Clause("E1", MUST, "RFC 4391 §2", "§2: IP travels over UD"),
    Clause(
        "E2",
        MUST,
        "RFC 4391 §6",
        "§6: a header of Type (16 bits) and Reserved (16 bits: send 0, ignore on receive)",
    ),
    Clause(
        "E3",
        MUST,
        "RFC 4391 §6",
        "§6: send and accept only Type 0x0800, 0x0806, 0x8035, 0x86DD; count drops",
    ),
    Clause("E4", MUST, "RFC 4391 §6", "§6: accept packets with and without a GRH"),
    Clause(
        "E5", MUST, "RFC 4391 §4", "§4: multicast has a GRH and destination queue pair 0xFFFFFF"
    ),
    Clause(
        "E6", MUST, "RFC 4391 §9.1.2", "§9.1.2: the whole link uses the broadcast group's Q_Key"
    ),
    Clause("E7", MUST, "RFC 4391 §4.1", "§4.1: the P_Key has full membership"),
    Clause(
        "E8",
        MUST,
        "RFC 4391",
        "drop our own multicast echo: source queue pair and source GID are ours",
    ),
    Clause("A1", MUST, "RFC 4391", "20 bytes: flags, queue pair number (3), GID (16)"),
    Clause(
        "A2",
        MUST,
        "RFC 4391",
        "flags are 0 on send without connected mode; ignore unknown ones on receive",
    ),
    Clause("A3", SHOULD, "RFC 4391", "the GID is subnet prefix and port GUID"),
    Clause("A4", MUST, "RFC 4391", "all unicast goes to that queue pair"),
    Clause(
        "A5",
        SHOULD,
        "RFC 4391 §9.4",
        "§9.4: the queue pair number changes; revalidate its addresses; announce",
    ),
    Clause("A6", MUST, "RFC 4391", "compare addresses with the flags masked"),
    Clause("G1", MUST, "RFC 4391", "FF, 0001, scope (4), signature (16), P_Key (16), group (80)"),
    Clause("G2", MUST, "RFC 4391", "the signature is 0x401B for IPv4, 0x601B for IPv6"),
    Clause("G3", MUST, "RFC 4391", "the low 28 bits of an IPv4 group, the low 80 of an IPv6 group"),
    Clause("G4", MUST, "RFC 4391", "255.255.255.255 is group FFFF:FFFF"),
    Clause("G5", MUST, "RFC 4391", "every MGID has the broadcast group's scope"),
    Clause("B1", MUST, "RFC 4391", "the broadcast group first; the link's parameters come with it"),
    Clause("B2", MUST, "RFC 4391", "the link's MTU fits the port"),
    Clause("B3", SHOULD, "RFC 4391", "a controlled Q_Key needs CAP_NET_RAW"),
    Clause("B4", SHOULD, "RFC 4391", "the subnet administrator creates the group"),
    Clause("B6", MUST, "RFC 4391", "other unicast parameters from path records"),
    Clause(
        "M1",
        MUST,
        "RFC 4391",
        "sending to a group that the host has not joined: send-only membership",
    ),
    Clause("M2", MUST, "RFC 4391", "subscribe to traps 66 and 67"),
    Clause("M3", MUST, "RFC 4391", "receivers join as full members"),
    Clause("M4", SHOULD, "RFC 4391", "leave the group when the IP group is left"),
    Clause("M5", SHOULD, "RFC 4391", "remember whether a group exists"),
    Clause("M6", SHOULD, "RFC 4391", "log failures"),
    Clause("M7", MUST, "RFC 4391 §11", "§11: routers join every group as non-members"),
    Clause("M8", SHOULD, "RFC 4391", "idle send-only groups time out"),
    Clause("T1", MUST, "RFC 4391 §7", "RFC 4391 §7: 2044 by default; 252, 508, 1020, 2044, 4092"),
    Clause(
        "T3",
        MUST,
        "RFC 8200 §5",
        "RFC 8200 §5: an IPv6 link offers 1280 bytes; otherwise refuse IPv6",
    ),
    Clause("R1", MUST, "RFC 826", "hardware type 32, protocol 0x0800, lengths 20 and 4"),
    Clause("R2", MUST, "RFC 826", "merge the sender's mapping before looking at the opcode"),
    Clause("R3", MUST, "RFC 826", "the target's hardware address in a request may be anything"),
    Clause(
        "H1",
        MUST,
        "RFC 826",
        "RFC 826: a guest's ARP keeps operation and IP addresses, and has its address here",
    ),
    Clause("H2", MUST, "RFC 826", "RFC 826: the link's ARP has for guests the MAC of its sender"),
    Clause(
        "H3",
        MUST,
        "RFC 4861 §4.6.1",
        "RFC 4861 §4.6.1: the link-layer option of 8 bytes becomes N1's, and back",
    ),
    Clause(
        "H4",
        MUST,
        "RFC 4861 §7.2.8",
        "RFC 4861 §7.2.8: an advertisement without override takes nobody's address",
    ),
    Clause(
        "H5",
        MUST,
        "RFC 4390 §2.1",
        "RFC 4390 §2.1: a request leaves with type 32, no address, identifier, broadcast",
    ),
    Clause(
        "H6",
        MUST,
        "RFC 4390 §2.1",
        "RFC 4390 §2.1: the reply gets the MAC and the identifier of the guest back",
    ),
    Clause(
        "N1", MUST, "RFC 4861", "the link-layer option has length 3: two zero bytes and 20 bytes"
    ),
    Clause("N2", MUST, "RFC 4861 §7.1", "§7.1: the conditions of a valid message"),
    Clause("N3", MUST, "RFC 4861 §7.2.2", "§7.2.2: a multicast solicitation has the source option"),
    Clause("N4", MUST, "RFC 4861 §7.2.4", "§7.2.4: the contents of an advertisement"),
    Clause(
        "N5",
        MUST,
        "RFC 4861 §7.2.3",
        "§7.2.3: no entry for an unspecified source; a changed address makes it stale",
    ),
    Clause(
        "N6",
        MUST,
        "RFC 4755 §2.2",
        "RFC 4755 §2.2: ARP and ND go over UD, whatever connections there are",
    ),
    Clause(
        "N7",
        MUST,
        "RFC 4861 §6.3.4",
        "§6.3.4: take every router's address and its role from its advertisements",
    ),
    Clause(
        "N8",
        SHOULD,
        "RFC 4861 §6.3.4",
        "§6.3.4: take the reachable time and the retransmission timer from them, too",
    ),
    Clause("N9", MUST, "RFC 4861 §6.3.6", "§6.3.6: prefer a router that is reachable"),
    Clause(
        "N10",
        MUST,
        "RFC 4861 §7.2.5",
        "§7.2.5: the effect of an advertisement on an entry; it makes no entry",
    ),
    Clause(
        "N11", MAY, "RFC 4861 §7.2.8", "§7.2.8: answer for other hosts as a proxy, without override"
    ),
    Clause(
        "N12",
        MUST,
        "RFC 4861 §7.3.2, §7.3.3",
        "§7.3.2, §7.3.3: the states of an entry; after 5 s of use three unicast probes",
    ),
    Clause(
        "N13",
        MUST,
        "RFC 4861 §7.3.3, §10",
        "§7.3.3, §10: the times of a router's entry are those of any other",
    ),
    Clause(
        "N14",
        MUST,
        "RFC 4861 §7.3.1",
        "§7.3.1: confirmations by upper layers make an entry reachable",
    ),
    Clause("U1", MUST, "RFC 4191 §2.2", "§2.2: preference 0 in an advertisement of lifetime 0"),
    Clause("U2", MUST, "RFC 4191 §3.2", "§3.2: a silent router's more specific routes go, too"),
    Clause(
        "S1",
        MUST,
        "RFC 3376 §4.2, RFC 3810 §5.2",
        "RFC 3376 §4.2, RFC 3810 §5.2: read every record type; skip undefined ones",
    ),
    Clause(
        "S2",
        MUST,
        "RFC 3376 §5.1, RFC 3810 §6.1",
        "RFC 3376 §5.1, RFC 3810 §6.1: each record changes the interest in its group",
    ),
    Clause(
        "S3",
        MUST,
        "RFC 3376 §7.3.2, RFC 3810 §8.3.2",
        "RFC 3376 §7.3.2, RFC 3810 §8.3.2: reports of older versions join and leave, too",
    ),
    Clause("S4", MAY, "RFC 3376 §3.2", "RFC 3376 §3.2: deliver only wanted sources"),
    Clause("K1", MUST, "RFC 5227 §2.1", "§2.1: probe before using an address"),
    Clause(
        "K2",
        MUST,
        "RFC 5227 §2.1.1",
        "§2.1.1: a probe is a broadcast request from 0.0.0.0; three of them",
    ),
    Clause(
        "K3",
        MUST,
        "RFC 5227 §1.1, §2.1.1",
        "§1.1, §2.1.1: a random wait up to 1 s, probes 1 to 2 s apart, 2 s of silence",
    ),
    Clause(
        "K4",
        MUST,
        "RFC 5227 §2.1.1",
        "§2.1.1: an owner's message, or another host's probe, ends probing as a conflict",
    ),
    Clause("K5", MUST, "RFC 5227 §2.3", "§2.3: two announcements 2 s apart"),
    Clause(
        "K6", MUST, "RFC 5227 §2.4", "§2.4: give the address up, or defend it at most every 10 s"
    ),
    Clause("K7", MUST, "RFC 5227 §2.5", "§2.5: answer requests for our address, probes too"),
    Clause("L1", MUST, "RFC 4862 §5.4.2", "§5.4.2: join the solicited-node group, then probe"),
    Clause("L2", SHOULD, "RFC 4862 §5.4.2", "§5.4.2: a random delay before the first probe"),
    Clause(
        "L3", MUST, "RFC 4862 §5.4.3", "§5.4.3: while an address is tentative, do not answer for it"
    ),
    Clause(
        "L4",
        MUST,
        "RFC 4862 §5.4.3, §5.4.4",
        "§5.4.3, §5.4.4: another host's probe or advertisement makes it a duplicate",
    ),
    Clause(
        "L5",
        SHOULD,
        "RFC 4862 §5.4.5",
        "§5.4.5: a duplicate link-local address from the port GUID disables IP",
    ),
    Clause(
        "L6",
        MUST,
        "RFC 4862 §5.5",
        "§5.5: addresses by advertised prefixes: the host's kernel forms them",
    ),
    Clause("I1", SHOULD, "RFC 4391", "from the port GUID"),
    Clause("I2", MUST, "RFC 4391", "with the universal/local bit of modified EUI-64"),
    Clause("I3", SHOULD, "RFC 4391", "RFC 7217: opaque identifiers as an option"),
    Clause("C1", MAY, "RFC 4755", "connected mode beside UD"),
    Clause(
        "C2",
        MUST,
        "RFC 4755 §2",
        "§2: multicast, broadcast, ARP and neighbour discovery go by UD only",
    ),
    Clause(
        "C3",
        MUST,
        "RFC 4755 §6",
        "§6: the private data of REQ, REP and REJ carries the sender's UD queue pair",
    ),
    Clause(
        "C4",
        MUST,
        "RFC 4755 §6",
        "§6: the private data is 00, queue pair (24 bits), receive MTU (32 bits)",
    ),
    Clause(
        "C5", MUST, "RFC 4755 §6", "§6: the connection's IP MTU follows from the two receive MTUs"
    ),
    Clause("C6", MUST, "RFC 4755 §3.3", "§3.3: of two requests that cross one wins"),
    Clause("C7", MUST, "RFC 4755 §3.5", "§3.5: the service ID"),
    Clause("C8", MUST, "RFC 4755 §3", "§3: accept unicast by any mode that we announced"),
    Clause("C9", MUST, "RFC 4755 §4", "§4: IPv4 and IPv6 alone go by connections"),
    Clause(
        "C10", SHOULD, "RFC 4755", "connections end with the interface, and when idle for 512 s"
    ),
    Clause("C11", SHOULD, "RFC 4755", "few or no retries of a packet, so that TCP does not stall"),
    Clause("C12", MUST, "RFC 4755", "the MTU is each neighbour's own"),
    Clause("C13", MUST, "RFC 4755", "too big: ICMP 3/4 with the MTU, ICMPv6 type 2"),
    Clause(
        "X1",
        MUST,
        "InfiniBand volume 1 §12.6",
        "§12.6: the fields of REQ, MRA, REJ, REP, RTU, DREQ, DREP",
    ),
    Clause(
        "X2",
        MUST,
        "InfiniBand volume 1 §12.9",
        "§12.9: repeat a REQ, then give it up with a REJ (time-out)",
    ),
    Clause(
        "X3",
        MUST,
        "InfiniBand volume 1 §12.9.8.3.1",
        "§12.9.8.3.1: a REQ from a queue pair in use ends the older connection",
    ),
    Clause("X4", MUST, "InfiniBand volume 1 §12.9.7", "§12.9.7: a REP without RTU ends with a REJ"),
    Clause(
        "Q1",
        MUST,
        "InfiniBand volume 1 §15.2.5.16",
        "§15.2.5.16: PathRecord: ask for one reversible path",
    ),
    Clause(
        "Q2",
        MUST,
        "InfiniBand volume 1 §15.2.5.17",
        "§15.2.5.17: MCMemberRecord: the mask has a bit for each field",
    ),
    Clause(
        "Q3",
        MUST,
        "InfiniBand volume 1 §13.4.8.3",
        "§13.4.8.3: InformInfo subscribes to a trap; answer each report",
    ),
    Clause(
        "Q4",
        MUST,
        "InfiniBand volume 1 §13.6",
        "§13.6: RMPP: put segments together, acknowledge windows and the end",
    ),
    Clause(
        "Q5",
        MUST,
        "InfiniBand volume 1 §13.6",
        "§13.6: abort a transfer that stalls or contradicts itself",
    ),
    Clause("Q6", MAY, "InfiniBand volume 1", "traps 64 and 65: ports in and out of service"),
    Clause("D1", MUST, "RFC 4390", "hardware type 32, length 0, client identifier"),
    Clause("D2", MUST, "RFC 4390", "the broadcast flag while unconfigured"),
    Clause(
        "D3",
        MUST,
        "RFC 4390",
        "DHCPv6 goes from the link-local address to ff02::1:2 (RFC 8415 §7.1, §13)",
    ),
    Clause(
        "D4",
        MUST,
        "RFC 4390",
        "DHCPv6 declines an address that another host has (RFC 8415 §18.2.8)",
    ),
)

UNSEEN: Final[Mapping[str, str]] = {
    "E8": "a host alone sees the echo of its own multicast datagrams",
    "B1": "the subnet administrator alone sees the joins; their parameters show in E6, G1 and T1",
    "B2": "a host whose port does not fit the link brings no interface up, so there is nothing to grade",
    "B3": "it is a right inside the host's operating system",
    "B4": "the subnet administrator alone hears it",
    "B6": "a receiver's program does not see the service level and the rate of a datagram",
    "M2": "the subnet administrator alone hears it",
    "M4": "the subnet administrator alone hears it",
    "M5": "the host's memory is inside; the subnet administrator alone sees its questions",
    "M6": "the log is inside the host",
    "M7": "the subnet administrator alone hears it",
    "M8": "the subnet administrator alone hears it",
    "H1": "only the guest behind the host sees it",
    "H2": "only the guest behind the host sees it",
    "H3": "only the guest behind the host sees it",
    "H4": "only the guest behind the host sees it",
    "H5": "only the guest behind the host sees it",
    "H6": "only the guest behind the host sees it",
    "N11": "a host answers for others only if its operator says so, and nobody else knows for whom",
    "N14": "whether a connection of the host makes progress, only its two ends know",
    "U1": "the host's routing table is inside",
    "U2": "the host's routing table is inside",
    "S1": "it is about the interface that reads the reports of its own host",
    "S2": "it is about the interface that reads its own host's reports; these have ids of their own",
    "S4": "a host alone knows which sources its programs want",
    "L2": "an outsider cannot see the moment from which a delay counts",
    "L5": "that a host has ended IP looks like a host that is away, and no test could ping it afterwards",
    "I3": "which method a host was told to use is inside; IID-1 takes both",
    "C10": "512 s of silence are longer than a whole run",
    "C11": "the number of repetitions of a packet is on the wire below the tester's queue pair",
    "Q1": "the subnet administrator alone hears it",
    "Q2": "the subnet administrator alone hears it",
    "Q3": "the subnet administrator alone hears it",
    "Q4": "the subnet administrator alone hears it",
    "Q5": "the subnet administrator alone hears it",
    "Q6": "the subnet administrator alone hears it",
    "D3": "it needs a DHCPv6 client of the host's, and an advertisement that its router alone sends",
    "D4": "it needs a DHCPv6 client of the host's, and a server of the tester's",
}
"""Why a clause has no test: an outsider cannot see whether a host meets it."""


def listed() -> list[dict[str, Any]]:
    """Return what `--list` shows: each clause of the page and of the suite, and the tests that grade it."""
    by_clause: dict[str, list[str]] = {}
    own: dict[str, Clause] = {}
    known = {it.id for it in CLAUSES}
    for test in all_tests():
        for id_ in test.clauses:
            by_clause.setdefault(id_, []).append(test.id)
            if id_ not in known and id_ not in own:
                own[id_] = Clause(id_, test.level, test.source, test.title)
    return [
        {
            "id": it.id,
            "level": it.level.value,
            "source": it.source,
            "demand": it.demand,
            "tests": by_clause.get(it.id, []),
            "unseen": UNSEEN.get(it.id),
        }
        for it in (*CLAUSES, *own.values())
    ]
