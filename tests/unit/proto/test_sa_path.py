# SPDX-License-Identifier: BSD-2-Clause
"""Paths under a subnet administrator: the table alone, and under a whole engine."""

from __future__ import annotations

import random
from dataclasses import replace
from ipaddress import ip_address
from typing import Final

import pytest

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    DELAY_FIRST_PROBE_S,
    GROUP_SEND_ONLY_IDLE_S,
    MAX_UNICAST_SOLICIT,
    RETRANS_TIMER_S,
    SA_PATH_PENDING_BYTES,
)
from ipoibu.proto.effects import (
    Attach,
    Count,
    Detach,
    Effect,
    FindPath,
    Forward,
    JoinToSend,
    LeaveToSend,
    Log,
    NeighAction,
    Publish,
    SendFrame,
    SendPacket,
    Withdraw,
)
from ipoibu.proto.engine import Engine
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.paths import SaPath, State
from ipoibu.proto.sa.path import PathTable
from ipoibu.wire import mgid
from tests.doubles.simulation import TEMPLATE, packet

PEER: Final = Gid.parse("fe80::10:5")
GROUP: Final = mgid.of_group(ip_address("239.1.2.3"), TEMPLATE.params.pkey)
ROUTERS: Final = mgid.of_group(ip_address("224.0.0.2"), TEMPLATE.params.pkey)
IP, TV = ip_address("10.0.0.2"), ip_address("239.1.2.3")
PLAIN: Final = Destination(PEER, Qpn(0x48))
PATH: Final = Destination(PEER, Qpn(1), dlid=7, sl=3, static_rate=2, hop_limit=0)
TO_GROUP: Final = Destination(GROUP, Qpn(MULTICAST_QPN))
MEMBER: Final = replace(TO_GROUP, dlid=0xC001, sl=1)
SEND: Final = Publish(IP, NeighAction.SEND, PLAIN, 2044)
NOTIFY: Final = Publish(TV, NeighAction.NOTIFY, TO_GROUP, 2044)
HELD: Final = Publish(IP, NeighAction.HOLD, None, 2044)


class Bed:
    """A `PathTable` with its timers; `out` collects its effects."""

    def __init__(self, cap: int = 100) -> None:
        self.timers = Timers()
        self.paths = PathTable(self.timers, cap)
        self.now = 0.0

    def put(self, *effects: Effect) -> list[Effect]:
        return self.paths.pass_on(self.now, effects)

    def path_resolved(self, destination: Destination, mtu_bytes: int = 65535) -> list[Effect]:
        self.paths.note_path_resolved(self.now, destination.gid, SaPath(destination, mtu_bytes))
        return self.put()

    def refused(self, gid: Gid) -> list[Effect]:
        self.paths.note_refused(self.now, gid, "0x0300")
        return self.put()

    def wait(self, seconds: float) -> list[Effect]:
        self.now += seconds
        self.timers.run(self.now)
        return self.put()


def known() -> Bed:
    bed = Bed()
    bed.put(SEND)
    bed.path_resolved(PATH)
    return bed


def test_b6_a_neighbour_waits_for_its_path_and_gets_the_sas_parameters() -> None:
    """B6."""
    bed = Bed()
    assert bed.put(SEND, SendPacket(b"a", IP)) == [FindPath(PEER), Withdraw(IP)]
    assert bed.path_resolved(PATH) == [
        replace(SEND, destination=replace(PATH, qpn=PLAIN.qpn)),
        SendPacket(b"a"),
    ]
    assert bed.put(SendPacket(b"b", IP)) == [SendPacket(b"b")]


def test_one_path_serves_all_queue_pairs_of_a_port_and_is_asked_for_once() -> None:
    bed = Bed()
    other = replace(PLAIN, qpn=Qpn(0x99))
    frame = SendFrame(other, b"arp")
    assert bed.put(SEND, frame) == [FindPath(PEER), Withdraw(IP)]
    assert bed.path_resolved(PATH)[1] == SendFrame(replace(PATH, qpn=other.qpn), b"arp")
    assert bed.put(frame) == [SendFrame(replace(PATH, qpn=other.qpn), b"arp")]


FULL_QUEUE = SA_PATH_PENDING_BYTES // 60_512


def test_few_packets_wait_for_a_path_and_the_others_are_counted() -> None:
    bed = Bed()
    frames = [SendFrame(PLAIN, bytes(60_000)) for n in range(FULL_QUEUE + 2)]
    out = bed.put(*frames)
    assert out.count(Count("path_pending_full")) == 2
    assert len(bed.path_resolved(PATH)) == FULL_QUEUE


def test_the_pump_drops_packets_by_itself_once_the_queue_is_full_or_the_sa_has_refused() -> None:
    bed = Bed()
    bed.put(SEND)
    packets = [SendPacket(bytes(60_000), IP) for n in range(FULL_QUEUE)]
    assert bed.put(*packets) == []  # the pump has no entry: it reports each packet
    assert bed.put(packets[-1]) == [Count("path_pending_full"), HELD]
    assert bed.put(packets[-1]) == [Count("path_pending_full")]
    assert bed.put(SEND) == [HELD]
    assert len(bed.path_resolved(PATH)) == 1 + FULL_QUEUE
    refused = Bed()
    refused.put(SEND, packets[0])
    assert HELD in refused.refused(PEER)
    assert refused.put(SEND) == [HELD]


def test_a_refusal_drops_what_waits_says_so_and_is_asked_again_with_back_off() -> None:
    bed = Bed()
    bed.put(SEND, SendPacket(b"a", IP))
    out = bed.refused(PEER)
    assert Count("way_refused") in out
    assert out.count(Count("way_unresolved")) == 1
    assert any(isinstance(effect, Log) and "0x0300" in effect.text for effect in out)
    assert bed.put(SendPacket(b"b", IP)) == [Count("way_unresolved")]
    assert bed.wait(0.9) == []
    assert bed.wait(0.1) == [FindPath(PEER)]
    bed.refused(PEER)
    assert bed.wait(1.9) == []
    assert bed.wait(0.1) == [FindPath(PEER)]
    assert bed.path_resolved(PATH)[0] == replace(SEND, destination=replace(PATH, qpn=PLAIN.qpn))


def test_a_light_flush_asks_again_and_traffic_goes_on_until_the_answer() -> None:
    bed = known()
    bed.paths.revalidate(bed.now)
    assert bed.put() == [FindPath(PEER)]
    assert bed.paths.state(PEER) is State.STALE
    frame = SendFrame(PLAIN, b"x")
    assert bed.put(frame) == [SendFrame(replace(PATH, qpn=PLAIN.qpn), b"x")]
    assert Count("way_refused") in bed.refused(PEER)
    assert bed.put(frame) == [SendFrame(replace(PATH, qpn=PLAIN.qpn), b"x")]
    assert bed.wait(1.0) == [FindPath(PEER)]
    moved = replace(PATH, dlid=9)
    assert bed.path_resolved(moved) == [replace(SEND, destination=replace(moved, qpn=PLAIN.qpn))]


def test_packets_that_wait_for_a_path_are_looked_up_again_after_a_change_of_their_route() -> None:
    bed = Bed()
    far, near = (packet("10.0.0.1", to, b"waits") for to in ("10.5.0.7", str(IP)))
    others = [SendFrame(PLAIN, bytes(60_000))] * (FULL_QUEUE + 1)
    bed.put(SEND, SendPacket(far, IP), SendPacket(near, IP), *others)
    bed.paths.note_rerouted(lambda ip: ip == IP)
    assert bed.put() == [Withdraw(IP), Forward(near)]  # the queue was full: it has room again
    bed.paths.note_rerouted(lambda ip: ip == ip_address("10.5.0.7"))
    assert bed.put() == [Forward(far)]
    bed.paths.note_rerouted(lambda ip: True)
    assert bed.put() == []
    assert not [it for it in bed.path_resolved(PATH) if isinstance(it, SendPacket)]
    bed.paths.note_rerouted(lambda ip: True)
    assert bed.put() == []


def test_m1_sending_to_a_group_asks_for_a_membership_that_only_sends() -> None:
    """M1."""
    bed = Bed()
    assert bed.put(NOTIFY, SendPacket(b"a", TV))[0] == JoinToSend(GROUP, ROUTERS)
    assert bed.path_resolved(MEMBER) == [replace(NOTIFY, destination=MEMBER), SendPacket(b"a")]


def test_m5_a_group_that_was_refused_is_asked_for_when_somebody_creates_it() -> None:
    """M2, M5."""
    bed = Bed()
    bed.put(NOTIFY)
    bed.refused(GROUP)
    bed.paths.note_changed(bed.now, GROUP, exists=True)
    assert bed.put() == [JoinToSend(GROUP, ROUTERS)]
    bed.path_resolved(MEMBER)
    bed.paths.note_changed(bed.now, GROUP, exists=True)  # our own join's report
    assert bed.put() == []
    bed.paths.note_changed(bed.now, GROUP, exists=False)
    assert bed.put() == [JoinToSend(GROUP, ROUTERS)]


def test_m1_a_detour_ends_when_somebody_creates_the_group() -> None:
    """M1."""
    bed = Bed()
    bed.put(NOTIFY)
    by = replace(MEMBER, gid=ROUTERS)
    bed.paths.note_path_resolved(bed.now, GROUP, SaPath(by))
    assert bed.put() == [replace(NOTIFY, destination=by)]
    bed.paths.note_changed(bed.now, GROUP, exists=True)
    assert bed.put() == [JoinToSend(GROUP, ROUTERS)]
    assert bed.path_resolved(MEMBER) == [replace(NOTIFY, destination=MEMBER)]


def test_m8_a_group_that_nothing_is_sent_to_is_left() -> None:
    """M8."""
    bed = Bed()
    bed.put(NOTIFY)
    bed.path_resolved(MEMBER)
    assert bed.wait(GROUP_SEND_ONLY_IDLE_S + 1) == []
    bed.put(Withdraw(TV))
    assert LeaveToSend(GROUP) in bed.wait(GROUP_SEND_ONLY_IDLE_S + 1)
    assert len(bed.paths) == 0


def test_a_member_sends_without_asking_and_asks_when_it_is_none_any_more() -> None:
    bed = Bed()
    bed.paths.note_joined(0.0, GROUP, SaPath(MEMBER))
    assert bed.put(NOTIFY) == [replace(NOTIFY, destination=MEMBER)]
    assert bed.put(Detach(GROUP)) == [Detach(GROUP), JoinToSend(GROUP, ROUTERS)]


@pytest.mark.parametrize(
    ("ip", "detour"),
    [
        ("224.0.0.251", None),
        ("239.1.2.3", "224.0.0.2"),
        ("ff02::fb", None),
        ("ff05::fb", "ff02::2"),
    ],
)
def test_m1_only_what_goes_beyond_the_link_may_go_by_the_routers(
    ip: str, detour: str | None
) -> None:
    """M1."""
    address = ip_address(ip)
    group = mgid.of_group(address, TEMPLATE.params.pkey)
    by = mgid.of_group(ip_address(detour), TEMPLATE.params.pkey) if detour else None
    to = Destination(group, Qpn(MULTICAST_QPN))
    out = Bed().put(Publish(address, NeighAction.NOTIFY, to, 2044))
    assert out[0] == JoinToSend(group, by)


def test_a_neighbour_that_moves_takes_the_path_of_its_new_port() -> None:
    bed = known()
    other = Gid.parse("fe80::10:7")
    moved = replace(SEND, destination=Destination(other, Qpn(0x50)))
    assert bed.put(moved) == [FindPath(other), Withdraw(IP)]
    assert bed.path_resolved(replace(PATH, gid=other))[0].destination.gid == other  # type: ignore[union-attr]


def test_a_neighbour_that_returns_with_a_new_queue_pair_needs_no_back_off_to_be_over() -> None:
    bed = Bed()
    bed.put(SEND)
    bed.refused(PEER)
    assert bed.put(SEND) == [HELD]  # nothing new
    back = replace(SEND, destination=replace(PLAIN, qpn=Qpn(0x77)))
    assert bed.put(back, SendPacket(b"a", IP)) == [FindPath(PEER), Withdraw(IP)]
    assert bed.path_resolved(PATH)[1] == SendPacket(b"a")


def test_a_late_answer_and_one_for_nobody_change_nothing() -> None:
    bed = Bed()
    assert bed.path_resolved(PATH) == []
    bed.put(SEND, Withdraw(IP))
    assert bed.path_resolved(PATH) == []
    assert bed.refused(PEER) == []


def test_the_table_has_a_bound_and_idle_paths_make_room() -> None:
    bed = Bed(cap=2)
    gids = [Gid.parse(f"fe80::{n}") for n in range(1, 5)]
    for gid in gids[:3]:
        bed.put(SendFrame(Destination(gid, Qpn(9)), b""))
    assert len(bed.paths) == 2
    full = Bed(cap=1)
    full.put(SEND)
    out = full.put(replace(NOTIFY))
    assert Count("way_table_full") in out
    assert Publish(TV, NeighAction.HOLD, None, 2044) in out


def test_when_the_link_goes_down_all_paths_and_send_only_groups_go() -> None:
    bed = Bed()
    bed.put(NOTIFY)
    bed.path_resolved(MEMBER)
    bed.put(Withdraw(TV))
    bed.paths.clear(bed.now)
    assert bed.put() == [LeaveToSend(GROUP)]
    assert len(bed.paths) == 0
    assert bed.timers.deadline() is None


def test_b6_a_path_narrower_than_the_link_bounds_the_neighbours_packets_until_it_widens() -> None:
    """B6."""
    bed = Bed()
    bed.put(SEND)
    to = replace(PATH, qpn=PLAIN.qpn)
    assert bed.path_resolved(PATH, 1020) == [replace(SEND, destination=to, mtu_bytes=1020)]
    assert bed.put(SEND) == [replace(SEND, destination=to, mtu_bytes=1020)]
    bed.paths.revalidate(1.0)
    bed.put()
    assert bed.path_resolved(PATH, 4092) == [
        replace(SEND, destination=to)
    ]  # never more than the link's


def test_a_group_narrower_than_the_link_bounds_its_packets() -> None:
    bed = Bed()
    bed.put(NOTIFY)
    assert bed.path_resolved(MEMBER, 508) == [replace(NOTIFY, destination=MEMBER, mtu_bytes=508)]


# -- a whole engine ------------------------------------------------------------------------------


def engine() -> Engine:
    config = replace(TEMPLATE, hwaddr=HwAddr(Qpn(0x77), Gid.parse("fe80::10:3")), has_sa=True)
    return Engine(config, random.Random(1))


BROADCAST: Final = mgid.broadcast(TEMPLATE.params.pkey)
ON_LINK: Final = Destination(BROADCAST, Qpn(MULTICAST_QPN), dlid=0xC000)


def up(machine: Engine) -> list[Effect]:
    machine.start(0.0)
    return machine.note_attached(0.0, BROADCAST, SaPath(ON_LINK))


def test_b1_broadcasts_go_where_the_broadcast_groups_record_says() -> None:
    """B1."""
    published = [effect for effect in up(engine()) if isinstance(effect, Publish)]
    assert [effect.destination.dlid for effect in published if effect.destination] == [0xC000]


def test_after_the_sas_return_all_groups_are_asked_for_the_broadcast_group_first() -> None:
    machine = engine()
    up(machine)
    hosts = mgid.of_group(ip_address("224.0.0.1"), TEMPLATE.params.pkey)
    machine.note_attached(0.0, hosts, SaPath(Destination(hosts, Qpn(MULTICAST_QPN), dlid=0xC001)))
    assert machine.sa.note_changed(1.0)[:2] == [Attach(BROADCAST), Attach(hosts)]
    assert machine.is_up


def test_a_group_whose_membership_the_sa_takes_away_is_sent_to_with_one_of_its_own() -> None:
    """The SA's former answer about the group is invalid, now and after the link was down (M1)."""
    machine = engine()
    up(machine)
    machine.join(0.0, TV)
    machine.note_attached(0.0, GROUP, SaPath(MEMBER))
    machine.miss(1.0, TV, b"first")
    machine.sa.note_changed(2.0)
    assert JoinToSend(GROUP, ROUTERS) in machine.note_attach_failed(2.0, GROUP, "0x0200")
    machine.port_event(3.0, "down")
    machine.port_event(3.0, "up")
    machine.note_attached(3.0, BROADCAST, SaPath(ON_LINK))
    assert JoinToSend(GROUP, ROUTERS) in machine.miss(4.0, TV, b"second")


def test_b4_a_broadcast_group_that_is_gone_is_not_made_by_sending() -> None:
    """B4."""
    machine = engine()
    up(machine)
    machine.sa.note_changed(1.0)
    after = machine.note_attach_failed(1.0, BROADCAST, "0x0600")
    assert not any(isinstance(effect, JoinToSend) for effect in after)


def test_b6_the_path_to_a_host_that_does_not_answer_is_requested_again() -> None:
    """B6. Its port may have another LID now: any answer to a solicitation would lead to the former path."""
    machine = engine()
    up(machine)
    machine.note_learned(0.0, HwAddr(Qpn(0x48), PEER), [IP])
    machine.sa.note_path_resolved(0.0, PEER, SaPath(PATH))
    machine.note_used(0.0, IP)
    asked: list[float] = []
    while (now := machine.deadline() or 60.0) < 60.0:
        asked += [now for effect in machine.timer(now) if effect == FindPath(PEER)]
    assert asked[:1] == [DELAY_FIRST_PROBE_S + MAX_UNICAST_SOLICIT * RETRANS_TIMER_S]
    assert machine.neighbours(60.0) == []


def test_without_an_sa_nothing_is_asked() -> None:
    machine = Engine(replace(TEMPLATE, hwaddr=HwAddr(Qpn(0x77), PEER)), random.Random(1))
    up(machine)
    assert machine.sa.note_changed(1.0) == []
    assert machine.sa.note_path_resolved(1.0, PEER, SaPath(PATH)) == []


def test_a_snapshot_shows_what_the_administrator_gave_and_who_uses_it() -> None:
    bed = Bed()
    bed.put(SEND)
    (asked,) = bed.paths.snapshot(bed.paths.gids())
    assert (asked.gid, asked.state, asked.destination) == (PEER, "asked", None)
    bed.path_resolved(PATH, 2044)
    (known,) = bed.paths.snapshot([PEER, GROUP])
    assert (known.state, known.destination, known.mtu_bytes) == ("known", PATH, 2044)
    assert known.next_hops == (IP,)
