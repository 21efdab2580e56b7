# SPDX-License-Identifier: BSD-2-Clause
"""IPv4 address conflicts: RFC 5227. The helper gives the peer the address `TAKEN`."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.headers.link import arp
from ipoibu.conform.link import QueuePair
from ipoibu.conform.packet import Given, Layer
from ipoibu.conform.symbols import BROADCAST, ME4, MY_HW, OTHER_HW, PEER4
from ipoibu.conform.test import MUST, SHOULD, Act, Expect, Send, Silence, Step, Test, Wait

OTHER: Final = QueuePair.OTHER
TAKEN: Final = "169.254.77.7"
"""The address of the act `take4`."""
NOBODY: Final = "0.0.0.0"
FIRST_S: Final = 2.0
"""A wait of up to 1 s, and some time more."""
PROBING_S: Final = 6.0
"""A wait of up to 1 s, two pauses of up to 2 s, and some time more."""

PROBE: Final = arp(operation=1, sender_ip=NOBODY, target_ip=TAKEN)
ANNOUNCEMENT: Final = arp(operation=1, sender_ip=TAKEN, target_ip=TAKEN)
DEFENCE: Final = arp(operation=1, sender_ip=PEER4, target_ip=PEER4)
CONFLICT: Final = Send(
    arp(sender_hwaddr=OTHER_HW, sender_ip=PEER4, target_ip=PEER4), to=BROADCAST, by=OTHER
)
"""Another host announces the peer's address."""


def claim(**values: Given) -> Layer:
    """A message of a host that has, or wants, the address `TAKEN`."""
    return arp(sender_hwaddr=OTHER_HW, target_ip=TAKEN, **values)


def taken(*steps: Step) -> tuple[Step, ...]:
    """The peer gets the address, and loses it at the end."""
    return Act("take4"), *steps, Act("drop4")


TESTS: Final = (
    Test(
        "ACD-1",
        "K7",
        MUST,
        "RFC 5227 §2.5",
        "a probe for an address of the host is answered",
        Send(arp(sender_hwaddr=MY_HW, sender_ip=NOBODY, target_ip=PEER4), to=BROADCAST),
        Expect(arp(operation=2, sender_ip=PEER4)),
    ),
    Test(
        "ACD-2",
        "K1",
        MUST,
        "RFC 5227 §2.1",
        "the host does not answer for a new address before it has probed",
        taken(
            Send(arp(sender_hwaddr=MY_HW, sender_ip=ME4, target_ip=TAKEN), to=BROADCAST),
            Silence(arp(operation=2, sender_ip=TAKEN, target_ip=ME4)),
        ),
    ),
    Test(
        "ACD-3",
        "K2",
        MUST,
        "RFC 5227 §2.1.1",
        "the host probes for a new address by three broadcast requests from 0.0.0.0",
        taken(Expect(PROBE, within_s=PROBING_S, count=3, to=BROADCAST)),
    ),
    Test(
        "ACD-4",
        "K2",
        SHOULD,
        "RFC 5227 §2.1.1",
        "the target's hardware address in a probe is zero",
        taken(
            Expect(
                arp(operation=1, sender_ip=NOBODY, target_hwaddr=bytes(20), target_ip=TAKEN),
                within_s=FIRST_S,
            )
        ),
    ),
    Test(
        "ACD-5",
        "K3",
        MUST,
        "RFC 5227 §1.1",
        "the time between two probes is 1 to 2 s",
        taken(
            Expect(arp(operation=1, target_ip=TAKEN), within_s=4.0, count=2, apart_s=(0.95, 2.1))
        ),
    ),
    Test(
        "ACD-6",
        "K4",
        MUST,
        "RFC 5227 §2.1.1",
        "the host does not take an address if its owner answers while it probes",
        taken(
            Expect(arp(operation=1, target_ip=TAKEN), within_s=FIRST_S),
            Send(claim(operation=2, sender_ip=TAKEN), to=BROADCAST, by=OTHER),
            Silence(ANNOUNCEMENT, for_s=PROBING_S),
        ),
    ),
    Test(
        "ACD-7",
        "K4",
        MUST,
        "RFC 5227 §2.1.1",
        "the host does not take an address if another host probes for it at the same time",
        taken(
            Expect(arp(operation=1, target_ip=TAKEN), within_s=FIRST_S),
            Send(claim(sender_ip=NOBODY), to=BROADCAST, by=OTHER),
            Silence(ANNOUNCEMENT, for_s=PROBING_S),
        ),
    ),
    Test(
        "ACD-8",
        "K5",
        MUST,
        "RFC 5227 §2.3",
        "the host announces a new address twice, 2 s apart",
        taken(
            Expect(ANNOUNCEMENT, within_s=PROBING_S + 4, count=2, apart_s=(1.8, 2.5), to=BROADCAST)
        ),
    ),
    Test(
        "ACD-9",
        "K6",
        MUST,
        "RFC 5227 §2.4",
        "the host defends its address against another host's announcement by its own",
        CONFLICT,
        Expect(DEFENCE, to=BROADCAST),
        destructive=True,
    ),
    Test(
        "ACD-10",
        "K6",
        MUST,
        "RFC 5227 §2.4",
        "the host defends its address once in 10 s at most",
        CONFLICT,
        Wait(1.0),
        CONFLICT,
        Silence(DEFENCE, for_s=1.0),
        destructive=True,
    ),
)
