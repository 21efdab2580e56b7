# SPDX-License-Identifier: BSD-2-Clause
"""What observers hear of the guests' addresses: learned, moved, gone, refused."""

from __future__ import annotations

from ipaddress import IPv4Address

from ipoibu.base.addr import Mac
from ipoibu.base.limits import DROPS_QUIET_S, ETHERNET_REFUSALS_MAX
from ipoibu.proto.ethernet.refusals import Reason, Refusals
from ipoibu.proto.machine.transition import Topic, Transition
from ipoibu.wire import arp
from tests.doubles.ethernet_bench import (
    GUEST,
    GUEST2,
    GUEST2_IP,
    GUEST_IP,
    NOBODY,
    PEER,
    PEER_IP,
    Lan,
)


def changes(lan: Lan) -> list[tuple[str, str, str, str]]:
    """Return address, what has become of it, state and MAC of each event since the last call."""
    found = [it for it in lan.observed if it.topic is Topic.GUEST]
    lan.observed.clear()
    return [(str(it.subject), it.detail, it.after, str(it.hwaddr)) for it in found]


def test_an_address_is_learned_moves_and_goes() -> None:
    lan = Lan()
    lan.asks(GUEST_IP)
    assert changes(lan) == [("10.0.0.11", "learned", "claimed", str(GUEST))]
    lan.asks(GUEST_IP, GUEST2, GUEST_IP)
    [moved] = [it for it in lan.observed if it.topic is Topic.GUEST]
    assert (moved.detail, moved.hwaddr, moved.former) == ("moved", GUEST2, GUEST)
    lan.observed.clear()
    lan.link_arp(arp.request(PEER, GUEST_IP, GUEST_IP), multicast=True)
    assert changes(lan) == [("10.0.0.11", "gone", "none", str(GUEST2))]


def test_a_probe_is_a_change_of_state_and_no_guest_yet() -> None:
    lan = Lan()
    lan.asks(GUEST_IP, GUEST, NOBODY)
    assert changes(lan) == [("10.0.0.11", "", "tentative", str(GUEST))]
    lan.asks(GUEST_IP)
    assert changes(lan) == [("10.0.0.11", "learned", "claimed", str(GUEST))]
    lan.asks(PEER_IP)
    assert changes(lan) == [], "nothing has changed"


def test_a_held_address_is_refused_and_the_holder_named() -> None:
    lan = Lan()
    lan.asks(GUEST_IP)
    lan.observed.clear()
    lan.asks(PEER_IP, GUEST2, GUEST_IP)
    [refused] = [it for it in lan.observed if it.detail == "refused"]
    assert (refused.subject, refused.after, refused.hwaddr) == (GUEST_IP, "held", GUEST2)
    assert (refused.before, refused.reason) == ("", str(GUEST))
    lan.guest_packet(lan.meet(), GUEST_IP, PEER_IP, GUEST2)
    lan.carry_out(lan.ethernet.note_spoofed(lan.now, GUEST_IP, GUEST2))
    [known] = lan.ethernet.refusals(lan.now + 2)
    assert (known.ip, known.mac, known.holder) == (GUEST_IP, GUEST2, GUEST)
    assert (known.reason, known.count, known.age_s) == (Reason.HELD, 3, 2)
    assert [it.after for it in lan.observed if it.topic is Topic.DROP] == [
        "ethernet_spoofed",
        "tx_spoofed",
    ]


def test_bindings_refuse_others_and_other_addresses() -> None:
    lan = Lan({GUEST: frozenset({GUEST_IP})})
    lan.asks(PEER_IP, GUEST2, GUEST_IP)
    lan.asks(PEER_IP, GUEST, GUEST2_IP)
    lan.carry_out(lan.ethernet.note_spoofed(lan.now, GUEST_IP, GUEST2))
    assert [
        (it.ip, it.mac, it.holder, it.reason, it.count) for it in lan.ethernet.refusals(0.0)
    ] == [
        (GUEST2_IP, GUEST, None, Reason.OTHERS, 1),
        (GUEST_IP, GUEST2, GUEST, Reason.BOUND, 2),
    ]


def test_a_late_notice_of_the_pump_says_nothing_of_a_guest_that_left() -> None:
    lan = Lan()
    lan.carry_out(lan.ethernet.note_spoofed(lan.now, GUEST_IP, GUEST2))
    assert lan.ethernet.refusals(lan.now) == []


def test_observers_hear_of_a_pair_once_a_minute_and_the_oldest_makes_room() -> None:
    heard: list[Transition] = []
    refusals = Refusals(heard.append)

    def note(now: float, number: int) -> None:
        mac = Mac(b"\x52\x54\0\0" + number.to_bytes(2, "big"))
        refusals.note(now, IPv4Address("10.0.0.7"), mac, Reason.HELD, GUEST)

    for now in (0.0, 1.0, DROPS_QUIET_S, DROPS_QUIET_S + 1):
        note(now, 0)
    assert len(heard) == 2
    for number in range(1, ETHERNET_REFUSALS_MAX):
        note(100.0, number)
    note(101.0, 0)
    note(102.0, ETHERNET_REFUSALS_MAX)
    known = list(refusals.snapshot(102.0))
    assert len(known) == ETHERNET_REFUSALS_MAX
    assert known[0].mac == Mac(b"\x52\x54\0\0\0\2"), "number 1 was the one of longest ago"
    assert known[-2].count == 5
