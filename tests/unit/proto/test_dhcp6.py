# SPDX-License-Identifier: BSD-2-Clause
"""The DHCPv6 client against servers in virtual time."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address, IPv6Interface
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipoibu.base.errors import BadFrame, UsageError
from ipoibu.base.limits import DHCP_PAUSE_S
from ipoibu.proto.context import Dad, Dhcp6Identity
from ipoibu.proto.dhcp.client6 import Dhcp6Client, Lease6Info, grant6_untrusted
from ipoibu.proto.dhcp.state6 import HELD, State
from ipoibu.proto.effects import Lease6Changed
from ipoibu.proto.machine.transition import Topic
from ipoibu.wire import dhcp6
from ipoibu.wire.dhcp6 import (
    Address,
    Association,
    Code,
    Kind,
    Message,
    Option,
    Packet,
    Status,
)
from ipoibu.wire.dhcp6_lease import Lease6
from tests.doubles.dhcp6_server import Dhcp6Server
from tests.doubles.simulation import TEMPLATE, Host, Simulation, packet

IDENTITY: Final = Dhcp6Identity(
    bytes.fromhex("000300200011223344556677"), bytes.fromhex("0000ffff"), "node7"
)
LOCAL: Final = "fe80::c/64"
FIRST: Final = IPv6Interface("fd00::100/128")
SECOND: Final = IPv6Interface("fd00::101/128")


class World:
    """A server and a client, which has not started."""

    def __init__(self, *options: Option, valid_s: int = 1000, seed: int = 1) -> None:
        self.simulation = Simulation(seed, template=replace(TEMPLATE, dad_ipv6=Dad.WARN))
        self.server = Dhcp6Server(self.simulation, *options, valid_s=valid_s)
        self.run(3)
        self.simulation.template = replace(self.simulation.template, dhcp6=IDENTITY)
        self.host: Host

    def start(self, *addresses: str) -> None:
        self.host = self.simulation.host(*(addresses or (LOCAL,)))

    def run(self, duration_s: float) -> None:
        self.simulation.run(duration_s)

    def run_to(self, state: State, timeout_s: float = 30) -> None:
        assert self.simulation.run_until(lambda: self.client.state is state, timeout_s), (
            self.state()
        )

    @property
    def client(self) -> Dhcp6Client:
        assert self.host.engine.dhcp6 is not None
        return self.host.engine.dhcp6

    def state(self) -> State:
        return self.client.state

    def leases(self) -> list[Lease6 | None]:
        return [it.lease for it in self.host.effects if isinstance(it, Lease6Changed)]

    def addresses(self) -> list[str]:
        return [str(it.address) for it in self.host.engine.addresses()]

    def info(self) -> Lease6Info:
        return self.client.info(self.simulation.now)

    def plug(self, event: str) -> None:
        self.host.carry_out(self.host.engine.port_event(self.simulation.now, event))

    def restart(self, after_s: float = 0.0) -> None:
        """Kill the client; another process takes the interface over, with the lease that this one stored."""
        stored = [it for it in self.host.effects if isinstance(it, Lease6Changed)][-1]
        assert stored.message is not None
        self.host.kill()
        self.run(after_s)
        self.server.clear()
        self.simulation.hosts.remove(self.host)
        self.host = host = self.simulation._make(self.host.hwaddr.gid)
        self.simulation.hosts.append(host)
        self.client.recall(grant6_untrusted(stored.message.pack(), stored.since_s, IDENTITY))
        host.start([IPv6Interface(LOCAL)])


@pytest.fixture
def world() -> World:
    return World()


def bound(*options: Option, valid_s: int = 1000) -> World:
    world = World(*options, valid_s=valid_s)
    world.start()
    world.run_to(State.BOUND)
    return world


def asked(world: World, kind: Kind) -> Address:
    """The address in the last message of that kind."""
    value = world.server.message(kind).option(Code.IA_NA)
    assert value is not None
    association = dhcp6.association_untrusted(value)
    inner = dhcp6.option_of(association.options, Code.IA_ADDRESS)
    assert inner is not None
    assert association.iaid == IDENTITY.iaid
    return dhcp6.address_untrusted(inner)


def test_a_lease_is_ours_after_a_probe_whatever_the_policy_for_other_addresses(
    world: World,
) -> None:
    world.start()
    world.run_to(State.CHECKING)
    assert world.leases() == []
    world.run_to(State.BOUND, 2)
    (lease,) = world.leases()
    assert lease is not None
    assert (lease.address, lease.server) == (FIRST, world.server.duid)
    assert (lease.preferred_s, lease.lease_s) == (500, 1000)
    assert (lease.renewal_s, lease.rebinding_s) == (250, 400)  # 0.5 and 0.8 of the preferred time
    assert world.server.kinds() == [Kind.SOLICIT, Kind.REQUEST]
    assert world.addresses() == ["fe80::c", "fd00::100"]
    world.server.host.send(packet("fe80::fe", "fd00::100", b"hello"))
    world.run(1)
    assert world.host.got(b"hello")


def test_messages_go_from_the_link_local_address_to_the_group_of_the_servers(world: World) -> None:
    """D3."""
    world.start()
    world.run_to(State.BOUND)
    sent = world.server.seen
    assert {(str(it.source), it.source_port) for it in sent} == {("fe80::c", 546)}
    assert {(str(it.destination), it.destination_port) for it in sent} == {("ff02::1:2", 547)}
    assert {it.message.option(Code.CLIENT_ID) for it in sent} == {IDENTITY.duid}
    assert {it.message.option(Code.CLIENT_NAME) for it in sent} == {b"\0\5node7"}
    assert {it.message.option(Code.WANTED) for it in sent} == {bytes((0, 23, 0, 24, 0, 82))}
    assert {it.message.option(Code.ELAPSED_TIME) for it in sent} == {b"\0\0"}
    assert world.server.message(Kind.SOLICIT).option(Code.SERVER_ID) is None
    assert world.server.message(Kind.REQUEST).option(Code.SERVER_ID) == world.server.duid
    assert asked(world, Kind.REQUEST) == Address(FIRST.ip)
    assert world.server.message(Kind.SOLICIT).xid != world.server.message(Kind.REQUEST).xid


def test_the_client_waits_for_a_link_local_address_that_is_no_duplicate(world: World) -> None:
    world.start("fd00::77/64")
    world.run(10)
    assert world.state() is State.WAITING
    assert world.server.seen == []
    world.host.add(IPv6Interface(LOCAL))
    world.run_to(State.BOUND)


def test_the_steps_are_observed(world: World) -> None:
    world.start()
    world.run_to(State.BOUND)
    steps = [(it.before, it.after) for it in world.host.transitions if it.topic is Topic.LEASE]
    assert steps == [
        ("waiting", "soliciting"),
        ("soliciting", "requesting"),
        ("requesting", "checking"),
        ("checking", "bound"),
    ]


def test_the_server_with_the_highest_preference_gets_the_request(world: World) -> None:
    other = Dhcp6Server(world.simulation, (Code.PREFERENCE, b"\7"), number=0xFD)
    other.first = 0x200
    world.run(3)
    world.start()
    world.run_to(State.BOUND)
    assert world.server.message(Kind.REQUEST).option(Code.SERVER_ID) == other.duid
    assert world.info().lease is not None
    assert "fd00::200" in world.addresses()


def test_the_highest_preference_of_all_ends_the_wait_for_further_servers() -> None:
    world = World((Code.PREFERENCE, b"\xff"))
    world.start()
    world.run_to(State.REQUESTING)
    assert world.simulation.now - world.server.times[0] < 0.5
    other = World()
    other.start()
    other.run_to(State.REQUESTING)
    assert other.simulation.now - other.server.times[0] >= 1.0  # §18.2.1: never shorter


def test_a_lease_is_renewed_at_t1_by_its_server() -> None:
    world = World()
    world.server.times_s = (100, 200)
    world.start()
    world.run_to(State.BOUND)
    world.server.clear()
    world.run_to(State.RENEWING, 100)
    world.run(0.5)
    assert world.server.kinds() == [Kind.RENEW]
    renewal = world.server.message(Kind.RENEW)
    assert renewal.option(Code.SERVER_ID) == world.server.duid
    assert asked(world, Kind.RENEW) == Address(FIRST.ip)
    assert world.state() is State.BOUND
    end_s = world.info().end_s
    assert end_s is not None
    assert end_s > 990
    assert len(world.leases()) == 2


def test_without_an_answer_any_server_is_asked_at_t2_and_the_lease_expires() -> None:
    world = bound(valid_s=2000)  # preferred 1000, T1 500, T2 800
    world.server.clear()
    world.server.is_silent = True
    world.run(790)
    assert world.state() is State.RENEWING
    waits = [later - sooner for sooner, later in pairwise(world.server.times)]
    assert len(waits) == 4  # 10, 20, 40, 80, 160 s
    for wait, last in zip(waits[1:], waits, strict=False):
        assert 1.9 * last <= wait <= 2.1 * last
    assert 9 <= waits[0] <= 11
    world.run(20)
    assert world.state() is State.REBINDING
    assert world.server.message(Kind.REBIND).option(Code.SERVER_ID) is None
    world.run(1200)
    assert world.state() is State.SOLICITING
    assert world.leases()[-1] is None
    assert world.addresses() == ["fe80::c"]
    assert any("has expired" in line for line in world.host.log)
    world.server.is_silent = False
    world.run_to(State.BOUND, 3700)


def test_any_server_may_prolong_the_lease_at_t2() -> None:
    world = bound()
    other = Dhcp6Server(world.simulation, number=0xFD)
    other.leases = dict(world.server.leases)
    world.server.is_silent = True
    world.run_to(State.REBINDING, 500)
    world.run_to(State.BOUND, 20)
    lease = world.info().lease
    assert lease is not None
    assert (lease.address, lease.server) == (FIRST, other.duid)


def test_a_server_that_forgot_the_lease_is_asked_for_it_while_the_address_stays() -> None:
    """RFC 8415 §18.2.10.1: NoBinding."""
    world = bound()
    world.server.leases.clear()
    world.server.clear()
    world.run(260)
    assert world.server.kinds() == [Kind.RENEW, Kind.REQUEST]
    assert world.state() is State.BOUND
    assert asked(world, Kind.REQUEST).ip == FIRST.ip
    assert None not in world.leases()


def test_a_server_that_takes_the_address_back_gives_another_one() -> None:
    """RFC 8415 §18.2.10.1: a valid lifetime of 0."""
    world = bound()
    world.server.is_silent = True
    world.run_to(State.RENEWING, 300)
    world.run(0.1)
    server, renewal = world.server, world.server.message(Kind.RENEW)
    ended = server.association(renewal, server.address(FIRST.ip, 0))
    server.leases = {b"another": FIRST.ip}
    server.send(server.reply(renewal, Kind.REPLY, ended), IPv6Address("fe80::c"))
    world.run(0.1)
    assert world.state() is State.SOLICITING
    assert world.leases()[-1] is None
    server.is_silent = False
    world.run_to(State.BOUND)
    assert world.addresses() == ["fe80::c", "fd00::101"]
    assert any("refuses fd00::100" in line for line in world.host.log)


def test_a_renewal_may_bring_another_address_which_is_checked_first() -> None:
    world = bound()
    (duid,) = world.server.leases
    world.server.leases[duid] = SECOND.ip
    world.run_to(State.CHECKING, 300)
    world.run_to(State.BOUND, 3)
    assert world.addresses() == ["fe80::c", "fd00::101"]
    assert [it and it.address for it in world.leases()] == [FIRST, SECOND]


@pytest.mark.parametrize("status", [Status.UNSPEC_FAIL, Status.USE_MULTICAST])
def test_a_server_that_fails_is_asked_again_later(status: Status) -> None:
    world = bound()
    world.server.failures[Kind.RENEW] = status
    world.server.clear()
    world.run(300)
    assert world.state() is State.RENEWING
    assert len(world.server.seen) >= 3
    assert world.host.counts["dhcp6_refused"] == len(world.server.seen)
    world.server.failures.clear()
    world.run_to(State.BOUND, 200)
    assert None not in world.leases()


def test_a_server_without_addresses_is_not_chosen_and_its_sol_max_rt_counts(world: World) -> None:
    """RFC 8415 §18.2.9."""
    world.server.options = ((Code.SOL_MAX_RT, (60).to_bytes(4, "big")),)
    world.server.failures[Kind.SOLICIT] = Status.NO_ADDRS_AVAIL
    world.start()
    world.run(600)
    assert world.state() is State.SOLICITING
    waits = [later - sooner for sooner, later in pairwise(world.server.times)]
    assert all(54 <= wait <= 66 for wait in waits[7:])
    assert len(waits) > 10
    assert any("no addrs avail (so it is)" in line for line in world.host.log)


def test_a_sol_max_rt_outside_of_its_range_does_not_count(world: World) -> None:
    world.server.options = ((Code.SOL_MAX_RT, (59).to_bytes(4, "big")),)
    world.server.failures[Kind.SOLICIT] = Status.NO_ADDRS_AVAIL
    world.start()
    world.run(10_000)
    waits = [later - sooner for sooner, later in pairwise(world.server.times)]
    assert max(waits) > 1000


@pytest.mark.parametrize("status", [Status.NO_ADDRS_AVAIL, Status.NOT_ON_LINK])
def test_a_server_that_refuses_what_it_advertised_is_not_asked_at_once_again(
    world: World, status: Status
) -> None:
    world.server.failures[Kind.REQUEST] = status
    world.start()
    world.run_to(State.PAUSED)
    world.server.clear()
    world.run(DHCP_PAUSE_S - 1)
    assert world.server.seen == []
    world.server.failures.clear()
    world.run_to(State.BOUND)


def test_a_request_without_an_answer_is_sent_ten_times(world: World) -> None:
    """RFC 8415 §18.2.2."""
    world.start()
    world.run_to(State.REQUESTING)
    world.server.is_silent = True
    world.run(0.1)
    world.run_to(State.SOLICITING, 400)
    requests = [
        at
        for at, it in zip(world.server.times, world.server.seen, strict=True)
        if it.message.kind is Kind.REQUEST
    ]
    waits = [later - sooner for sooner, later in pairwise(requests)]
    for wait, expected in zip(waits, (1, 2, 4, 8, 16, 30, 30), strict=False):
        assert 0.7 * expected <= wait <= 1.4 * expected
    assert len(requests) == 10
    xids = {it.message.xid for it in world.server.seen if it.message.kind is Kind.REQUEST}
    assert len(xids) == 1
    elapsed = [
        int.from_bytes(it.message.option(Code.ELAPSED_TIME) or b"", "big")
        for it in world.server.seen
        if it.message.kind is Kind.REQUEST
    ]
    assert elapsed[0] == 0
    assert elapsed == sorted(set(elapsed))


def test_the_client_asks_ever_more_rarely_and_tells_of_it(world: World) -> None:
    """RFC 8415 §15, §18.2.1."""
    world.server.is_silent = True
    world.start()
    world.run(20_000)
    waits = [later - sooner for sooner, later in pairwise(world.server.times)]
    assert 1.0 < waits[0] <= 1.1
    for wait, last in zip(waits[1:12], waits, strict=False):
        assert 1.9 * last <= wait <= 2.1 * last or 3240 <= wait <= 3960
    assert all(3240 <= wait <= 3960 for wait in waits[12:])
    lines = [line for line in world.host.log if "no server answers" in line]
    assert 1 <= len(lines) < len(waits)


def test_an_address_that_another_host_has_is_declined_and_another_one_taken(world: World) -> None:
    """D4."""
    template, world.simulation.template = world.simulation.template, TEMPLATE
    world.simulation.host("fd00::100/64")
    world.run(5)
    world.simulation.template = template
    world.start()
    world.run_to(State.PAUSED)
    decline = world.server.message(Kind.DECLINE)
    assert decline.option(Code.SERVER_ID) == world.server.duid
    assert asked(world, Kind.DECLINE).ip == FIRST.ip
    assert world.server.declined == {FIRST.ip}
    assert world.leases() == []
    assert world.addresses() == ["fe80::c"]
    world.run_to(State.BOUND)
    assert world.addresses() == ["fe80::c", "fd00::101"]
    assert any("another host has fd00::100" in line for line in world.host.log)


def test_a_decline_without_an_answer_is_sent_four_times(world: World) -> None:
    template, world.simulation.template = world.simulation.template, TEMPLATE
    world.simulation.host("fd00::100/64")
    world.run(5)
    world.simulation.template = template
    world.start()
    world.run_to(State.CHECKING)
    world.server.is_silent = True
    world.run_to(State.PAUSED, 60)
    assert world.server.kinds().count(Kind.DECLINE) == 4


def test_a_restart_has_the_lease_that_it_had_confirmed() -> None:
    world = bound()
    world.restart(after_s=5)
    world.run_to(State.BOUND)
    assert world.server.kinds() == [Kind.CONFIRM]
    confirm = world.server.message(Kind.CONFIRM)
    assert confirm.option(Code.SERVER_ID) is None
    assert asked(world, Kind.CONFIRM) == Address(FIRST.ip)
    (lease,) = world.leases()
    assert lease is not None
    assert lease.address == FIRST
    end_s = world.info().end_s
    assert end_s is not None
    assert end_s < 996  # it goes on, and does not begin anew
    world.run_to(State.RENEWING, 300)


def test_a_restart_on_another_link_takes_another_address() -> None:
    """RFC 8415 §18.2.10.1: NotOnLink."""
    world = bound()
    world.server.failures[Kind.CONFIRM] = Status.NOT_ON_LINK
    world.server.leases = {b"another": FIRST.ip}
    world.restart()
    world.run_to(State.BOUND)
    assert world.server.kinds() == [Kind.CONFIRM, Kind.SOLICIT, Kind.REQUEST]
    assert [it and it.address for it in world.leases()] == [None, SECOND]
    solicited = world.server.message(Kind.SOLICIT).option(Code.IA_NA)
    assert solicited is not None
    assert dhcp6.association_untrusted(solicited).options == ()  # no hint of what was refused


def test_a_restart_without_a_server_goes_on_with_the_lease_until_it_expires() -> None:
    world = bound(valid_s=100)
    world.server.is_silent = True
    world.restart()
    world.run_to(State.CHECKING)
    assert 3 <= world.server.kinds().count(Kind.CONFIRM) <= 6
    assert 9.9 <= world.simulation.now - world.server.times[0] <= 10.1  # CNF_MAX_RD
    world.run(2)
    assert world.state() in (State.BOUND, State.RENEWING)
    assert any("no server answers: using fd00::100" in line for line in world.host.log)
    world.run(100)
    assert world.state() is State.SOLICITING
    assert world.leases()[-1] is None


def test_a_restart_after_the_lease_has_expired_begins_anew_and_asks_for_the_same_address() -> None:
    world = bound(valid_s=60)
    world.restart(after_s=70)
    world.run_to(State.BOUND)
    assert world.server.kinds() == [Kind.SOLICIT, Kind.REQUEST]
    assert asked(world, Kind.SOLICIT).ip == FIRST.ip
    assert world.leases()[0] is None


def test_a_link_that_comes_back_has_its_lease_confirmed_and_keeps_the_address() -> None:
    world = bound()
    world.plug("down")
    world.run(5)
    assert world.state() is State.WAITING
    assert world.info().lease is not None
    world.server.clear()
    world.plug("up")
    world.run_to(State.BOUND)
    assert world.server.kinds() == [Kind.CONFIRM]
    assert None not in world.leases()


def test_a_lease_expires_while_the_link_is_down() -> None:
    world = bound(valid_s=60)
    world.plug("down")
    world.run(70)
    assert world.leases()[-1] is None
    assert world.info() == Lease6Info(State.WAITING, None, None, None)


def test_the_address_is_given_back_at_the_end() -> None:
    world = bound()
    world.host.carry_out(world.host.engine.release(world.simulation.now))
    assert world.state() is State.RELEASING
    assert world.addresses() == ["fe80::c"]  # §18.2.7: before the message
    world.run(1)
    assert world.state() is State.WAITING
    assert world.server.message(Kind.RELEASE).option(Code.SERVER_ID) == world.server.duid
    assert asked(world, Kind.RELEASE).ip == FIRST.ip
    assert world.server.leases == {}
    assert world.leases()[-1] is None
    world.run(30)
    assert world.state() is State.WAITING


def test_a_release_without_an_answer_ends_after_four_messages() -> None:
    world = bound()
    world.server.is_silent = True
    world.server.clear()
    world.host.carry_out(world.host.engine.release(world.simulation.now))
    world.run_to(State.WAITING, 20)
    assert world.server.kinds() == [Kind.RELEASE] * 4


def test_what_does_not_answer_our_question_is_counted_or_left_to_other_clients() -> None:
    world = bound()
    server, request = world.server, world.server.message(Kind.REQUEST)
    late = server.reply(request, Kind.REPLY, server.association(request, server.address(SECOND.ip)))
    server.send(late, IPv6Address("fe80::c"))
    world.run(0.1)
    assert world.host.counts["dhcp6_unexpected"] == 1
    server.send(replace(late, xid=late.xid ^ 1), IPv6Address("fe80::c"))
    stranger = tuple((key, value + b"1" if key == 1 else value) for key, value in late.options)
    server.send(replace(late, options=stranger), IPv6Address("fe80::c"))
    server.send(replace(late, code=Kind.RECONFIGURE), IPv6Address("fe80::c"))
    world.run(0.1)
    assert len(world.host.delivered) == 3
    anonymous = tuple(each for each in late.options if each[0] != Code.SERVER_ID)
    server.send(replace(late, options=anonymous), IPv6Address("fe80::c"))
    world.run(0.1)
    assert world.host.counts["dhcp6_lease"] == 1
    assert world.state() is State.BOUND
    assert len(world.leases()) == 1


def test_a_server_that_nobody_asked_does_not_answer_a_request(world: World) -> None:
    world.start()
    world.run_to(State.REQUESTING)
    world.server.is_silent = True
    world.run(0.1)
    request = world.server.message(Kind.REQUEST)
    reply = world.server.reply(
        request, Kind.REPLY, world.server.association(request, world.server.address(SECOND.ip))
    )
    other = tuple((key, value + b"1" if key == 2 else value) for key, value in reply.options)
    world.server.send(replace(reply, options=other), IPv6Address("fe80::c"))
    world.run(0.1)
    assert world.host.counts["dhcp6_unexpected"] == 1
    assert world.state() is State.REQUESTING


def test_an_interface_that_lost_its_link_local_address_counts_and_tries_again() -> None:
    world = bound()
    world.host.remove(IPv6Interface(LOCAL))
    world.run(300)
    assert world.state() is State.RENEWING
    assert world.host.counts["dhcp6_sourceless"] >= 2
    world.host.add(IPv6Interface(LOCAL))
    world.run_to(State.BOUND, 100)


def test_a_host_without_room_for_the_address_asks_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipoibu.proto.neigh.dad.ADDRESSES_MAX", 1)
    world.start()
    world.run_to(State.PAUSED)
    assert world.leases() == []
    monkeypatch.setattr("ipoibu.proto.neigh.dad.ADDRESSES_MAX", 2)
    world.run_to(State.BOUND)


def test_a_stored_lease_of_another_client_or_of_another_kind_is_damaged() -> None:
    world = bound()
    stored = [it for it in world.host.effects if isinstance(it, Lease6Changed)][-1]
    assert stored.message is not None
    raw = stored.message.pack()
    for identity in (replace(IDENTITY, duid=b"\0\3\0\1x"), replace(IDENTITY, iaid=b"none")):
        with pytest.raises(BadFrame, match="dhcp6_lease"):
            grant6_untrusted(raw, 0.0, identity)
    with pytest.raises(BadFrame, match="dhcp6_lease"):
        grant6_untrusted(world.server.message(Kind.REQUEST).pack(), 0.0, IDENTITY)
    with pytest.raises(BadFrame, match="dhcp6_short"):
        grant6_untrusted(b"", 0.0, IDENTITY)


def test_a_link_too_small_for_ipv6_has_no_client() -> None:
    with pytest.raises(UsageError, match="DHCPv6 needs an MTU of 1280"):
        replace(TEMPLATE, mtu_bytes=1279, dhcp6=IDENTITY)


_CODES: Final = st.sampled_from([*Code, 12, 14, 99])
_STATUS: Final = st.integers(0, 7).map(lambda number: (Code.STATUS, number.to_bytes(2, "big")))
_ADDRESS: Final = st.builds(
    lambda ip, preferred_s, valid_s: (Code.IA_ADDRESS, Address(ip, preferred_s, valid_s).pack()),
    st.sampled_from([FIRST.ip, SECOND.ip, IPv6Address("ff02::1")]),
    st.sampled_from([0, 1, 500, dhcp6.INFINITE]),
    st.sampled_from([0, 1, 1000, dhcp6.INFINITE]),
)
_ASSOCIATION: Final = st.builds(
    lambda times, inner: (
        Code.IA_NA,
        Association(IDENTITY.iaid, times[0], times[1], tuple(inner)).pack(),
    ),
    st.tuples(st.sampled_from([0, 5, dhcp6.INFINITE]), st.sampled_from([0, 9, dhcp6.INFINITE])),
    st.lists(st.one_of(_STATUS, _ADDRESS), max_size=3),
)
_NOISE: Final = st.tuples(_CODES, st.binary(max_size=20))
_OPTIONS: Final = st.lists(st.one_of(_STATUS, _ASSOCIATION, _NOISE), max_size=4)
_REPLIES: Final = st.lists(
    st.tuples(st.sampled_from([Kind.ADVERTISE, Kind.REPLY]), st.floats(0, 300), _OPTIONS),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(replies=_REPLIES, is_stopped=st.booleans())
def test_whatever_servers_answer_the_client_goes_on(
    replies: list[tuple[Kind, float, list[Option]]], is_stopped: bool
) -> None:
    """Each reply fits the exchange under way; the kernel's address follows the lease."""
    world = World()
    world.start()
    world.run(3)
    for kind, wait_s, more in replies:
        xid = world.client._xid
        assert xid is not None
        ids = ((Code.CLIENT_ID, IDENTITY.duid), (Code.SERVER_ID, world.server.duid))
        message = Message(kind, xid, (*ids, *more))
        packet_ = Packet(world.server.ip, 547, IPv6Address("fe80::c"), 546, message)
        engine, now = world.host.engine, world.simulation.now
        world.host.carry_out(engine.dhcp_reply(now, packet_.pack()))
        world.run(wait_s)
    if is_stopped:
        world.host.carry_out(world.host.engine.release(world.simulation.now))
        world.run(30)
        assert world.state() is State.WAITING
    told = (world.leases() or [None])[-1]
    if world.state() in HELD:
        assert told is not None
    if told is not None and world.state() is not State.CHECKING:
        assert str(told.address.ip) in world.addresses()
    assert len(world.addresses()) <= 2
