# SPDX-License-Identifier: BSD-2-Clause
"""The DHCP client against a server in virtual time."""

from __future__ import annotations

import math
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from itertools import pairwise
from typing import Final

import pytest

from ipoibu.base.limits import DHCP_PAUSE_S
from ipoibu.proto.context import Dad, DhcpIdentity
from ipoibu.proto.dhcp.client import DhcpClient, LeaseInfo, grant_untrusted
from ipoibu.proto.dhcp.state import State
from ipoibu.proto.effects import LeaseChanged
from ipoibu.proto.machine.transition import Topic
from ipoibu.wire import dhcp
from ipoibu.wire.dhcp import Code, Kind
from ipoibu.wire.dhcp_lease import Lease
from tests.doubles.dhcp_server import DhcpServer
from tests.doubles.simulation import TEMPLATE, Host, Simulation, packet

CLIENT_ID: Final = bytes.fromhex("ff00000001000300200011223344556677")
FIRST: Final = IPv4Interface("10.0.0.100/24")
SECOND: Final = IPv4Interface("10.0.0.101/24")


class World:
    """A server and a client, which has not started; with `dad_ipv4` as the daemon has it."""

    def __init__(self, *options: dhcp.Option, lease_s: int = 600, seed: int = 1) -> None:
        self.simulation = Simulation(seed, template=replace(TEMPLATE, dad_ipv4=Dad.WARN))
        self.server = DhcpServer(self.simulation, *options, lease_s=lease_s)
        self.run(3)
        self.identity = DhcpIdentity(CLIENT_ID, "node7")
        self.simulation.template = replace(self.simulation.template, dhcp=self.identity)
        self.host: Host

    def start(self) -> None:
        self.host = self.simulation.host()

    def run(self, duration_s: float) -> None:
        self.simulation.run(duration_s)

    @property
    def client(self) -> DhcpClient:
        assert self.host.engine.dhcp is not None
        return self.host.engine.dhcp

    def state(self) -> State:
        return self.client.state

    def leases(self) -> list[Lease | None]:
        return [it.lease for it in self.host.effects if isinstance(it, LeaseChanged)]

    def info(self) -> LeaseInfo:
        return self.client.info(self.simulation.now)

    def restart(self, after_s: float = 0.0) -> None:
        """Kill the client; another process takes the interface over, with the lease that this one stored."""
        stored = [it for it in self.host.effects if isinstance(it, LeaseChanged)][-1]
        assert stored.message is not None
        self.host.kill()
        self.run(after_s)
        self.server.seen.clear()
        self.simulation.hosts.remove(self.host)
        self.host = host = self.simulation._make(self.host.hwaddr.gid)
        self.simulation.hosts.append(host)
        self.client.recall(grant_untrusted(stored.message.pack(), stored.since_s))
        host.start()


@pytest.fixture
def world() -> World:
    return World()


def bound(*options: dhcp.Option, lease_s: int = 600) -> World:
    world = World(*options, lease_s=lease_s)
    world.start()
    world.run(2)
    assert world.state() is State.BOUND
    return world


def test_messages_are_those_of_a_host_without_a_hardware_address_that_fits(world: World) -> None:
    """D1."""
    world.start()
    world.run(2)
    sent = [it.message for it in world.server.seen]
    assert world.server.kinds() == [Kind.DISCOVER, Kind.REQUEST]
    assert {(it.htype, it.hlen, it.chaddr) for it in sent} == {(32, 0, bytes(16))}
    assert {it.option(Code.CLIENT_ID) for it in sent} == {CLIENT_ID}
    assert {it.option(Code.HOST_NAME) for it in sent} == {b"node7"}
    assert {str(it.source) for it in world.server.seen} == {"0.0.0.0"}


def test_a_client_without_an_address_asks_for_replies_by_broadcast() -> None:
    """D2."""
    world = bound(lease_s=60)
    assert all(it.message.is_broadcast for it in world.server.seen)
    world.server.seen.clear()
    world.run(40)
    (renewal,) = world.server.seen
    assert not renewal.message.is_broadcast


def test_a_lease_is_ours_after_arp_probes_whatever_the_policy_for_other_addresses(
    world: World,
) -> None:
    world.start()
    world.run(0.5)
    assert world.state() is State.CHECKING
    assert world.leases() == []
    world.run(1)
    assert world.state() is State.BOUND
    (lease,) = world.leases()
    assert lease is not None
    assert (lease.address, lease.server, lease.lease_s) == (FIRST, world.server.ip, 600)
    assert (lease.renewal_s, lease.rebinding_s) == (300, 525)
    assert [str(info.address) for info in world.host.engine.addresses()] == ["10.0.0.100"]
    world.server.host.send(packet("10.0.0.254", "10.0.0.100", b"hello"))
    world.run(1)
    assert world.host.got(b"hello")


def test_the_steps_are_observed(world: World) -> None:
    world.start()
    world.run(2)
    steps = [(it.before, it.after) for it in world.host.transitions if it.topic is Topic.LEASE]
    assert steps == [
        ("waiting", "selecting"),
        ("selecting", "requesting"),
        ("requesting", "checking"),
        ("checking", "bound"),
    ]


def test_a_lease_is_renewed_at_t1_by_its_server_alone() -> None:
    world = bound(lease_s=100)
    before = world.info()
    assert before.renewal_s == pytest.approx(48, abs=1)
    world.server.seen.clear()
    world.run(55)
    (renewal,) = world.server.seen
    assert (renewal.source, renewal.destination) == (FIRST.ip, world.server.ip)
    assert renewal.message.ciaddr == FIRST.ip
    assert renewal.message.option(Code.REQUESTED_ADDRESS) is None
    assert renewal.message.option(Code.SERVER) is None
    assert world.state() is State.BOUND
    after = world.info()
    assert after.end_s is not None
    assert after.end_s > 90
    assert len(world.leases()) == 2


def test_without_an_answer_any_server_is_asked_at_t2_and_the_lease_expires() -> None:
    world = bound(lease_s=1000)
    world.server.seen.clear()
    world.server.is_silent = True
    world.run(870)
    assert world.state() is State.RENEWING
    renewals = len(world.server.seen)
    assert 3 <= renewals <= 6  # half of the time that is left, at least a minute
    world.run(20)
    assert world.state() is State.REBINDING
    assert str(world.server.seen[-1].destination) == "255.255.255.255"
    assert world.server.seen[-1].source == FIRST.ip
    world.run(120)
    assert world.state() is State.SELECTING
    assert world.leases()[-1] is None
    assert world.host.engine.addresses() == []
    assert any("has expired" in line for line in world.host.log)
    world.server.is_silent = False
    world.run(70)
    assert world.state() is State.BOUND


def test_a_server_that_forgot_refuses_and_gives_another_lease() -> None:
    world = bound(lease_s=60)
    world.server.leases = {b"another": FIRST.ip}
    world.run(40)
    assert world.state() is State.BOUND
    first, gone, second = world.leases()
    assert first is not None
    assert gone is None
    assert second is not None
    assert second.address == SECOND
    assert [str(info.address) for info in world.host.engine.addresses()] == ["10.0.0.101"]
    assert any("refuses 10.0.0.100/24" in line for line in world.host.log)


def test_a_former_lease_that_leaves_the_kernel_late_does_not_end_the_check_of_the_next_one() -> (
    None
):
    """The server gives the address that it has just refused, and the daemon is slow."""
    world = bound(lease_s=60)
    world.server.leases = {}
    while world.leases()[-1] is not None:
        world.run(0.1)
    while world.state() is not State.CHECKING:
        world.run(0.1)
    world.host.remove(FIRST)
    world.run(10)
    assert world.state() is State.BOUND
    assert [str(info.address) for info in world.host.engine.addresses()] == [str(FIRST.ip)]


def test_an_address_that_another_host_has_is_declined_and_another_one_taken(world: World) -> None:
    template, world.simulation.template = world.simulation.template, TEMPLATE
    world.simulation.host("10.0.0.100/24")
    world.run(5)
    world.simulation.template = template
    world.start()
    world.run(2)
    assert world.state() is State.PAUSED
    decline = world.server.message(Kind.DECLINE)
    assert decline.option(Code.REQUESTED_ADDRESS) == FIRST.ip.packed
    assert decline.option(Code.SERVER) == world.server.ip.packed
    assert (decline.flags, decline.ciaddr) == (0, IPv4Address(0))
    assert world.leases() == []
    world.run(DHCP_PAUSE_S)
    (lease,) = world.leases()
    assert lease is not None
    assert lease.address == SECOND


def test_a_restart_asks_for_the_lease_that_it_had() -> None:
    world = bound()
    world.restart(after_s=5)
    world.run(2)
    assert world.server.kinds() == [Kind.REQUEST]
    (request,) = [it.message for it in world.server.seen]
    assert request.option(Code.REQUESTED_ADDRESS) == FIRST.ip.packed
    assert request.option(Code.SERVER) is None
    assert request.ciaddr == IPv4Address(0)
    assert world.state() is State.BOUND
    (lease,) = world.leases()
    assert lease is not None
    assert lease.address == FIRST


def test_a_restart_without_a_server_goes_on_with_the_lease_until_it_expires() -> None:
    world = bound(lease_s=100)
    world.server.is_silent = True
    world.restart()
    world.run(20)
    assert world.state() is State.BOUND
    assert world.info().end_s == pytest.approx(78, abs=1.5)
    assert any("no server answers: using 10.0.0.100/24" in line for line in world.host.log)
    world.run(80)
    assert world.state() is State.SELECTING
    assert world.leases()[-1] is None


def test_a_restart_after_the_lease_has_expired_begins_anew_and_forgets_it() -> None:
    world = bound(lease_s=60)
    world.restart(after_s=70)
    world.run(2)
    assert world.server.kinds() == [Kind.DISCOVER, Kind.REQUEST]
    assert world.leases()[0] is None


def test_a_link_that_comes_back_has_its_lease_confirmed_and_keeps_the_address() -> None:
    world = bound()
    now = world.simulation.now
    world.host.carry_out(world.host.engine.port_event(now, "down"))
    world.run(5)
    assert world.state() is State.WAITING
    assert world.info().lease is not None
    world.server.seen.clear()
    world.host.carry_out(world.host.engine.port_event(world.simulation.now, "up"))
    world.run(2)
    assert world.server.kinds() == [Kind.REQUEST]
    assert world.state() is State.BOUND
    assert None not in world.leases()


def test_a_lease_expires_while_the_link_is_down() -> None:
    world = bound(lease_s=60)
    world.host.carry_out(world.host.engine.port_event(world.simulation.now, "down"))
    world.run(70)
    assert world.leases()[-1] is None
    assert world.info() == LeaseInfo(State.WAITING, None, None, None)


def test_the_address_is_given_back_at_the_end() -> None:
    world = bound()
    world.host.carry_out(world.host.engine.release(world.simulation.now))
    assert world.state() is State.RELEASING
    world.run(1)
    assert world.state() is State.WAITING
    release = world.server.message(Kind.RELEASE)
    assert release.ciaddr == FIRST.ip
    assert release.option(Code.SERVER) == world.server.ip.packed
    assert release.option(Code.REQUESTED_ADDRESS) is None
    assert world.server.leases == {}
    assert world.leases()[-1] is None
    assert world.host.engine.addresses() == []


def test_the_client_asks_again_after_4_8_16_32_and_64_seconds_and_tells_of_it(
    world: World,
) -> None:
    """RFC 2131 §4.1: each a second sooner or later."""
    world.server.is_silent = True
    times: list[float] = []
    world.simulation.network.observers.append(lambda *_: times.append(world.simulation.now))
    world.start()
    world.run(300)
    waits = [later - sooner for sooner, later in pairwise(times)]
    for wait, expected in zip(waits, (4, 8, 16, 32, 64, 64), strict=False):
        assert abs(wait - expected) <= 1
    assert len(waits) >= 6
    assert len({round(wait, 3) for wait in waits}) == len(waits)
    seconds = [it.message.secs for it in world.server.seen]
    assert seconds[:1] == [0]
    assert seconds == sorted(seconds)
    lines = [line for line in world.host.log if "no server answers" in line]
    assert 1 <= len(lines) < len(waits)


def test_an_offer_that_is_not_granted_leads_to_another_discovery(world: World) -> None:
    world.start()
    world.run(0.0005)
    world.server.is_silent = True
    offer = world.server.reply(world.server.message(Kind.DISCOVER), Kind.OFFER, FIRST.ip)
    world.server.send(offer)
    world.run(1)
    assert world.state() is State.REQUESTING
    world.run(80)
    kinds = world.server.kinds()
    assert kinds.count(Kind.REQUEST) == 4
    assert kinds[-1] is Kind.DISCOVER
    requests = [it.message for it in world.server.seen if it.message.kind is Kind.REQUEST]
    assert len({(it.xid, it.secs) for it in requests}) == 1  # RFC 2131 §4.4.1


def test_a_server_that_refuses_its_own_offer_is_not_asked_at_once_again(world: World) -> None:
    world.start()
    world.run(0.0005)
    world.server.is_silent = True
    discover = world.server.message(Kind.DISCOVER)
    world.server.send(world.server.reply(discover, Kind.OFFER, FIRST.ip))
    world.run(0.1)
    world.server.send(world.server.reply(discover, Kind.NAK, FIRST.ip))
    world.run(1)
    assert world.state() is State.PAUSED
    world.server.is_silent = False
    world.run(DHCP_PAUSE_S + 1)
    assert world.state() is State.BOUND


def test_what_does_not_answer_us_goes_to_the_host_and_what_contradicts_is_counted() -> None:
    world = bound(lease_s=60)
    world.host.delivered.clear()
    discover = world.server.message(Kind.REQUEST)
    other = world.server.reply(replace(discover, xid=discover.xid ^ 1), Kind.ACK, SECOND.ip)
    world.server.send(other)
    named = world.server.reply(discover, Kind.ACK, SECOND.ip, (Code.CLIENT_ID, b"\0another"))
    world.server.send(named)
    world.run(0.1)
    assert len(world.host.delivered) == 2
    world.server.send(replace(world.server.reply(discover, Kind.ACK, FIRST.ip), options=()))
    wrong = world.server.reply(discover, Kind.ACK, SECOND.ip)
    world.server.send(wrong)
    lacking = world.server.reply(discover, Kind.ACK, FIRST.ip)
    world.server.send(lacking.without_option(Code.LEASE_TIME))
    world.run(0.1)
    assert len(world.host.delivered) == 2
    assert world.host.counts["dhcp_unexpected"] == 3
    assert world.state() is State.BOUND
    assert world.info().lease is not None


def test_an_infinite_lease_is_never_renewed() -> None:
    world = bound(lease_s=0xFFFFFFFF)
    assert world.info().end_s == math.inf
    world.server.seen.clear()
    world.run(1e6)
    assert world.server.seen == []
    assert world.state() is State.BOUND


def test_a_mask_that_changes_changes_the_address_without_a_probe() -> None:
    world = bound(lease_s=60)
    world.server.mask = IPv4Address("255.255.0.0")
    world.run(40)
    lease = world.leases()[-1]
    assert lease is not None
    assert lease.address == IPv4Interface("10.0.0.100/16")
    assert world.host.engine.addresses()[0].state.value == "preferred"
