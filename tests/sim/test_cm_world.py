# SPDX-License-Identifier: BSD-2-Clause
"""Connections between hosts on a network that loses, doubles, delays and reorders datagrams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from ipoibu.base.addr import DEFAULT_PKEY, RC_FLAG, Gid, HwAddr, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    CM_HALF_OPEN_PER_PORT_MAX,
    CM_TIMEWAIT_S,
    CONNECTION_ACTIVITY_S,
    CONNECTION_IDLE_S,
)
from ipoibu.proto.context import FrameSource
from ipoibu.proto.rc import connection as rc_connection
from ipoibu.proto.rc.connection import Profile
from ipoibu.proto.rc.events import Ended, Established, Requested, Role, SendMad
from ipoibu.proto.rc.peer import TxMode
from ipoibu.wire import cm
from ipoibu.wire.cm_code import Reason
from ipoibu.wire.cm_private import Private, ServiceForm, service_id
from ipoibu.wire.cm_setup import Path, Req
from ipoibu.wire.mad import GSI_QPN
from tests.doubles.network import PERFECT, TERRIBLE, Faults
from tests.doubles.rc_world import CONFIG, RcHost, World

WORSE: Final = Faults(drop=0.3, duplicate=0.2, delay=0.2)
SETTLED_S: Final = 60.0  # every exchange of CM messages is over: 8 tries of 1 s on either side
both_profiles = pytest.mark.parametrize("profile", Profile)


def world(seed: int, faults: Faults = PERFECT, profile: Profile = Profile.LINUX) -> World:
    return World(seed, faults, replace(CONFIG, profile=profile, superframe_bytes=65552))


def crowd(hosts: list[RcHost], simulation: World, within_s: float) -> None:
    """Each host sends to each other host once, at a random time."""
    for a in hosts:
        for b in hosts:
            if a is not b:
                at = simulation.now + simulation.rng.uniform(0, within_s)
                simulation.clock.at(at, lambda a=a, b=b: a.send(b))  # type: ignore[misc]


def assert_both_ends_agree(simulation: World) -> None:
    """Each connection of one end exists on the other end, programmed for it."""
    for host in simulation.hosts:
        for info in host.connections.snapshot(simulation.now):
            assert info.state is rc_connection.State.LIVE
            ours = host.qps[info.handle].attributes
            assert ours is not None
            end = simulation.find(ours.destination)
            assert end is not None, f"{info.handle} of {host.interface} leads nowhere"
            other, handle, qp = end
            theirs = qp.attributes
            assert theirs is not None
            assert theirs.destination.qpn == host.qps[info.handle].qpn
            assert theirs.destination.gid == host.interface.gid
            assert (ours.send_psn, ours.receive_psn) == (theirs.receive_psn, theirs.send_psn)
            assert qp.has_superframes == host.qps[info.handle].has_superframes
            assert info.hwaddr.same_queue_pair(other.interface)
            assert {info.handle.role, handle.role} == set(Role)


def assert_nothing_is_left(simulation: World) -> None:
    for host in simulation.hosts:
        assert len(host.cm) == 0
        assert len(host.connections) == 0
        assert host.qps == {}
        assert host.cm.deadline() is None
        assert host.connections.deadline() is None


@both_profiles
@pytest.mark.parametrize("faults", [PERFECT, TERRIBLE, WORSE], ids=["perfect", "terrible", "worse"])
def test_every_connect_ends_on_both_sides_alike_and_leaves_nothing(
    profile: Profile, faults: Faults
) -> None:
    """Both ends establish the connection or both fail; then it is used, idle, closed, and forgotten after
    time-wait."""
    totals: Counter[str] = Counter()
    for seed in range(25):
        simulation = world(seed, faults, profile)
        hosts = [simulation.host() for _ in range(4)]
        crowd(hosts, simulation, 5)
        simulation.run(SETTLED_S)
        assert_both_ends_agree(simulation)
        for host in hosts:
            totals.update(host.counts)
            totals.update(host.route(other).tx_mode.name for other in hosts if other is not host)
        crowd(hosts, simulation, 0)
        simulation.run(CONNECTION_IDLE_S + CONNECTION_ACTIVITY_S + SETTLED_S)
        simulation.run(CONNECTION_IDLE_S + 200)
        assert_nothing_is_left(simulation)
        assert not any(host.counts["connection_broken"] for host in hosts)
    pairs = 25 * 4 * 3
    assert totals["RC"] >= pairs - (0 if faults is PERFECT else 3)
    if faults is not PERFECT:
        assert totals["cm_retry"] > 100
        assert totals["cm_duplicate"] > 100


@both_profiles
@pytest.mark.parametrize("seed", range(20))
def test_packets_arrive_by_the_connections_that_were_made(profile: Profile, seed: int) -> None:
    simulation = world(seed, TERRIBLE, profile)
    hosts = [simulation.host() for _ in range(3)]
    crowd(hosts, simulation, 1)
    simulation.run(SETTLED_S)
    for host in hosts:
        host.received.clear()
    crowd(hosts, simulation, 0)
    simulation.run(1)
    for host in hosts:
        assert host.counts["connection_broken"] == 0
        assert len(host.received) == 2
        assert all(is_readable for _, is_readable in host.received)


@pytest.mark.parametrize("seed", range(50))
def test_crossing_requests_in_the_rfcs_profile_make_one_connection(seed: int) -> None:
    """C6."""
    simulation = world(seed, TERRIBLE if seed % 2 else PERFECT, Profile.RFC)
    a, b = simulation.host(), simulation.host()
    a.send(b)
    b.send(a)
    simulation.run(SETTLED_S)
    a.send(b)  # a loser that never received the winner's request asks once more
    b.send(a)
    simulation.run(SETTLED_S)
    assert_both_ends_agree(simulation)
    assert len(a.qps) == len(b.qps) == 1
    assert a.route(b).tx_mode is b.route(a).tx_mode is TxMode.RC
    if not seed % 2:
        (handle,) = b.qps
        assert b.interface.pack() > a.interface.pack()
        assert handle.role is Role.ACTIVE  # the larger address wins
        assert a.counts["connection_failed"] + b.counts["connection_failed"] == 0


@pytest.mark.parametrize("seed", range(50))
def test_crossing_requests_in_the_linux_profile_make_two_connections(seed: int) -> None:
    """C6: one in each direction."""
    simulation = world(seed, TERRIBLE if seed % 2 else PERFECT, Profile.LINUX)
    a, b = simulation.host(), simulation.host()
    a.send(b)
    b.send(a)
    simulation.run(SETTLED_S)
    assert_both_ends_agree(simulation)
    for host, other in ((a, b), (b, a)):
        assert sorted(handle.role.value for handle in host.qps) == ["active", "passive"]
        handle = host.route(other).handle
        assert handle is not None
        assert handle.role is Role.ACTIVE


@both_profiles
def test_without_a_manager_on_the_other_side_packets_go_by_datagram(profile: Profile) -> None:
    simulation = world(1, PERFECT, profile)
    a, b = simulation.host(), simulation.host()
    b.kill()
    for _ in range(100):
        a.send(b.interface)
        simulation.run(1)
    assert a.datagrams[b.interface] == 100
    assert 4 <= a.counts["connection_failed"] <= 8  # 8.6 s each, and 1, 2, 4, 8 .. in between
    simulation.run(600)
    assert_nothing_is_left(simulation)


def test_a_peer_without_room_is_reached_by_datagram_and_asked_again() -> None:
    simulation = world(1)
    a, b = simulation.host(), simulation.host()
    b.has_qps = False
    a.send(b)
    simulation.run(0.5)
    assert a.route(b).tx_mode is TxMode.UD
    assert [event.reason for event in a.events if isinstance(event, Ended)] == [Reason.NO_QP]
    b.has_qps = True
    simulation.run(5)
    a.send(b)
    simulation.run(1)
    assert a.route(b).tx_mode is TxMode.RC


def test_a_host_that_knows_the_rfcs_service_id_only_is_connected() -> None:
    """C7."""
    simulation = world(1)
    a, b = simulation.host(), simulation.host()
    b.cm.listen({service_id(ServiceForm.RFC, b.interface.qpn): DEFAULT_PKEY})
    a.send(b)
    simulation.run(1)
    assert a.route(b).tx_mode is TxMode.RC
    (requested,) = (event for event in b.events if isinstance(event, Requested))
    assert requested.service_id >> 56 == 0x01


# Restarts


def restart_noticed(notify: Callable[[RcHost, RcHost, RcHost], None], profile: Profile) -> None:
    """Connect a and b in both directions, restart b with a new queue pair, and let `notify` inform a."""
    for seed in range(20):
        simulation = world(seed, TERRIBLE, profile)
        a, b = simulation.host(), simulation.host()
        a.send(b)
        b.send(a)
        simulation.run(SETTLED_S)
        a.send(b)
        fresh = simulation.restart(b)
        simulation.run(1)
        notify(a, b, fresh)
        simulation.run(SETTLED_S)
        a.send(fresh)
        fresh.send(a)
        simulation.run(SETTLED_S)
        assert_both_ends_agree(simulation)
        assert a.route(fresh).tx_mode is TxMode.RC
        assert fresh.route(a).tx_mode is TxMode.RC
        received = len(fresh.received)
        a.send(fresh)
        assert len(fresh.received) == received + 1
        assert all(info.hwaddr.qpn == fresh.interface.qpn for info in a.connections.snapshot(0))
        simulation.run(2 * CONNECTION_IDLE_S)
        assert_nothing_is_left(simulation)


@both_profiles
def test_a_restart_is_noticed_by_what_arp_and_nd_say(profile: Profile) -> None:
    restart_noticed(lambda a, b, _: a.carry_out(a.connections.forget(a.now, b.interface)), profile)


@both_profiles
def test_a_restart_is_noticed_by_the_new_connection(profile: Profile) -> None:
    restart_noticed(lambda a, _, fresh: fresh.send(a), profile)


def test_a_restart_is_noticed_by_sends_that_fail() -> None:
    """In the linux profile; a connection that the dead peer opened ends once it is idle for long enough."""
    simulation = world(1)
    a, b = simulation.host(), simulation.host()
    a.send(b)
    simulation.run(1)
    simulation.run(100)
    simulation.restart(b)
    a.send(b.interface)
    assert a.counts["connection_broken"] == 1
    assert a.connections.route(b.interface).tx_mode is TxMode.UD_NOTIFY
    a.send(b.interface)  # the old address: no host listens there any more
    simulation.run(0.5)
    causes = [event.cause.name for event in a.events if isinstance(event, Ended)]
    assert causes == ["NO_SERVICE"] * len(ServiceForm)
    assert a.connections.route(b.interface).tx_mode is TxMode.UD


@both_profiles
@pytest.mark.parametrize("seed", range(10))
def test_a_partition_of_the_network_heals(profile: Profile, seed: int) -> None:
    """Connections cut off during their set-up end, and the next packets connect."""
    simulation = world(seed, TERRIBLE, profile)
    hosts = [simulation.host() for _ in range(4)]
    crowd(hosts, simulation, 0.1)
    simulation.run(simulation.rng.uniform(0, 0.3))
    simulation.network.faults = Faults(drop=1.0)
    simulation.run(SETTLED_S)
    simulation.network.faults = TERRIBLE
    simulation.run(CM_TIMEWAIT_S)
    for _ in range(8):
        crowd(hosts, simulation, 1)  # only sends discover the broken connections
        simulation.run(20)
    assert_both_ends_agree(simulation)
    for host in hosts:
        assert all(host.route(other).tx_mode is TxMode.RC for other in hosts if other is not host)


@both_profiles
def test_an_interface_that_goes_down_in_good_order_leaves_nothing(profile: Profile) -> None:
    """C10."""
    simulation = world(3, TERRIBLE, profile)
    hosts = [simulation.host() for _ in range(3)]
    crowd(hosts, simulation, 1)
    simulation.run(SETTLED_S)
    hosts[0].stop()
    simulation.run(SETTLED_S)
    assert len(hosts[0].cm) == 0
    assert hosts[0].qps == {}
    for host in hosts[1:]:
        assert host.route(hosts[0]).tx_mode is not TxMode.RC
        assert all(info.hwaddr != hosts[0].interface for info in host.connections.snapshot(0))


# Floods


def request(victim: RcHost, gid: Gid, number: int) -> bytes:
    req = Req(
        local_id=number + 1,
        service_id=service_id(ServiceForm.LINUX, victim.interface.qpn),
        ca_guid=number,
        qpn=Qpn(number + 2),
        psn=0,
        pkey=DEFAULT_PKEY,
        mtu=4,
        primary=Path(gid, victim.interface.gid, 0xFFFF, 0xFFFF, hop_limit=64),
        private=Private(Qpn(number + 2), 65524).pack(),
        remote_timeout=31,
        local_timeout=31,
        cm_retries=15,
    )
    return cm.pack(number, req)


@both_profiles
@pytest.mark.parametrize("is_one_port", [True, False], ids=["one port", "many ports"])
def test_a_flood_of_requests_is_refused_at_the_cap_while_others_connect(
    profile: Profile, is_one_port: bool
) -> None:
    simulation = world(1, PERFECT, profile)
    victim, friend = simulation.host(), simulation.host()
    for number in range(2000):
        gid = Gid.parse("fe80::bad" if is_one_port else f"fe80::bad:{number:x}")
        victim.receive(
            FrameSource(Qpn(GSI_QPN), gid, victim.interface.gid), request(victim, gid, number)
        )
    cap = CM_HALF_OPEN_PER_PORT_MAX if is_one_port else victim.cm.config.half_open_max
    assert len(victim.cm) == len(victim.qps) == cap
    assert victim.counts["cm_half_open_full"] == 2000 - cap
    victim.send(friend)  # our connections do not count as theirs
    simulation.run(1)
    assert victim.route(friend).tx_mode is TxMode.RC
    if is_one_port:
        friend.send(victim)
        simulation.run(1)
        assert friend.route(victim).tx_mode is TxMode.RC
    simulation.run(2 * SETTLED_S)  # the flood asked for tries of 4.3 s
    assert len(victim.cm) == len(victim.qps)
    friend.send(victim)
    simulation.run(SETTLED_S)
    assert friend.route(victim).tx_mode is TxMode.RC
    assert_both_ends_agree(simulation)
    # the replies to the flood are bounded by its own messages, and by the rate of refusals
    replies = sum(isinstance(effect, SendMad) for effect in victim.effects)
    assert replies < cap * 16 + 300


def test_every_connection_is_announced_once_and_ended_once() -> None:
    for seed in range(20):
        simulation = world(seed, WORSE)
        hosts = [simulation.host() for _ in range(4)]
        crowd(hosts, simulation, 3)
        simulation.run(SETTLED_S)
        hosts[0].stop()
        simulation.run(2 * CONNECTION_IDLE_S)
        for host in hosts:
            for kind in (Requested, Established, Ended):
                handles = [event.handle for event in host.events if isinstance(event, kind)]
                assert len(handles) == len(set(handles)), kind.__name__


def test_a_thousand_peers_are_a_thousand_connections_and_no_more() -> None:
    simulation = world(1)
    hub = simulation.host()
    for number in range(1, 1001):
        hwaddr = HwAddr(Qpn(0x50), Gid.parse(f"fe80::2:{number:x}"), RC_FLAG)
        destination = Destination(hwaddr.gid, hwaddr.qpn)
        hub.carry_out(hub.connections.note_wanted(hub.now, hwaddr, destination))
    assert len(hub.qps) == len(hub.cm) == 1000
    simulation.run(30)
    assert hub.qps == {}
    assert len(hub.cm) == 0
    assert hub.counts["connection_failed"] == 1000
