# SPDX-License-Identifier: BSD-2-Clause
"""The connections of one host in a mesh."""

from __future__ import annotations

import random
from ipaddress import ip_address
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid, HwAddr, PKey, Qpn
from ipoibu.base.limits import (
    MESH_ANSWER_S,
    MESH_BACKOFF_MAX_S,
    MESH_FAILURES_MAX,
    MESH_GROUPS_SHOWN,
    MESH_NAMED_BURST,
    MESH_NAMED_PER_S,
    MESH_NAMED_TOTAL_PER_S,
    MESH_NEWS_S,
    MESH_OURSELVES_S,
    MESH_PORT,
    MESH_STRANGER_FAILURES_MAX,
    UNICAST_PEERS_MAX,
)
from ipoibu.proto.effects import Count
from ipoibu.proto.mesh.effects import (
    Accept,
    Dial,
    Gone,
    Hangup,
    InGroup,
    InGroups,
    Learned,
    MeshEffect,
    Met,
    Name,
    OtherVersion,
    Refuse,
    SendControl,
)
from ipoibu.proto.mesh.mesh import Mesh, MeshConfig
from ipoibu.proto.mesh.state import State
from ipoibu.wire import mesh
from ipoibu.wire.mesh import Greeting, Locator, Operation

GROUP: Final = Gid.parse("ff12:401b:ffff::1")


def greeting(number: int, **other: Any) -> Greeting:
    fields: dict[str, Any] = {
        "hwaddr": HwAddr(Qpn(number), Gid.parse(f"fe80::{number:x}")),
        "mtu_bytes": 65520,
        "window": 32,
        "pkey": PKey(0xFFFF),
        "port": MESH_PORT,
    }
    return Greeting(**(fields | other))


def place(number: int) -> Locator:
    return Locator(ip_address(f"10.0.0.{number}"), MESH_PORT)


OURS: Final = greeting(0x50)


class Desk:
    """One host, whose kernel the test plays."""

    def __init__(self, peers_max: int = 8, contacts_max: int = 256) -> None:
        self.now = 0.0
        self.mesh = Mesh(MeshConfig(OURS, peers_max, contacts_max), random.Random(1))

    def seed(self, *numbers: int) -> list[MeshEffect]:
        return self.mesh.seeds(self.now, {place(it) for it in numbers})

    def opened(self, handle: int, number: int) -> list[MeshEffect]:
        return self.mesh.note_opened(self.now, handle, greeting(number).pack())

    def ask(self, number: int, **other: Any) -> tuple[int, list[MeshEffect]]:
        handle = self.mesh.new_handle()
        raw = greeting(number, **other).pack()
        return handle, self.mesh.note_requested(self.now, handle, place(number).ip, raw)

    def meet(self, number: int) -> int:
        """An open connection that we asked for."""
        (dial,) = pick(Dial, self.seed(number))
        self.opened(dial.handle, number)
        handle: int = dial.handle
        return handle

    def wait(self, seconds: float) -> list[MeshEffect]:
        until, effects = self.now + seconds, []
        while (at := self.mesh.deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            effects += self.mesh.timer(self.now)
        self.now = until
        return effects

    def named(self, handle: int, locators: list[Locator]) -> list[MeshEffect]:
        """A peer names places."""
        return [
            effect
            for message in mesh.peers(locators)
            for effect in self.mesh.control(self.now, handle, message)
        ]

    @property
    def open(self) -> set[HwAddr | None]:
        return {it.hwaddr for it in self.mesh.snapshot() if it.state is State.OPEN}


def pick(kind: type, effects: list[MeshEffect]) -> list[Any]:
    return [it for it in effects if isinstance(it, kind)]


def counts(effects: list[MeshEffect]) -> list[str]:
    return [it.reason for it in pick(Count, effects)]


def controls(effects: list[MeshEffect], handle: int) -> list[Operation]:
    return [
        mesh.operation_untrusted(it.message)
        for it in pick(SendControl, effects)
        if it.handle == handle
    ]


def test_a_seed_is_dialed_and_greeted() -> None:
    desk = Desk()
    (dial,) = pick(Dial, desk.seed(1))
    assert dial.locator == place(1)
    effects = desk.opened(dial.handle, 1)
    assert pick(Name, effects) == [Name(dial.handle, greeting(1), True)]
    assert controls(effects, dial.handle) == [Operation.GROUPS, Operation.ADDRESSES]
    assert desk.open == {greeting(1).hwaddr}
    assert desk.seed(1) == []


def test_seeds_of_both_families_are_dialed() -> None:
    """One name may have addresses of both families."""
    seeds = {place(2), Locator(ip_address("2001:db8::2"), MESH_PORT), Locator(place(2).ip, 7)}
    desk = Desk()
    assert {it.locator for it in pick(Dial, desk.mesh.seeds(desk.now, seeds))} == seeds


def strangers(count: int) -> list[Locator]:
    return [Locator(ip_address(f"10.1.{n >> 8}.{n & 255}"), 1) for n in range(count)]


def test_a_request_is_accepted_and_speaks_first() -> None:
    desk = Desk()
    handle, effects = desk.ask(1)
    assert effects == [Accept(handle), Name(handle, greeting(1), False)]
    effects = desk.mesh.note_established(0, handle)
    assert controls(effects, handle) == [Operation.GROUPS, Operation.ADDRESSES]
    kinds = [type(effect) for effect in effects]
    assert kinds.index(Met) < kinds.index(SendControl)  # the peer may send at once then
    assert desk.open == {greeting(1).hwaddr}


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"pkey": PKey(0x8001)}, "mesh_other_partition"),
        ({"mtu_bytes": 1500}, "mesh_other_mtu"),
        ({"hwaddr": HwAddr(Qpn(1), Gid.parse("::ffff:192.0.2.1"))}, "mesh_other_ip_version"),
    ],
)
def test_who_does_not_suit_is_refused_and_hung_up(other: dict[str, Any], reason: str) -> None:
    desk = Desk()
    handle, effects = desk.ask(1, **other)
    assert pick(Refuse, effects) == [Refuse(handle)]
    assert reason in counts(effects)
    (dial,) = pick(Dial, desk.seed(2))
    effects = desk.mesh.note_opened(0, dial.handle, greeting(2, **other).pack())
    assert pick(Hangup, effects) == [Hangup(dial.handle)]
    assert desk.open == set()


def test_a_gid_of_the_other_ip_version_is_reported_whatever_its_mtu() -> None:
    other = Gid.parse("::ffff:192.0.2.1")
    desk = Desk()
    _, effects = desk.ask(1, hwaddr=HwAddr(Qpn(1), other), mtu_bytes=1500)
    assert pick(OtherVersion, effects) == [OtherVersion(other)]
    assert counts(effects) == ["mesh_other_ip_version"]


def test_the_peers_of_an_earlier_mesh_are_dialed_and_stay_contacts() -> None:
    """Peers know our former address only. They are no strangers, of which a few failures make an end."""
    before = Desk()
    before.meet(1)
    before.ask(2)
    met = before.mesh.met
    assert met == {place(1): greeting(1).hwaddr}  # the second has not confirmed
    desk = Desk()
    (dial,) = pick(Dial, desk.mesh.meet_again(desk.now, met))
    assert dial.locator == place(1)
    assert desk.mesh.meet_again(desk.now, met) == []
    for _ in range(MESH_STRANGER_FAILURES_MAX + 1):
        desk.mesh.note_ended(desk.now, dial.handle)
        while not (dials := pick(Dial, desk.wait(1))):
            assert desk.now < 1000
        (dial,) = dials
    desk.opened(dial.handle, 1)
    assert desk.open == {greeting(1).hwaddr}


def test_garbage_instead_of_a_greeting_is_refused_and_counted() -> None:
    desk = Desk()
    handle = desk.mesh.new_handle()
    effects = desk.mesh.note_requested(0, handle, place(1).ip, b"garbage")
    assert effects == [Count("mesh_greeting"), Refuse(handle)]
    (dial,) = pick(Dial, desk.seed(1))
    effects = desk.mesh.note_opened(0, dial.handle, b"")
    assert pick(Hangup, effects) == [Hangup(dial.handle)]


def test_we_do_not_connect_with_ourselves() -> None:
    desk = Desk()
    handle, effects = desk.ask(0x50)
    assert effects == [Refuse(handle)]
    first = desk.meet(1)
    (dial,) = pick(Dial, desk.named(first, [place(7)]))
    desk.mesh.note_ended(desk.now, dial.handle, OURS.pack())  # the refusal carries our own greeting
    assert pick(Dial, desk.wait(1000)) == []


def test_a_seed_that_is_ourselves_is_dialed_again_but_seldom() -> None:
    """Its address may become another host's, and a host that answers there may lie."""
    desk = Desk()
    (dial,) = pick(Dial, desk.seed(7))
    for _ in range(5):
        desk.mesh.note_ended(desk.now, dial.handle, OURS.pack())
        assert desk.seed(7) == []
        assert desk.wait(MESH_OURSELVES_S - 1) == []
        (dial,) = pick(Dial, desk.wait(1))
    desk.opened(dial.handle, 7)
    assert desk.open == {greeting(7).hwaddr}


def test_a_place_that_once_was_ourselves_is_dialed_when_it_becomes_a_seed() -> None:
    desk = Desk()
    (dial,) = pick(Dial, desk.named(desk.meet(1), [place(7)]))
    desk.mesh.note_ended(desk.now, dial.handle, OURS.pack())
    assert [it.locator for it in pick(Dial, desk.seed(1, 7))] == [place(7)]


@pytest.mark.parametrize("answer", [OURS.pack(), b""])
def test_a_peer_makes_us_dial_a_bounded_number_of_places(answer: bytes) -> None:
    """A host of the peer's may answer all of them at once, as if it were we."""
    desk = Desk(peers_max=UNICAST_PEERS_MAX, contacts_max=4096)
    handle, places, dialed = desk.meet(1), iter(strangers(12_300)), set()
    for _ in range(250):  # 25 s
        effects = desk.named(handle, [next(places) for _ in range(49)]) + desk.wait(0.1)
        for dial in pick(Dial, effects):
            dialed.add(dial.locator)
            desk.mesh.note_ended(desk.now, dial.handle, answer)
    assert len(dialed) <= MESH_NAMED_BURST + 25 * MESH_NAMED_PER_S + 2
    assert "mesh_named_too_often" in counts(desk.named(handle, list(places)))
    assert place(2) in {
        it.locator for it in pick(Dial, desk.seed(1, 2))
    }  # a seed is dialed at once


def test_a_peer_that_comes_again_and_again_has_no_more_turns_than_all_together() -> None:
    desk = Desk(peers_max=8)
    places, dialed = iter(strangers(10_000)), 0
    for _ in range(100):
        handle, _ = desk.ask(1)
        desk.mesh.note_established(desk.now, handle)
        for dial in pick(Dial, desk.named(handle, [next(places) for _ in range(60)])):
            dialed += 1
            desk.mesh.note_ended(desk.now, dial.handle, OURS.pack())
        desk.mesh.note_ended(desk.now, handle)
        desk.wait(0.1)
    assert dialed <= 2 * 8 + 10 * MESH_NAMED_TOTAL_PER_S + 1


def test_a_host_that_joins_a_large_mesh_dials_all_places_that_a_peer_names() -> None:
    desk = Desk(peers_max=UNICAST_PEERS_MAX, contacts_max=4096)
    handle, places = desk.meet(1), strangers(UNICAST_PEERS_MAX - 2)
    effects = desk.named(handle, places)
    assert len(pick(Dial, effects)) == MESH_NAMED_BURST
    met = set()
    while dials := pick(Dial, effects):
        effects = []
        for dial in dials:
            desk.opened(dial.handle, 0x100 + places.index(dial.locator))
            met.add(dial.locator)
            effects += desk.named(dial.handle, places)
        effects += desk.wait(1)
        assert "mesh_named_too_often" not in counts(effects)
    assert met == set(places)


def test_strangers_leave_half_of_the_connections_to_the_others() -> None:
    desk = Desk(peers_max=8)
    effects = desk.named(desk.meet(1), strangers(12))
    assert len(pick(Dial, effects)) == 4
    assert counts(effects) == ["mesh_full"] * 8
    assert len(pick(Dial, desk.seed(1, 2))) == 1
    handle, effects = desk.ask(3)
    assert pick(Accept, effects) == [Accept(handle)]


@pytest.mark.parametrize("number", [0x10, 0x90])
@pytest.mark.parametrize("first_is_ours", [True, False])
def test_of_connections_that_cross_the_lesser_ones_stays(number: int, first_is_ours: bool) -> None:
    desk = Desk()
    (dial,) = pick(Dial, desk.seed(number))
    passive, _ = desk.ask(number)
    if first_is_ours:
        desk.opened(dial.handle, number)
        effects = desk.mesh.note_established(0, passive)
    else:
        desk.mesh.note_established(0, passive)
        effects = desk.opened(dial.handle, number)
    stays_ours = OURS.hwaddr.pack() < greeting(number).hwaddr.pack()
    assert pick(Hangup, effects) == [Hangup(passive if stays_ours else dial.handle)]
    assert "mesh_twice" in counts(effects)
    if pick(Met, effects):  # the newer one stays: it is in use before the other one ends
        assert pick(Met, effects) == [
            Met(dial.handle if stays_ours else passive, former=pick(Hangup, effects)[0].handle)
        ]
        kinds = [type(effect) for effect in effects]
        assert kinds.index(Met) < kinds.index(SendControl) < kinds.index(Hangup)
    assert pick(Gone, effects) == []
    (left,) = desk.mesh.snapshot()
    assert (left.is_ours, left.hwaddr) == (stays_ours, greeting(number).hwaddr)


def test_of_two_that_a_peer_asked_for_the_newer_stays() -> None:
    desk = Desk()
    older, _ = desk.ask(1)
    desk.mesh.note_established(0, older)
    newer, _ = desk.ask(1)
    effects = desk.mesh.note_established(0, newer)
    assert pick(Hangup, effects) == [Hangup(older)]
    assert pick(Met, effects) == [Met(newer, former=older)]
    assert len(desk.mesh.snapshot()) == 1


def test_peers_announce_to_each_other_where_the_others_are() -> None:
    desk = Desk()
    first = desk.meet(1)
    second, _ = desk.ask(2)
    effects = desk.mesh.note_established(desk.now, second) + desk.wait(MESH_NEWS_S)
    peers = [it for it in pick(SendControl, effects) if it.message[0] == Operation.PEERS]
    assert {it.handle: mesh.locators_untrusted(it.message) for it in peers} == {
        first: [place(2)],
        second: [place(1)],
    }


def test_who_was_introduced_by_a_peer_is_not_announced_again() -> None:
    desk = Desk()
    first = desk.meet(1)
    handle, _ = desk.ask(2, is_introduced=True)
    effects = desk.mesh.note_established(desk.now, handle) + desk.wait(MESH_NEWS_S)
    assert Operation.PEERS in controls(effects, handle)
    assert controls(effects, first) == []
    handle, _ = desk.ask(3)
    effects = desk.mesh.note_established(desk.now, handle) + desk.wait(MESH_NEWS_S)
    assert controls(effects, first) == [Operation.PEERS]


def test_many_new_peers_are_named_in_one_message_and_none_to_itself() -> None:
    desk = Desk()
    first = desk.meet(1)
    desk.wait(MESH_NEWS_S)
    newer = [desk.ask(number)[0] for number in (2, 3, 4)]
    for handle in newer:
        desk.mesh.note_established(desk.now, handle)
    desk.mesh.note_ended(desk.now, newer[2])
    told = {
        it.handle: mesh.locators_untrusted(it.message) for it in pick(SendControl, desk.wait(1))
    }
    assert told == {first: [place(2), place(3)], newer[0]: [place(3)], newer[1]: [place(2)]}


def test_a_host_that_dialed_us_is_not_dialed_when_others_name_it_but_when_it_is_gone() -> None:
    desk = Desk()
    first = desk.meet(1)
    handle, _ = desk.ask(2)
    desk.mesh.note_established(desk.now, handle)
    (named,) = mesh.peers([place(2)])
    assert pick(Dial, desk.mesh.control(desk.now, first, named)) == []
    desk.mesh.note_ended(desk.now, handle)
    assert [it.locator for it in pick(Dial, desk.wait(2))] == [place(2)]


def test_our_greeting_says_who_named_the_place() -> None:
    desk = Desk()
    first = desk.meet(1)
    (named,) = mesh.peers([place(2)])
    assert pick(Dial, desk.mesh.control(desk.now, first, named))[0].is_introduced
    assert not pick(Dial, desk.seed(1, 3))[0].is_introduced


def test_a_place_that_a_peer_announces_is_dialed_once() -> None:
    desk = Desk()
    handle = desk.meet(1)
    (message,) = mesh.peers([place(2), place(1), place(2)])
    (dial,) = pick(Dial, desk.mesh.control(0, handle, message))
    assert dial.locator == place(2)
    assert desk.mesh.control(0, handle, message) == []


def test_a_host_at_two_addresses_is_connected_once() -> None:
    desk = Desk()
    first, second = pick(Dial, desk.seed(1, 2))
    desk.opened(first.handle, 1)
    effects = desk.opened(second.handle, 1)
    assert pick(Hangup, effects) == [Hangup(first.handle)]  # both are of our asking
    assert pick(Dial, desk.wait(100)) == []
    desk.mesh.note_ended(desk.now, second.handle)
    assert {it.locator for it in pick(Dial, desk.wait(20))} >= {place(2)}


def test_a_host_is_gone_with_its_last_connection() -> None:
    desk = Desk()
    first, second = pick(Dial, desk.seed(1, 2))
    desk.opened(first.handle, 1)
    assert pick(Gone, desk.opened(second.handle, 1)) == []  # the second one took its place
    assert pick(Gone, desk.mesh.note_ended(desk.now, second.handle)) == [Gone(greeting(1).hwaddr)]


def test_what_a_peer_has_told_is_shown() -> None:
    desk = Desk()
    handle = desk.meet(1)
    ours, other = GROUP, Gid.parse("ff12:401b:ffff::7")
    (everything,) = mesh.groups(Operation.GROUPS, [ours])
    desk.mesh.control(desk.now, handle, everything)
    for operation, mgid in ((Operation.JOIN, other), (Operation.LEAVE, ours)):
        (message,) = mesh.groups(operation, [mgid])
        desk.mesh.control(desk.now, handle, message)
    desk.mesh.control(desk.now, handle, mesh.addresses([ip_address("10.0.0.1")]))
    (shown,) = desk.mesh.snapshot()
    assert (shown.groups, shown.addresses) == ((other,), (ip_address("10.0.0.1"),))


def test_the_groups_shown_of_a_peer_have_a_cap() -> None:
    desk = Desk()
    handle = desk.meet(1)
    mgids = [Gid(bytes((0xFF, 0x12)) + n.to_bytes(14)) for n in range(MESH_GROUPS_SHOWN + 10)]
    for message in mesh.groups(Operation.JOIN, mgids):
        desk.mesh.control(desk.now, handle, message)
    (shown,) = desk.mesh.snapshot()
    assert len(shown.groups) == MESH_GROUPS_SHOWN


def test_a_seed_is_tried_for_ever_with_growing_waits() -> None:
    desk = Desk()
    (dial,) = pick(Dial, desk.seed(1))
    waits = []
    for _ in range(12):
        began = desk.now
        assert pick(Hangup, desk.mesh.note_ended(desk.now, dial.handle)) == []
        while not (dials := pick(Dial, desk.wait(0.05))):
            pass
        (dial,) = dials
        waits.append(desk.now - began)
    assert waits[0] < 1.1
    assert all(MESH_BACKOFF_MAX_S * 0.7 <= it <= MESH_BACKOFF_MAX_S + 0.1 for it in waits[5:])


@pytest.mark.parametrize(
    ("has_answered", "most"), [(False, MESH_STRANGER_FAILURES_MAX), (True, MESH_FAILURES_MAX)]
)
def test_a_place_that_only_peers_announced_is_forgotten_at_last(
    has_answered: bool, most: int
) -> None:
    desk = Desk()
    handle = desk.meet(1)
    (dial,) = pick(Dial, desk.named(handle, [place(2)]))
    if has_answered:
        desk.opened(dial.handle, 2)
    for _ in range(most):
        desk.mesh.note_ended(desk.now, dial.handle)
        rounds = (pick(Dial, desk.wait(0.5)) for _ in range(int(2 * MESH_BACKOFF_MAX_S) + 1))
        (dial,) = next(filter(None, rounds))
    desk.mesh.note_ended(desk.now, dial.handle)
    assert pick(Dial, desk.wait(1000)) == []
    assert len(pick(Dial, desk.named(handle, [place(2)]))) == 1  # named again


def test_silence_ends_an_attempt_of_either_kind() -> None:
    desk = Desk()
    (dial,) = pick(Dial, desk.seed(1))
    handle, _ = desk.ask(2)
    effects = desk.wait(MESH_ANSWER_S)
    assert {it.handle for it in pick(Hangup, effects)} == {dial.handle, handle}
    assert counts(effects) == ["mesh_no_answer"] * 2


def test_there_are_no_more_connections_than_the_cap() -> None:
    desk = Desk(peers_max=2)
    effects = desk.seed(1, 2, 3)
    assert len(pick(Dial, effects)) == 2
    assert counts(effects) == ["mesh_full"]
    handle, effects = desk.ask(4)
    assert pick(Refuse, effects) == [Refuse(handle)]
    assert counts(effects) == ["mesh_full"]


def test_there_are_no_more_places_than_the_cap() -> None:
    desk = Desk(peers_max=64, contacts_max=40)
    refused = counts(desk.named(desk.meet(1), strangers(50)))
    assert refused.count("mesh_contacts_full") == 10 + 1  # the peer's own place is one, too


def test_a_seed_and_a_peer_take_the_place_of_a_stranger() -> None:
    desk = Desk(peers_max=64, contacts_max=40)
    desk.named(desk.meet(1), strangers(50))
    assert len(pick(Dial, desk.seed(1, 2))) == 1
    handle, _ = desk.ask(3)
    desk.mesh.note_established(desk.now, handle)
    desk.mesh.note_ended(desk.now, handle)
    assert place(3) in {it.locator for it in pick(Dial, desk.wait(2))}  # remembered


def test_groups_are_announced_to_all_and_heard_from_each() -> None:
    desk = Desk()
    desk.mesh.note_joined(GROUP)
    handle = desk.meet(1)
    effects = desk.mesh.note_joined(Gid(GROUP.raw[:15] + b"\2"))
    assert controls(effects, handle) == [Operation.JOIN]
    assert desk.mesh.note_joined(GROUP) == []
    assert controls(desk.mesh.note_left(GROUP), handle) == [Operation.LEAVE]
    assert desk.mesh.note_left(GROUP) == []
    (everything,) = mesh.groups(Operation.GROUPS, [GROUP])
    assert desk.mesh.control(0, handle, everything) == [InGroups(handle, (GROUP,))]
    (join,) = mesh.groups(Operation.JOIN, [GROUP])
    (leave,) = mesh.groups(Operation.LEAVE, [GROUP])
    assert desk.mesh.control(0, handle, join) == [InGroup(handle, GROUP, True)]
    assert desk.mesh.control(0, handle, leave) == [InGroup(handle, GROUP, False)]


def test_addresses_are_announced_to_all_and_learned_from_each() -> None:
    desk = Desk()
    handle = desk.meet(1)
    ours = [ip_address("10.9.0.1")]
    assert controls(desk.mesh.addresses(ours), handle) == [Operation.ADDRESSES]
    theirs = (ip_address("10.9.0.2"), ip_address("fd00::2"))
    effects = desk.mesh.control(0, handle, mesh.addresses(theirs))
    assert effects == [Learned(greeting(1).hwaddr, theirs)]


@pytest.mark.parametrize("message", [b"", b"\x09\0\0\0", b"\x05\0\0\0\0\0\0\1", b"\x01\0\0\0x"])
def test_a_message_that_makes_no_sense_is_counted(message: bytes) -> None:
    desk = Desk()
    handle = desk.meet(1)
    (reason,) = counts(desk.mesh.control(0, handle, message))
    assert reason in mesh.REASONS
    assert desk.open


def test_what_is_over_is_not_heard_any_more() -> None:
    desk = Desk()
    handle, _ = desk.ask(1)
    desk.mesh.note_established(0, handle)
    newer, _ = desk.ask(1)
    assert pick(Hangup, desk.mesh.note_established(0, newer)) == [Hangup(handle)]
    for effects in (
        desk.mesh.control(0, handle, mesh.addresses([])),
        desk.mesh.note_ended(0, handle),
        desk.opened(handle, 1),
        desk.mesh.note_established(0, handle),
    ):
        assert effects == []
