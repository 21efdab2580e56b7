# SPDX-License-Identifier: BSD-2-Clause
"""The client on an event loop, against a subnet administrator in memory."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any, Final, TypeVar

import pytest

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.base.errors import Closed, LinkError
from ipoibu.base.ib import Destination, PartitionParams
from ipoibu.base.limits import SA_EVENTS_MAX, SA_ROUND
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.sa.mad_port import MadIn, MadPortInfo, MadTo
from ipoibu.fabric.sa.transport import Event
from ipoibu.proto.paths import SaPath
from ipoibu.proto.sa.errors import InsufficientComponents, InvalidRequest, NoAnswer, NoRecords
from ipoibu.proto.sa.records import link_params, path_from_record, path_to_group
from ipoibu.proto.sa.requests import Change, Pace
from ipoibu.wire import mgid
from ipoibu.wire.mad import Method
from ipoibu.wire.mcmember import JoinState
from ipoibu.wire.notice import Notice, Trap
from ipoibu.wire.sa import Attribute, Capability2, SaMad, Status
from tests.doubles.fake_sa import FakePort, FakeSa, port_gid

T = TypeVar("T")

DEFAULT: Final = PKey(0xFFFF)
FULL: Final = JoinState.FULL_MEMBER
QUICK: Final = Pace(timeout_s=0.02, attempts=2, probe_min_s=0.02, probe_max_s=0.04)
PATIENT: Final = Pace(timeout_s=60, attempts=1)
# OpenSM: the broadcast group has hop limit 0 on a link of scope 2
PARAMS: Final = PartitionParams(DEFAULT, 0x0B1B, 2048, hop_limit=0, rate=3)


def group(number: int) -> Gid:
    return mgid.of_group(IPv4Address(f"239.1.{number >> 8}.{number & 0xFF}"), DEFAULT)


def run(
    scenario: Callable[[SaClient, FakeSa, FakePort], Coroutine[Any, Any, T]],
    *,
    pace: Pace = PATIENT,
    kernel: Callable[[], frozenset[PKey]] = frozenset,
    pkeys: tuple[int, ...] = (0xFFFF,),
) -> T:
    """Play `scenario` with one host on a fabric whose default partition is for IPoIB."""

    async def played() -> T:
        fake_sa = FakeSa()
        fake_sa.make_broadcast(DEFAULT)
        port = FakePort(fake_sa, pkeys=pkeys)
        client = SaClient(port, pace=pace, rng=random.Random(7), kernel=kernel)
        try:
            return await scenario(client, fake_sa, port)
        finally:
            client.abort()
            assert port.is_closed

    return asyncio.run(played())


async def refused(request: Awaitable[object], kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        await request
    return str(caught.value)


def members(fake_sa: FakeSa, gid: Gid) -> JoinState | None:
    group = fake_sa.groups.get(gid)
    return group.members.get(port_gid(2)) if group else None


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not happened():
            await asyncio.sleep(0)


# -- groups ----------------------------------------------------------------------------------------


def test_b1_the_broadcast_groups_record_gives_the_links_parameters() -> None:
    """B1, M3."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        record = await client.join(mgid.broadcast(DEFAULT))
        assert link_params(record) == PARAMS
        to = Destination(
            mgid.broadcast(DEFAULT), Qpn(0xFFFFFF), dlid=0xC000, static_rate=3, hop_limit=0
        )
        assert path_to_group(record) == SaPath(to, 2044)
        assert members(fake_sa, mgid.broadcast(DEFAULT)) == FULL

    run(scenario)


def test_requests_go_to_the_sa_with_the_default_partitions_key() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        await client.join(mgid.broadcast(DEFAULT))
        [(_, to, wait_s)] = port.sent
        assert to == MadTo(lid=1, qpn=1, sl=0, pkey_index=2)
        assert wait_s >= 60

    run(scenario, pkeys=(0x8001, 0x0000, 0xFFFF))


def test_m3_an_absent_group_is_created_with_the_links_parameters() -> None:
    """M3."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        record = await client.join(group(1), FULL, PARAMS)
        assert (record.mtu_bytes, record.qkey, record.join_state) == (2048, 0x0B1B, FULL)
        assert link_params(replace(record, scope=2)) == PARAMS
        assert client.held == ((group(1), FULL),)
        await client.leave(group(1))
        assert members(fake_sa, group(1)) is None
        assert not client.held

    run(scenario)


def test_an_unknown_rate_is_left_to_the_sa() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        await client.join(group(1), FULL, replace(PARAMS, rate=0))
        assert fake_sa.seen[-1].mask == 0x170F7 & ~0x300

    run(scenario)


@pytest.mark.parametrize(
    ("capability2", "state"),
    [
        (Capability2.SEND_ONLY_FULL_MEMBER, JoinState.SEND_ONLY_FULL_MEMBER),
        (Capability2(0), JoinState.SEND_ONLY_NON_MEMBER),
    ],
)
def test_m1_a_sender_joins_as_the_sa_is_able_to_take_it(
    capability2: Capability2, state: JoinState
) -> None:
    """M1."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.capability2 = capability2
        await client.join_to_send(mgid.broadcast(DEFAULT), PARAMS)
        assert members(fake_sa, mgid.broadcast(DEFAULT)) == state
        await client.leave_to_send(mgid.broadcast(DEFAULT))
        assert members(fake_sa, mgid.broadcast(DEFAULT)) is None
        assert not client.held

    run(scenario)


def test_m1_a_sender_alone_gets_no_group_from_an_old_sa() -> None:
    """M1."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.capability2 = Capability2(0)
        said = await refused(client.join_to_send(group(1), PARAMS), InvalidRequest)
        assert "may not create one" in said
        assert not client.held

    run(scenario)


def test_m4_leaving_as_a_sender_keeps_the_receiver() -> None:
    """M4."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        await client.join(group(1), FULL, PARAMS)
        await client.join_to_send(group(1), PARAMS)
        await client.leave_to_send(group(1))
        assert members(fake_sa, group(1)) == FULL
        assert client.held == ((group(1), FULL),)

    run(scenario)


def test_m4_what_the_kernel_may_hold_is_not_left() -> None:
    """M4."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        await client.join(group(1), FULL, PARAMS)
        await client.leave(group(1))
        assert members(fake_sa, group(1)) == FULL
        assert client.counts["sa_leave_kept"] == 1
        assert not client.held

    run(scenario, kernel=lambda: frozenset({DEFAULT}))


def test_a_wrong_mtu_is_explained_by_the_group_as_it_is() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        wrong = replace(PARAMS, mtu_bytes=4096)
        said = await refused(client.join(mgid.broadcast(DEFAULT), FULL, wrong), InvalidRequest)
        assert "the group has MTU 2048" in said
        assert "mtu=5" in said

    run(scenario)


def test_b4_a_missing_broadcast_group_names_the_line_to_add() -> None:
    """B4."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        request = client.join(mgid.broadcast(PKey(0x8001)))
        said = await refused(request, InsufficientComponents)
        assert "ib8001=0x0001, ipoib : 0x0000000000000002=full;" in said

    run(scenario, pkeys=(0xFFFF, 0x8001))


def test_e7_a_partition_that_the_port_is_not_in_is_named_in_the_error() -> None:
    """E7."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.make_broadcast(PKey(0x8002))
        said = await refused(client.join(mgid.broadcast(PKey(0x8002))), InvalidRequest)
        assert "this port is not in the partition" in said

    run(scenario)


def test_a_gid_that_is_no_ip_group_is_refused_before_anybody_is_asked() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        for request in (client.join, client.leave, client.group):
            said = await refused(request(Gid.parse("ff12::1")), LinkError)
            assert "is not a group of IP over InfiniBand" in said
        assert port.sent == []

    run(scenario)


def test_groups_and_memberships_can_be_looked_up() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        await refused(client.group(group(1)), NoRecords)
        await client.join(group(1), FULL, PARAMS)
        assert (await client.group(group(1))).mgid == group(1)
        assert (await client.membership(group(1))).mgid == group(1)
        await refused(client.membership(mgid.broadcast(DEFAULT)), NoRecords)

    run(scenario)


def test_a_hundred_groups_are_joined_at_once_and_left_again() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        wanted = [group(number) for number in range(100)]
        await asyncio.gather(*(client.join(one, FULL, PARAMS) for one in wanted))
        assert all(members(fake_sa, one) == FULL for one in wanted)
        await asyncio.gather(*(client.leave(one) for one in wanted))
        assert all(members(fake_sa, one) is None for one in wanted)

    run(scenario)


# -- tables, paths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 300])
def test_a_table_of_groups_comes_in_as_many_segments_as_it_takes(count: int) -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        for number in range(count):
            await client.join(group(number), FULL, PARAMS)
        records = await client.groups()
        assert [record.mgid for record in records] == list(fake_sa.groups)
        assert len(records) == count + 1

    run(scenario)


def test_an_empty_table_is_empty() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        assert await client.groups(PKey(0x8007)) == ()
        assert len(await client.groups(PKey(0x7FFF))) == 1

    run(scenario)


def test_a_table_survives_lost_and_doubled_segments() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        for number in range(60):
            await client.join(group(number), FULL, PARAMS)
        rng = random.Random(3)
        fake_sa.spoil = lambda one: [one] * rng.choice((0, 1, 1, 1, 1, 2))
        listing = asyncio.ensure_future(client.groups())
        while not listing.done():
            await asyncio.sleep(0)
            if not listing.done():
                fake_sa.resend()
        assert len(listing.result()) == 61
        assert client.counts["sa_duplicate"] > 0

    run(scenario)


def test_b6_a_path_leads_to_another_port_of_the_partition() -> None:
    """B6."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        other = FakePort(fake_sa, host=3)
        path = await client.path(port_gid(3), DEFAULT)
        assert (path.dlid, path.slid, path.mtu_bytes) == (3, 2, 2048)
        to = Destination(port_gid(3), Qpn(0x48), dlid=3, static_rate=3, hop_limit=0)
        assert path_from_record(path, Qpn(0x48)) == SaPath(to, 2044)
        said = await refused(client.path(port_gid(4), DEFAULT), NoRecords)
        assert "path to fe80::4, P_Key 0xffff" in said
        other.close()

    run(scenario)


def test_an_answer_that_cannot_be_read_is_no_answer() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.spoil = lambda answer: [replace(answer, data=bytes(200))]
        said = await refused(client.path(port_gid(2), DEFAULT), NoAnswer)
        assert "the subnet administrator's answer is wrong: path_lid" in said
        await refused(client.join(mgid.broadcast(DEFAULT)), NoAnswer)
        assert not client.held

    run(scenario)


# -- events ----------------------------------------------------------------------------------------


def test_m2_reports_of_subscribed_traps_become_events() -> None:
    """M2."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        await client.subscribe(Trap.GROUP_CREATED)
        await client.subscribe(Trap.GROUP_DELETED)
        created, deleted = (Notice(Trap(number), group(5)) for number in (66, 67))
        fake_sa.report(created, times=2)
        fake_sa.report(Notice(Trap.PORT_IN_SERVICE, group(5)))
        fake_sa.report(deleted)
        events = client.events()
        assert [await anext(events), await anext(events)] == [created, deleted]
        assert fake_sa.acknowledged == [1, 1, 3]
        await client.unsubscribe(Trap.GROUP_CREATED)
        assert fake_sa.subscribers == {(Trap.GROUP_DELETED, 2)}

    run(scenario)


def test_m2_reports_that_another_program_takes_cannot_be_subscribed_to() -> None:
    """M2."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        port.hears_unasked = False
        said = await refused(client.subscribe(Trap.GROUP_CREATED), LinkError)
        assert "another program" in said

    run(scenario)


def test_a_subscription_that_is_answered_with_its_opposite_is_an_error() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.spoil = lambda answer: [replace(answer, data=bytes(36))]
        said = await refused(client.subscribe(Trap.GROUP_CREATED), LinkError)
        assert "subscribe trap 66" in said

    run(scenario)


def test_unread_events_are_bounded_and_the_oldest_go() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        await client.subscribe(Trap.GROUP_CREATED)
        for number in range(SA_EVENTS_MAX + 3):
            fake_sa.report(Notice(Trap.GROUP_CREATED, group(number)))
        await until(lambda: len(fake_sa.acknowledged) == SA_EVENTS_MAX + 3)
        assert client.counts["sa_event_lost"] == 3
        assert await anext(client.events()) == Notice(Trap.GROUP_CREATED, group(3))

    run(scenario)


@pytest.mark.parametrize("has_reader", [True, False])
def test_a_flood_of_datagrams_that_nobody_asked_for_does_not_keep_the_client_waiting(
    monkeypatch: pytest.MonkeyPatch, has_reader: bool
) -> None:
    """Any member of the subnet can send them, here for ever, beside the SA's answers."""
    flood = MadIn(bytes(256), 99, Qpn(1), 0)
    receive = FakePort.receive
    monkeypatch.setattr(FakePort, "receive", lambda port: receive(port) or flood)
    if not has_reader:
        monkeypatch.setattr(asyncio.SelectorEventLoop, "add_reader", _refuse)

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        async with asyncio.timeout(60):
            await client.join(mgid.broadcast(DEFAULT))
        assert client.counts["mad_version"] >= SA_ROUND // 2

    run(scenario)


def _refuse(*_: object) -> None:
    raise OSError


def test_closing_ends_the_events() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        async def listen() -> list[Event]:
            return [event async for event in client.events()]

        listening = asyncio.ensure_future(listen())
        await asyncio.sleep(0)
        client.abort()
        assert await listening == []

    run(scenario)


# -- the SA goes and comes -------------------------------------------------------------------------


def test_after_an_sa_restarts_everything_held_is_joined_again() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        broadcast = mgid.broadcast(DEFAULT)
        await client.join(group(1), FULL, PARAMS)
        await client.join(broadcast)
        await client.subscribe(Trap.GROUP_CREATED)
        fake_sa.is_deaf = True
        await refused(client.path(port_gid(2), DEFAULT), NoAnswer)
        events = client.events()
        assert await anext(events) is Change.SILENT
        fake_sa.forget()
        fake_sa.make_broadcast(DEFAULT)
        fake_sa.is_deaf = False
        assert await anext(events) is Change.RETURNED
        fake_sa.seen.clear()
        assert await client.rejoin() == {}
        assert members(fake_sa, broadcast) == FULL
        assert members(fake_sa, group(1)) == FULL
        assert fake_sa.subscribers == {(Trap.GROUP_CREATED, 2)}
        asked = [one for one in fake_sa.seen if one.attribute == Attribute.MC_MEMBER_RECORD]
        assert asked[0].data[:16] == broadcast.raw  # B1: the broadcast group first

    run(scenario, pace=QUICK)


def test_what_is_refused_by_the_new_sa_stays_held() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        broadcast = mgid.broadcast(DEFAULT)
        await client.join(broadcast)
        await client.join(group(1), FULL, PARAMS)
        fake_sa.forget()
        refusals = await client.rejoin()
        assert list(refusals) == [(broadcast, FULL)]
        assert isinstance(refusals[broadcast, FULL], InsufficientComponents)
        assert client.held == ((broadcast, FULL), (group(1), FULL))
        fake_sa.make_broadcast(DEFAULT)
        assert await client.rejoin() == {}

    run(scenario)


def test_reregistration_looks_at_the_port_again_and_asks_for_a_rejoin() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        port.info = replace(port.info, sa_lid=9, lid=5)
        assert client.info.sa_lid == 1
        client.reregister()
        assert (client.info.sa_lid, client.info.lid) == (9, 5)
        assert await anext(client.events()) is Change.RETURNED

    run(scenario)


def test_a_look_at_the_port_sends_what_waits_to_another_sa() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.is_deaf = True
        asking = asyncio.ensure_future(client.class_port_info())
        await asyncio.sleep(0)
        assert [to.lid for _, to, _ in port.sent] == [1]
        port.info = replace(port.info, sa_lid=9)
        client.check_port()
        assert [to.lid for _, to, _ in port.sent] == [1, 9]
        asking.cancel()

    run(scenario)


def test_what_has_no_answer_goes_where_the_sa_is_by_then() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.is_deaf = True
        port.info = replace(port.info, sa_lid=9)
        await refused(client.class_port_info(), NoAnswer)
        assert [to.lid for _, to, _ in port.sent] == [1, 9, 9]

    run(scenario, pace=QUICK)


def test_without_an_sm_nothing_is_sent_and_the_error_says_so() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        port.info = replace(port.info, sa_lid=0)
        client.reregister()
        said = await refused(client.class_port_info(), NoAnswer)
        assert "no subnet manager has configured this port" in said
        assert port.sent == []
        assert client.counts["sa_unsent"] >= 2

    run(scenario, pace=QUICK)


def test_a_port_that_cannot_be_looked_at_keeps_what_was_seen() -> None:
    class Vanishing(FakePort):
        is_gone = False

        def look(self) -> MadPortInfo:
            if self.is_gone:
                raise LinkError("fake0/1: gone")
            return super().look()

    async def played() -> None:
        fake_sa = FakeSa()
        port = Vanishing(fake_sa)
        client = SaClient(port)
        port.is_gone = True
        client.reregister()
        assert client.info.lid == 2
        client.abort()

    asyncio.run(played())


def test_a_datagram_that_the_kernel_does_not_take_is_counted_and_sent_again() -> None:
    class Full(FakePort):
        refusals = 1

        def send(self, raw: bytes, to: MadTo, wait_s: float) -> None:
            if self.refusals:
                self.refusals -= 1
                raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
            super().send(raw, to, wait_s)

    async def played() -> None:
        port = Full(FakeSa())
        client = SaClient(port, pace=QUICK)
        await client.class_port_info()
        assert (client.counts["sa_unsent"], client.counts["sa_retry"]) == (1, 1)
        client.abort()

    asyncio.run(played())


def test_what_the_kernel_gives_back_is_counted_and_no_answer() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.is_deaf = True
        asking = asyncio.ensure_future(client.class_port_info())
        await asyncio.sleep(0)
        port.deliver_raw(port.sent[0][0].pack(), status=errno.ETIMEDOUT)
        await until(lambda: client.counts["sa_unsent"])
        assert not asking.done()
        fake_sa.is_deaf = False
        port.deliver_raw(b"\x01\x03")
        await until(lambda: client.counts["mad_short"])
        asking.cancel()

    run(scenario)


# -- cancelling and closing ------------------------------------------------------------------------


def test_a_cancelled_question_leaves_nothing_behind() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.is_deaf = True
        asking = asyncio.ensure_future(client.path(port_gid(2), DEFAULT))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        fake_sa.is_deaf = False
        answer = SaMad(Method.GET_RESPONSE, Attribute.PATH_RECORD, fake_sa.seen[0].tid)
        port.deliver(answer)
        await until(lambda: client.counts["sa_late"])
        await client.class_port_info()

    run(scenario)


def test_a_cancelled_join_is_left_again() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.spoil = lambda answer: []  # the SA joins us, but its answer is lost
        joining = asyncio.ensure_future(client.join(group(1), FULL, PARAMS))
        await until(lambda: members(fake_sa, group(1)))
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        fake_sa.spoil = lambda answer: [answer]
        await until(lambda: members(fake_sa, group(1)) is None)

    run(scenario)


def test_a_join_after_a_cancelled_one_is_not_left() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        joining = asyncio.ensure_future(client.join(group(1), FULL, PARAMS))
        await asyncio.sleep(0)
        joining.cancel()
        await client.join(group(1), FULL, PARAMS)
        await asyncio.gather(joining, return_exceptions=True)
        for _ in range(20):
            await asyncio.sleep(0)
        assert members(fake_sa, group(1)) == FULL
        assert client.held == ((group(1), FULL),)

    run(scenario)


def test_a_leave_and_a_join_of_the_same_group_keep_their_order() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        await client.join(group(1), FULL, PARAMS)
        kept: list[SaMad] = []

        def hold(answer: SaMad) -> list[SaMad]:
            kept.append(answer)
            return []

        fake_sa.spoil = hold
        leaving = asyncio.ensure_future(client.leave(group(1)))
        joining = asyncio.ensure_future(client.join(group(1), FULL, PARAMS))
        await until(lambda: kept)
        assert fake_sa.seen[-1].method == Method.DELETE
        fake_sa.spoil = lambda answer: [answer]
        port.deliver(kept[0])
        await asyncio.gather(leaving, joining)
        assert members(fake_sa, group(1)) == FULL

    run(scenario)


@pytest.mark.parametrize("requests", [1, 2])
def test_leaving_as_a_sender_ends_a_membership_that_is_still_asked_for(requests: int) -> None:
    """The client is asking for the SA's abilities, or joining."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        joining = asyncio.ensure_future(client.join_to_send(group(1), PARAMS))
        await until(lambda: len(fake_sa.seen) == requests)
        await client.leave_to_send(group(1))
        assert joining.done()
        assert members(fake_sa, group(1)) is None
        assert not client.held

    run(scenario)


def test_closing_ends_every_question_and_gives_the_port_back() -> None:
    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.is_deaf = True
        asking = [asyncio.ensure_future(client.class_port_info()) for _ in range(40)]
        await asyncio.sleep(0)
        client.abort()
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(outcome, Closed) for outcome in outcomes)
        assert port.is_closed
        await refused(client.class_port_info(), Closed)
        client.abort()

    run(scenario)


def test_who_joins_behind_a_leave_is_no_member_before() -> None:
    """A heavy flush: the interface joins again while the leave waits for a join of the same group."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        broadcast = mgid.broadcast(DEFAULT)
        await client.join(broadcast)
        under_way = asyncio.ensure_future(client.join(broadcast))
        await asyncio.sleep(0)
        leave = asyncio.ensure_future(client.leave(broadcast))
        await asyncio.sleep(0)
        assert (broadcast, JoinState.FULL_MEMBER) not in client.held
        again = asyncio.ensure_future(client.join(broadcast))
        await asyncio.gather(under_way, leave, again)
        assert (broadcast, JoinState.FULL_MEMBER) in client.held
        assert members(fake_sa, broadcast) is not None

    run(scenario)


def test_an_orderly_end_leaves_what_is_held() -> None:
    async def played() -> None:
        fake_sa = FakeSa()
        fake_sa.make_broadcast(DEFAULT)
        port = FakePort(fake_sa)
        async with SaClient(port) as client:
            await client.join(mgid.broadcast(DEFAULT))
            await client.join(group(1), JoinState.SEND_ONLY_FULL_MEMBER, PARAMS)
            await client.subscribe(Trap.GROUP_DELETED)
        assert port.is_closed
        assert members(fake_sa, mgid.broadcast(DEFAULT)) is None
        assert members(fake_sa, group(1)) is None
        assert fake_sa.subscribers == set()
        await client.aclose()

    asyncio.run(played())


def test_an_orderly_end_says_nothing_of_subscriptions_that_the_sa_does_not_know(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The SA of a lab machine without a subnet manager answers 0x000c to InformInfo."""

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        fake_sa.spoil = lambda answer: [replace(answer, status=Status.BAD_ATTRIBUTE)]
        await refused(client.subscribe(Trap.GROUP_CREATED), LinkError)
        await client.aclose()
        assert not caplog.messages

    run(scenario)


def test_an_orderly_end_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipoibu.fabric.sa.client.LEAVE_S", 0.01)

    async def scenario(client: SaClient, fake_sa: FakeSa, port: FakePort) -> None:
        await client.join(mgid.broadcast(DEFAULT))
        fake_sa.is_deaf = True
        await client.aclose()
        assert port.is_closed

    run(scenario)


def test_a_descriptor_that_cannot_be_waited_for_is_asked_instead() -> None:
    """umad2sim's descriptor is a number that the kernel does not know."""

    class Simulated(FakePort):
        def fileno(self) -> int:
            return 1 << 20

    async def played() -> None:
        fake_sa = FakeSa()
        fake_sa.make_broadcast(DEFAULT)
        port = Simulated(fake_sa)
        client = SaClient(port)
        await client.join(mgid.broadcast(DEFAULT))
        await client.subscribe(Trap.GROUP_CREATED)
        fake_sa.report(Notice(Trap.GROUP_CREATED, group(1)))
        assert await anext(client.events()) == Notice(Trap.GROUP_CREATED, group(1))
        client.abort()
        assert port.is_closed

    asyncio.run(played())
