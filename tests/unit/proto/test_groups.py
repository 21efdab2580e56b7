# SPDX-License-Identifier: BSD-2-Clause
"""Multicast groups of a whole engine: receiving, sending, counting users."""

from __future__ import annotations

import random
from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_interface

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ipoibu.base.addr import Gid, IpAddress
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import GROUPS_MAX
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Attach, Detach, NeighAction, Publish, SendPacket, Withdraw
from ipoibu.proto.groups.groups import GroupInfo, Groups, Kind, Member
from ipoibu.wire.mgid import LIMITED_BROADCAST, of_group
from tests.doubles.engine_bench import Bench
from tests.doubles.simulation import TEMPLATE

PKEY = TEMPLATE.params.pkey
BROADCAST = of_group(LIMITED_BROADCAST, PKEY)
TV = "239.1.2.3"
TV_MGID = of_group(ip_address(TV), PKEY)
# two groups that differ above the low 80 bits only (G3)
TWIN_A, TWIN_B = "ff15::77", "ff08:0:1::77"
TWIN_MGID = of_group(ip_address(TWIN_A), PKEY)


def info(bench: Bench, mgid: Gid) -> GroupInfo | None:
    return {info.mgid: info for info in bench.host.engine.groups(bench.now)}.get(mgid)


def asked(bench: Bench) -> list[Attach | Detach]:
    return [effect for effect in bench.host.effects if isinstance(effect, Attach | Detach)]


# -- receiving -----------------------------------------------------------------------------------


def test_the_broadcast_group_comes_first_and_the_all_hosts_groups_next() -> None:
    """B1."""
    bench = Bench(ready=False)
    bench.host.engine.join(0.0, ip_address(TV))
    assert asked(bench) == [Attach(BROADCAST)]
    bench.run(0.001)
    assert asked(bench)[1:3] == [
        Attach(of_group(ip_address("224.0.0.1"), PKEY)),
        Attach(of_group(ip_address("ff02::1"), PKEY)),
    ]
    assert Attach(TV_MGID) in asked(bench)


def test_a_group_is_attached_once_for_all_users_and_left_a_second_after_the_last() -> None:
    bench = Bench()
    bench.host.join(TV)
    bench.host.join(TV)
    bench.run(0.1)
    assert asked(bench) == [Attach(TV_MGID)]
    group = info(bench, TV_MGID)
    assert group is not None
    assert (group.state, group.kind, group.users) == (Member.MEMBER, Kind.FULL, 2)
    bench.host.leave(TV)
    bench.run(5)
    assert TV_MGID in bench.host.groups
    bench.host.leave(TV)
    bench.run(0.9)
    assert TV_MGID in bench.host.groups
    bench.run(0.2)
    assert asked(bench) == [Attach(TV_MGID), Detach(TV_MGID)]
    assert info(bench, TV_MGID) is None


def test_a_group_left_and_joined_again_within_a_second_stays() -> None:
    bench = Bench()
    bench.host.join(TV)
    bench.run(1)
    for _ in range(5):
        bench.host.leave(TV)
        bench.run(0.5)
        bench.host.join(TV)
        bench.run(0.5)
    assert asked(bench) == [Attach(TV_MGID)]


def test_ipv6_groups_that_share_an_mgid_are_counted_together() -> None:
    bench = Bench()
    bench.host.join(TWIN_A)
    bench.host.join(TWIN_B)
    bench.run(1)
    assert asked(bench) == [Attach(TWIN_MGID)]
    bench.host.leave(TWIN_A)
    bench.run(5)
    group = info(bench, TWIN_MGID)
    assert group is not None
    assert (group.users, group.ips) == (1, (ip_address(TWIN_B),))
    bench.host.leave(TWIN_B)
    bench.run(5)
    assert asked(bench) == [Attach(TWIN_MGID), Detach(TWIN_MGID)]


def test_a_refused_group_is_asked_for_after_1_2_4_8_16_16_seconds() -> None:
    bench = Bench()
    bench.host.refused.add(TV_MGID)
    bench.host.join(TV)
    times = []
    for _ in range(70):
        before = len(asked(bench))
        bench.run(1)
        times += [round(bench.now) - 10] * (len(asked(bench)) - before)
    assert times == [1, 3, 7, 15, 31, 47, 63]
    assert bench.host.counts["group_join_refused"] == 8
    causes = [it.cause for it in bench.host.transitions if it.after == "backoff"]
    assert (len(causes), "no room" in causes[0]) == (8, True)


def test_a_group_that_is_let_in_after_all_starts_its_next_back_off_anew() -> None:
    bench = Bench()
    bench.host.refused.add(TV_MGID)
    bench.host.join(TV)
    bench.run(20)
    bench.host.refused.clear()
    bench.run(20)
    group = info(bench, TV_MGID)
    assert group is not None
    assert group.state is Member.MEMBER
    bench.host.carry_out(bench.host.engine.note_attach_failed(bench.now, TV_MGID, "gone"))
    bench.run(1.1)
    assert TV_MGID in bench.host.groups
    group = info(bench, TV_MGID)
    assert group is not None
    assert group.state is Member.MEMBER


def test_a_group_that_nobody_wants_any_more_is_not_asked_for_again() -> None:
    bench = Bench()
    bench.host.refused.add(TV_MGID)
    bench.host.join(TV)
    bench.run(0.1)
    bench.host.leave(TV)
    bench.clear()
    bench.run(60)
    assert asked(bench) == []
    assert bench.host.engine.deadline() is None


def test_answers_about_a_group_that_is_gone_are_ignored() -> None:
    bench = Bench()
    assert bench.host.engine.note_attached(bench.now, TV_MGID) == []
    assert bench.host.engine.note_attach_failed(bench.now, TV_MGID, "late") == []


def test_joins_beyond_the_cap_are_refused_and_counted() -> None:
    bench = Bench("10.0.0.1/24")
    first = IPv4Address("239.0.0.0")
    for i in range(GROUPS_MAX + 5):
        bench.host.join(str(first + i))
    assert len(bench.host.engine.groups(bench.now)) == GROUPS_MAX
    over = bench.host.counts["group_table_full"]
    assert over > 5
    assert 0 < len(bench.host.log) <= over  # the log names some
    bench.host.leave(str(first))
    bench.run(2)
    bench.host.join("239.77.77.77")
    assert bench.host.counts["group_table_full"] == over


def test_groups_that_share_an_mgid_count_as_many() -> None:
    """RFC 4391 §4: an MGID has the low 80 bits of an IPv6 group, so a program can name any number."""
    bench = Bench("fe80::1/64")
    before = sum(len(it.ips) for it in bench.host.engine.groups(bench.now) if it.users)
    for i in range(GROUPS_MAX):
        bench.host.join(f"ff0e:{i:x}::77")
    taken = GROUPS_MAX - bench.host.counts["group_table_full"]
    assert taken + before == GROUPS_MAX
    bench.host.leave("ff0e::77")
    full = bench.host.counts["group_table_full"]
    bench.host.join("ff0e:ffff::77")
    assert bench.host.counts["group_table_full"] == full


def test_the_application_s_mistakes_raise() -> None:
    engine = Bench().host.engine
    with pytest.raises(UsageError, match=r"10\.0\.0\.2 is not a multicast group"):
        engine.join(99.0, ip_address("10.0.0.2"))
    with pytest.raises(UsageError, match="was not joined"):
        engine.leave(99.0, ip_address(TV))


def test_the_application_cannot_leave_what_the_kernel_has_joined() -> None:
    engine = Bench().host.engine
    with pytest.raises(UsageError, match="was not joined"):
        engine.leave(99.0, ip_address("ff02::1"))


def test_a_late_refusal_of_a_member_is_announced_and_a_late_consent_taken() -> None:
    bench = Bench()
    engine = bench.host.engine
    bench.host.join(TV)
    bench.run(0.1)
    bench.clear()
    bench.host.carry_out(engine.note_attach_failed(bench.now, TV_MGID, "gone"))
    assert bench.host.counts == {"group_join_refused": 1}
    bench.host.carry_out(engine.note_attached(bench.now, TV_MGID))
    bench.clear()
    bench.host.carry_out(engine.note_attach_failed(bench.now, TV_MGID, "gone again"))
    causes = [it.cause for it in bench.host.transitions if it.after == "backoff"]
    assert causes == ["gone", "gone again"]
    assert engine.deadline() == bench.now + 1.0  # the consent ended the back-off


def test_a_group_that_lingers_when_the_link_goes_is_left_for_good() -> None:
    bench = Bench()
    bench.host.join(TV)
    bench.run(0.1)
    bench.host.leave(TV)
    for event in ("down", "up"):
        bench.host.carry_out(bench.host.engine.port_event(bench.now, event))
    bench.run(5)
    assert TV_MGID not in bench.host.groups
    assert asked(bench).count(Detach(TV_MGID)) == 1


# -- sending -------------------------------------------------------------------------------------


def test_broadcast_is_published_when_the_link_comes_up_and_for_good() -> None:
    bench = Bench(ready=False)
    assert bench.action("255.255.255.255") is None
    bench.run(0.001)
    assert bench.action("255.255.255.255") is NeighAction.SEND
    bench.run(7200)
    row = bench.host.table[LIMITED_BROADCAST]
    assert row.destination is not None
    assert (row.destination.gid, row.destination.qpn) == (BROADCAST, 0xFFFFFF)


def test_a_packet_to_a_group_goes_out_at_once_without_joining_it() -> None:
    """M1."""
    bench = Bench()
    bench.send(TV, b"picture")
    [(destination, frame)] = bench.sent
    assert (destination.gid, destination.qpn, destination.hop_limit) == (TV_MGID, 0xFFFFFF, 64)
    assert frame.endswith(b"picture")
    assert asked(bench) == []
    group = info(bench, TV_MGID)
    assert group is not None
    assert (group.kind, group.state, group.users) == (Kind.SEND_ONLY, Member.NONE, 0)


@pytest.mark.parametrize("is_used", [False, True])
def test_a_miss_that_was_on_its_way_when_the_group_was_published_is_sent_on(is_used: bool) -> None:
    bench = Bench()
    engine, group = bench.host.engine, ip_address(TV)
    engine.miss(bench.now, group, b"first")
    if is_used:
        engine.note_used(bench.now, group)
    for next_hop in (group, LIMITED_BROADCAST):
        # The pump may have refused the entry, and the event may be lost: it gets the entry again.
        published, sent = engine.miss(bench.now, next_hop, b"late")
        assert sent == SendPacket(b"late")
        action = NeighAction.SEND if is_used or next_hop != group else NeighAction.NOTIFY
        assert isinstance(published, Publish)
        assert (published.next_hop, published.action) == (next_hop, action)


def test_a_joined_group_is_published_likewise() -> None:
    bench = Bench()
    bench.host.join(TV)
    bench.run(1)
    bench.send(TV)
    group = info(bench, TV_MGID)
    assert group is not None
    assert group.kind is Kind.FULL
    assert bench.action(TV) is NeighAction.NOTIFY


def test_an_idle_send_only_group_is_withdrawn_after_one_to_two_minutes() -> None:
    """M8."""
    bench = Bench()
    bench.send(TV)
    bench.run(119)
    assert bench.action(TV) is NeighAction.NOTIFY
    bench.run(2)
    assert bench.action(TV) is None
    assert info(bench, TV_MGID) is None


def test_a_send_only_group_in_use_stays() -> None:
    bench = Bench()
    for _ in range(100):
        bench.send(TV)
        bench.run(50)
    assert bench.action(TV) is NeighAction.NOTIFY
    assert [e for e in bench.host.effects if isinstance(e, Withdraw)] == []


def test_the_idle_time_is_shown() -> None:
    bench = Bench()
    bench.send(TV)
    bench.run(30)
    group = info(bench, TV_MGID)
    assert group is not None
    assert group.idle_s == pytest.approx(30)


def test_a_subnet_broadcast_goes_to_the_broadcast_group_as_long_as_the_subnet_is_ours() -> None:
    bench = Bench("10.0.0.1/24")
    bench.send("10.0.0.255")
    assert bench.sent[0][0].gid == BROADCAST
    bench.host.remove(ip_interface("10.0.0.1/24"))
    assert bench.action("10.0.0.255") is None


def test_sending_to_countless_groups_forgets_the_ones_used_longest_ago() -> None:
    bench = Bench("10.0.0.1/24")
    first = IPv4Address("239.0.0.0")
    for i in range(GROUPS_MAX + 100):
        bench.send(str(first + i))
    assert len(bench.sent) == GROUPS_MAX + 100
    assert bench.host.counts["group_sender_evicted"] == 101  # broadcast is the one that stays
    assert len(bench.host.table) == GROUPS_MAX
    assert bench.action("255.255.255.255") is NeighAction.SEND
    assert bench.action(str(first)) is None


def test_parameters_of_the_broadcast_group_serve_every_group() -> None:
    params = replace(TEMPLATE.params, sl=3, hop_limit=9, traffic_class=7, flow_label=5, rate=6)
    bench = Bench(template=replace(TEMPLATE, params=params))
    bench.send(TV)
    destination, _ = bench.sent[0]
    assert (destination.sl, destination.hop_limit, destination.traffic_class) == (3, 9, 7)
    assert (destination.flow_label, destination.static_rate) == (5, 6)


# -- any order of things -------------------------------------------------------------------------

IPS: list[IpAddress] = [ip_address(text) for text in (TV, TWIN_A, TWIN_B, "224.0.0.251")]


class GroupMachine(RuleBasedStateMachine):
    """Joins, leaves, packets, answers of the fabric, link up and down, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.context = EngineContext(TEMPLATE, random.Random(1))
        self.groups = Groups(self.context, cap=3)
        self.now = 0.0
        self.is_open = False
        self.users: dict[IpAddress, int] = dict.fromkeys(IPS, 0)
        self.fabric: set[Gid] = set()
        self.asked: list[Gid] = []
        self.table: dict[IpAddress, Publish] = {}

    def settle(self) -> None:
        for effect in self.context.take():
            match effect:
                case Attach():
                    self.fabric.add(effect.mgid)
                    self.asked.append(effect.mgid)
                case Detach():
                    self.fabric.discard(effect.mgid)
                case Publish():
                    self.table[effect.next_hop] = effect
                case Withdraw():
                    del self.table[effect.next_hop]
                case SendPacket():
                    assert IPS[effect.packet[0]] in self.table

    some = st.sampled_from(IPS)

    @rule(ip=some)
    def join(self, ip: IpAddress) -> None:
        self.users[ip] += self.groups.join(self.now, ip)
        self.settle()

    @rule(ip=some)
    def leave(self, ip: IpAddress) -> None:
        self.groups.leave(self.now, ip)
        self.users[ip] -= self.users[ip] > 0
        self.settle()

    @rule(i=st.integers(0, len(IPS) - 1))
    def miss(self, i: int) -> None:
        if self.is_open:
            self.groups.miss(self.now, IPS[i], bytes((i,)))
            self.settle()

    @rule(ip=some)
    def used(self, ip: IpAddress) -> None:
        self.groups.note_used(self.now, ip)
        self.settle()

    @rule(good=st.booleans())
    def answer(self, good: bool) -> None:
        if self.asked:
            mgid = self.asked.pop(0)
            if good:
                self.groups.note_attached(self.now, mgid)
            else:
                self.fabric.discard(mgid)
                self.groups.note_attach_failed(self.now, mgid, "no")
            self.settle()

    @rule()
    def open_or_close(self) -> None:
        if self.is_open:
            self.groups.close(self.now)
        else:
            self.groups.open(self.now)
        self.is_open = not self.is_open
        self.settle()

    @rule(passing=st.sampled_from([0.5, 1.0, 10.0, 61.0]))
    def wait(self, passing: float) -> None:
        self.now += passing
        while (at := self.context.timers.deadline()) is not None and at <= self.now:
            self.context.timers.run(at)
            self.settle()

    @invariant()
    def users_and_tables_agree(self) -> None:
        shown = {info.mgid: info for info in self.groups.snapshot(self.now)}
        wanted: dict[Gid, int] = {}
        for ip, users in self.users.items():
            wanted[self.context.mgid(ip)] = wanted.get(self.context.mgid(ip), 0) + users
        for mgid, users in wanted.items():
            assert (shown[mgid].users if mgid in shown else 0) == users
        assert len(self.groups) <= 3
        assert len(self.table) <= 3
        assert self.is_open or not self.table

    @invariant()
    def nothing_is_received_without_a_reason(self) -> None:
        states = {info.mgid: info.state for info in self.groups.snapshot(self.now)}
        for mgid in self.fabric:
            assert states.get(mgid) in (
                Member.JOINING,
                Member.MEMBER,
                Member.LINGERING,
                Member.BACKOFF,
            )


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestGroups = GroupMachine.TestCase
