# SPDX-License-Identifier: BSD-2-Clause
"""The policy of connected mode: caps, snapshots, and any order of inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipoibu.base.addr import RC_FLAG, Gid, HwAddr, Qpn
from ipoibu.base.limits import CONNECTION_BACKOFF_MAX_S, CONNECTION_EVICTABLE_S, CONNECTION_IDLE_S
from ipoibu.proto.machine.table import Impossible
from ipoibu.proto.rc import connection as rc_connection
from ipoibu.proto.rc.connection import OpenQp, Profile, RcEffect
from ipoibu.proto.rc.events import (
    Cause,
    Confirm,
    Disconnect,
    Ended,
    Established,
    Handle,
    Reject,
    Replied,
)
from ipoibu.proto.rc.peer import TxMode, TxRoute
from ipoibu.wire.cm_code import Reason
from ipoibu.wire.cm_private import Private
from tests.doubles.rc_desk import (
    CONFIG,
    LINUX_MTU,
    PEER,
    SMALLER,
    SUPERFRAME,
    Desk,
    attributes,
    paths,
    pick,
)

# Caps


def test_at_the_cap_the_connection_unused_for_longest_makes_room() -> None:
    desk = Desk(replace(CONFIG, connections_max=2))
    one, two, three = (HwAddr(Qpn(0x70 + n), Gid.parse(f"fe80::{n}"), RC_FLAG) for n in (1, 2, 3))
    first, second = desk.connect(one), desk.connect(two)
    desk.wait(CONNECTION_EVICTABLE_S)
    desk.note(desk.connections.active(desk.now, [first]))
    effects = desk.want(three)
    assert Disconnect(second) in effects
    assert pick(OpenQp, effects) != []
    assert paths(effects) == [TxMode.UD_CONNECTING, TxMode.UD_NOTIFY]  # three, and two
    assert desk.route(two).tx_mode is TxMode.UD_NOTIFY
    assert desk.route(one).handle == first
    assert len(desk.connections) == 2
    assert desk.count("connection_evicted") == 1


def test_a_connection_that_ended_is_not_thrown_out_again() -> None:
    desk = Desk(replace(CONFIG, connections_max=2))
    one, two, three = (HwAddr(Qpn(0x70 + n), Gid.parse(f"fe80::{n}"), RC_FLAG) for n in (1, 2, 3))
    desk.event(Ended(desk.connect(one), Cause.DISCONNECTED))
    second = desk.connect(two)
    desk.ask(three)
    desk.wait(CONNECTION_EVICTABLE_S)
    assert Disconnect(second) in desk.want(HwAddr(Qpn(0x74), Gid.parse("fe80::4"), RC_FLAG))


def test_at_the_cap_connections_in_use_are_not_thrown_out() -> None:
    desk = Desk(replace(CONFIG, connections_max=1))
    handle = desk.connect()
    other = HwAddr(Qpn(0x70), Gid.parse("fe80::1"), RC_FLAG)
    effects = desk.want(other)
    assert pick(OpenQp, effects) == []
    assert desk.route(other).tx_mode is TxMode.UD
    _, effects = desk.request(other)
    (reject,) = pick(Reject, effects)
    assert reject.reason is Reason.NO_RESOURCES
    assert desk.count("connection_full") == 2
    assert desk.open_qps == {handle}
    assert paths(desk.wait(2)) == [TxMode.UD_NOTIFY]


def test_a_flood_of_requests_never_exceeds_the_cap() -> None:
    desk = Desk(replace(CONFIG, connections_max=20))
    for number in range(500):
        gid = Gid.parse(f"fe80::1:{number:x}")
        handle, effects = desk.request(HwAddr(Qpn(0x50), gid))
        if pick(OpenQp, effects):
            desk.open(handle)
            desk.event(Established(handle))
        assert len(desk.open_qps) <= 20
    assert desk.count("connection_full") == 480


def test_only_so_many_failures_are_remembered() -> None:
    desk = Desk(replace(CONFIG, peers_max=3))
    peers = [HwAddr(Qpn(0x50), Gid.parse(f"fe80::{n:x}"), RC_FLAG) for n in range(1, 5)]
    for hwaddr in peers[:3]:
        desk.event(Ended(desk.ask(hwaddr).handle, Cause.NO_ANSWER))
    desk.connect(peers[3])
    assert desk.count("connection_peer_evicted") == 1
    assert desk.route(peers[0]).tx_mode is TxMode.UD_NOTIFY  # forgotten
    assert desk.route(peers[1]).tx_mode is TxMode.UD
    busy = Desk(replace(CONFIG, peers_max=1))
    busy.connect()
    assert pick(OpenQp, busy.want(peers[0])) == []
    assert busy.count("connection_peers_full") == 1


def test_what_is_shown_of_a_connection() -> None:
    desk = Desk(replace(CONFIG, superframe_bytes=SUPERFRAME))
    connect = desk.ask()
    desk.answer(connect, theirs=Private(PEER.qpn, 9004, SUPERFRAME))
    theirs = desk.accept()
    desk.wait(10)
    desk.note(desk.connections.active(desk.now, [theirs]))
    desk.wait(5)
    ours, incoming = desk.connections.snapshot(desk.now)
    assert (ours.handle, ours.hwaddr) == (connect.handle, replace(PEER, flags=0))
    assert (ours.state, ours.qpn, ours.remote_qpn) == (rc_connection.State.LIVE, 0x100, 0x5A)
    assert (ours.mtu_bytes, ours.has_superframes) == (9000, True)
    assert (ours.age_s, ours.idle_s) == (15, 15)
    assert (incoming.handle, incoming.mtu_bytes, incoming.has_superframes) == (theirs, 0, False)
    assert (incoming.age_s, incoming.idle_s) == (15, 5)
    assert str(connect.handle) == "active-0"


# Whatever happens, in whatever order

PEERS: Final = [PEER, SMALLER, HwAddr(Qpn(0x50), Gid.parse("fe80::3"), RC_FLAG)]
moves = st.tuples(st.integers(0, 11), st.integers(0, 2), st.integers(0, 7))


@settings(max_examples=400)
@given(st.sampled_from(Profile), st.lists(moves, max_size=60))
def test_no_sequence_of_events_loses_a_queue_pair_or_a_route(
    profile: Profile, sequence: list[tuple[int, int, int]]
) -> None:
    desk = Desk(replace(CONFIG, profile=profile, connections_max=4, per_port_max=3, peers_max=2))
    for move, peer, choice in sequence:
        _one_move(desk, move, PEERS[peer], choice)
        live = {it.handle for it in desk.connections.snapshot(desk.now)}
        assert desk.open_qps == live
        assert len(live) <= 4
        for hwaddr in PEERS:
            route = desk.route(hwaddr)
            if route.tx_mode is TxMode.RC:
                assert route.handle in live
                assert route.mtu_bytes >= CONFIG.datagram_mtu_bytes
    for latest in _latest_routes(desk.effects):
        if latest.hwaddr in desk.connections._peers or latest.tx_mode is not TxMode.UD:
            assert desk.route(replace(latest.hwaddr, flags=RC_FLAG)) == latest
    desk.wait(CONNECTION_IDLE_S + 4 * CONNECTION_BACKOFF_MAX_S)
    desk.note(desk.connections.close(desk.now))
    assert desk.open_qps == set()
    assert desk.connections.deadline() is None
    assert len(desk.connections) == 0
    assert not desk.connections._peers
    assert not desk.connections._resting


def _latest_routes(effects: list[RcEffect]) -> list[TxRoute]:
    """The routes from the effects, which must be those of `route`."""
    return list({route.hwaddr: route for route in pick(TxRoute, effects)}.values())


def _one_move(desk: Desk, move: int, hwaddr: HwAddr, choice: int) -> None:
    infos = list(desk.connections.snapshot(desk.now))
    info = infos[choice % len(infos)] if infos else None
    match move:
        case 0 | 1:
            desk.want(hwaddr)
        case 2:
            desk.request(hwaddr)
        case 3:
            desk.wait((0.1, 1, 3, 10, 64, 65, 200, 600)[choice])
        case 4:
            desk.note(desk.connections.forget(desk.now, hwaddr))
        case _ if info is None:
            pass
        case 5 | 6 | 7 | 8:
            _advance(desk, info.handle, info.state, info.hwaddr, choice)
        case 9:
            if info.state not in (rc_connection.State.OPENING, rc_connection.State.INVITED):
                desk.note(desk.connections.broken(desk.now, info.handle))
        case 10:
            if info.state is not rc_connection.State.OPENING:
                desk.event(Ended(info.handle, list(Cause)[choice]))
        case _:
            desk.note(desk.connections.active(desk.now, [info.handle]))


def _advance(
    desk: Desk, handle: Handle, state: rc_connection.State, hwaddr: HwAddr, choice: int
) -> None:
    """Feed the next successful step of a connection."""
    match state:
        case rc_connection.State.OPENING | rc_connection.State.INVITED:
            desk.open(handle)
        case rc_connection.State.ASKING:
            theirs = Private(hwaddr.qpn, LINUX_MTU if choice else 100)
            effects = desk.event(Replied(handle, attributes(), theirs.pack()))
            if pick(Confirm, effects):
                desk.event(Established(handle))
        case rc_connection.State.REPLYING:
            desk.event(Established(handle))
        case _:
            with pytest.raises(Impossible):
                desk.open(handle)
