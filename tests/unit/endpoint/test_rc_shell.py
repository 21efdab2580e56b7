# SPDX-License-Identifier: BSD-2-Clause
"""`RcShell` between an engine, a pump, a fabric and a manager that only record calls."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any, Final

import pytest

from ipoibu import _core
from ipoibu.base.addr import RC_FLAG, Gid, HwAddr, IpAddress, PKey, Qpn
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import Destination, RcAttributes
from ipoibu.base.route import key_of
from ipoibu.endpoint.datapath.rc_shell import RcShell
from ipoibu.proto.effects import NeighAction, Publish
from ipoibu.proto.machine.transition import Topic, Transition
from ipoibu.proto.rc.connection import RcConfig
from ipoibu.proto.rc.events import (
    Accept,
    Confirm,
    Connect,
    Disconnect,
    Established,
    Handle,
    Replied,
    Request,
    Requested,
    Role,
)
from ipoibu.wire import cm_private
from ipoibu.wire.cm_private import Private

OURS: Final = HwAddr(Qpn(0x48), Gid.parse("fe80::1"))
PEER: Final = HwAddr(Qpn(0x55), Gid.parse("fe80::2"), RC_FLAG)
TO_PEER: Final = Destination(PEER.gid, PEER.qpn)
NEXT_HOP: Final = ip_address("10.0.0.2")
ATTRIBUTES: Final = RcAttributes(Destination(PEER.gid, Qpn(0x99)), 2048, 1, 2, 14)
THEIRS: Final = Private(PEER.qpn, 65524).pack()


class Pump:
    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def tx_mode_set(self, dest: Destination, tx_mode: int, *values: int) -> None:
        self.said.append(("path", dest, tx_mode, *values))

    def forward(self, packet: bytes) -> bool:
        self.said.append(("send", packet))
        return True

    def connection_add(self, number: int, capsule: object, superframes: bool) -> None:
        self.said.append(("add", number, superframes))

    def connection_del(self, number: int) -> None:
        self.said.append(("del", number))

    def connection_counters(self, number: int) -> tuple[int, int, int, int] | None:
        return (1, 100, 2, 200) if number else None


class QueuePair:
    retries = 3
    native = object()

    def __init__(self, qpn: int) -> None:
        self.qpn = Qpn(qpn)
        self.life = ["init"]

    def program(self, attributes: RcAttributes) -> None:
        self.life.append("programmed")

    def stop(self) -> None:
        self.life.append("stopped")

    def close(self) -> None:
        self.life.append("closed")


class Fabric:
    def __init__(self) -> None:
        self.pairs: list[QueuePair] = []
        self.is_full = False

    def admits(self, hwaddr: HwAddr) -> bool:
        return True

    def open_connection(self) -> QueuePair:
        if self.is_full:
            raise LinkError("no queue pair is left")
        self.pairs.append(QueuePair(0x100 + len(self.pairs)))
        return self.pairs[-1]


class Manager:
    def __init__(self) -> None:
        self.serials = itertools.count()
        self.requests: list[Request] = []
        self.deliver: Any = None
        self.subscribers = 0

    def subscribe(self, service_ids: frozenset[int], deliver: Any, pkey: PKey) -> object:
        assert service_ids == cm_private.service_ids(OURS.qpn)  # every form (C7)
        self.deliver = deliver
        self.subscribers += 1
        return self

    def unsubscribe(self, subscriber: object) -> None:
        self.subscribers -= 1

    def request(self, subscriber: object, request: Request) -> None:
        self.requests.append(request)


class Desk:
    """One `RcShell` with its surroundings; its loop runs only in `deliver`."""

    def __init__(self) -> None:
        self.transitions: list[Transition] = []
        self.loop = asyncio.new_event_loop()
        self.pump, self.fabric, self.manager = Pump(), Fabric(), Manager()
        self.counts: Counter[str] = Counter()
        arguments: Any = (self.loop, self.pump, self.fabric, self.manager)
        config = RcConfig(OURS, 2044, 2048)
        observe = self.transitions.append
        self.driver = RcShell(*arguments, config=config, counts=self.counts, observe=observe)
        self.driver.open()

    def publish(self, hwaddr: HwAddr = PEER, next_hop: IpAddress = NEXT_HOP) -> None:
        destination = Destination(hwaddr.gid, hwaddr.qpn)
        self.driver.note_published(Publish(next_hop, NeighAction.SEND, destination, 2044, hwaddr))

    def event(self, kind: int, **fields: Any) -> None:
        self.driver.event(SimpleNamespace(type=kind, **fields))  # type: ignore[arg-type]

    def want(self) -> None:
        self.event(_core.EVENT_RC_WANTED, qpn=PEER.qpn, gid=PEER.gid.raw)

    def hold(self, packet: bytes) -> None:
        self.event(_core.EVENT_CONNECTING, next_hop=key_of(NEXT_HOP), data=packet)

    def deliver(self, event: Any) -> None:
        """Deliver an event as the manager does, from its own thread."""
        self.manager.deliver(event)
        self.loop.run_until_complete(asyncio.sleep(0))

    def connect(self) -> Handle:
        self.publish()
        self.want()
        (connect,) = self.manager.requests
        assert isinstance(connect, Connect)
        self.deliver(Replied(connect.handle, ATTRIBUTES, THEIRS))
        self.deliver(Established(connect.handle))
        return connect.handle


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.driver.close()
    desk.driver.release()
    desk.loop.close()
    assert desk.manager.subscribers == 0
    assert all(pair.life[-1] == "closed" for pair in desk.fabric.pairs)


def test_a_neighbour_that_accepts_connections_is_watched(desk: Desk) -> None:
    desk.publish()
    assert desk.pump.said == [("path", TO_PEER, _core.TX_UD_NOTIFY)]


def test_a_neighbour_that_was_known_before_the_link_came_up_is_watched_from_then_on(
    desk: Desk,
) -> None:
    """A restart knows the neighbours of the process before."""
    desk.driver.down()
    desk.publish()
    assert desk.pump.said[-1] == ("path", TO_PEER, _core.TX_UD)
    desk.driver.open()
    assert desk.pump.said[-1] == ("path", TO_PEER, _core.TX_UD_NOTIFY)


def test_a_neighbour_that_does_not_is_left_alone(desk: Desk) -> None:
    desk.publish(replace(PEER, flags=0))
    assert desk.pump.said == []


def test_the_first_packet_asks_for_a_connection(desk: Desk) -> None:
    desk.publish()
    desk.want()
    (connect,) = desk.manager.requests
    assert isinstance(connect, Connect)
    assert (connect.destination, connect.qpn) == (TO_PEER, desk.fabric.pairs[0].qpn)
    assert desk.pump.said[-1] == ("path", TO_PEER, _core.TX_UD_CONNECTING)


def test_packets_go_by_the_connection_once_it_is_established(desk: Desk) -> None:
    handle = desk.connect()
    assert desk.manager.requests[1:] == [Confirm(handle)]
    assert desk.fabric.pairs[0].life == ["init", "programmed"]
    assert desk.pump.said[-2:] == [
        ("add", 1, False),
        ("path", TO_PEER, _core.TX_RC, 1, 65520, 0),
    ]
    (shown,) = desk.driver.snapshot()
    assert (shown["state"], shown["mtu"], shown["tx_messages"], shown["retries"]) == (
        "live",
        65520,
        1,
        3,
    )


def test_long_packets_wait_for_the_connection_and_leave_by_it_in_order(desk: Desk) -> None:
    desk.publish()
    desk.want()
    packets = [bytes((number,)) * 60_000 for number in range(3)]
    for packet in packets:
        desk.hold(packet)
    desk.hold(b"no room")
    assert desk.counts["connection_wait_lost"] == 0  # it is short: there is room
    desk.hold(packets[0])
    assert desk.counts["connection_wait_lost"] == 1
    (connect,) = desk.manager.requests
    desk.deliver(Replied(connect.handle, ATTRIBUTES, THEIRS))
    desk.deliver(Established(connect.handle))
    at = desk.pump.said.index(("path", TO_PEER, _core.TX_RC, 1, 65520, 0))
    assert desk.pump.said[at + 1 :] == [("send", packet) for packet in (*packets, b"no room")]
    desk.hold(b"late")  # it was on its way when the connection came
    assert desk.pump.said[-1] == ("send", b"late")


def test_long_packets_get_their_answer_when_no_connection_comes_and_end_with_their_host(
    desk: Desk,
) -> None:
    desk.publish()
    desk.hold(b"before the pump's wish")
    desk.fabric.is_full = True
    desk.want()
    assert desk.pump.said[-2:] == [
        ("path", TO_PEER, _core.TX_UD),
        ("send", b"before the pump's wish"),
    ]
    desk.fabric.is_full = False
    desk.driver.withdrawn(NEXT_HOP)
    desk.publish()
    desk.want()
    desk.hold(b"waits")
    desk.driver.withdrawn(NEXT_HOP)
    assert desk.counts["connection_wait_lost"] == 1
    assert ("send", b"waits") not in desk.pump.said


def test_a_broken_connection_is_closed_when_the_pump_has_let_it_go(desk: Desk) -> None:
    desk.connect()
    desk.event(_core.EVENT_CONNECTION_BROKEN, connection=1)
    assert ("del", 1) in desk.pump.said
    assert desk.pump.said[-1] == ("path", TO_PEER, _core.TX_UD)
    assert desk.fabric.pairs[0].life == ["init", "programmed", "stopped"]
    desk.event(_core.EVENT_CONNECTION_GONE, connection=1)
    assert desk.fabric.pairs[0].life[-1] == "closed"
    assert desk.counts["connection_broken"] == 1


def test_a_message_of_a_connection_that_the_pump_drops_names_the_peer_once_a_minute(
    desk: Desk,
) -> None:
    desk.connect()
    desk.transitions.clear()
    for number in (1, 1, 2):
        desk.event(_core.EVENT_CONNECTION_DROPPED, connection=number, counter="rx_bad_superframe")
    (drop,) = desk.transitions
    assert (drop.topic, drop.subject, drop.after) == (
        Topic.DROP,
        str(replace(PEER, flags=0)),
        "rx_bad_superframe",
    )


def test_a_neighbour_that_goes_takes_its_connection_along(desk: Desk) -> None:
    handle = desk.connect()
    desk.driver.withdrawn(NEXT_HOP)
    assert ("path", TO_PEER, _core.TX_UD) in desk.pump.said
    assert Disconnect(handle) in desk.manager.requests
    assert desk.pump.said[-1] == ("del", 1)


def test_a_host_with_two_addresses_has_one_connection(desk: Desk) -> None:
    desk.connect()
    before = list(desk.pump.said)
    second = type(NEXT_HOP)("10.0.0.3")
    desk.publish(next_hop=second)
    assert desk.pump.said == before
    desk.driver.withdrawn(second)
    assert desk.pump.said == before


def test_without_a_queue_pair_packets_go_by_datagram(desk: Desk) -> None:
    desk.fabric.is_full = True
    desk.publish()
    desk.want()
    assert desk.manager.requests == []
    assert desk.pump.said[-1] == ("path", TO_PEER, _core.TX_UD)
    assert desk.counts["connection_no_qp"] == 1


def test_a_peer_s_request_is_accepted_for_receiving(desk: Desk) -> None:
    handle = Handle(Role.PASSIVE, 0)
    desk.deliver(Requested(handle, PEER.gid, 0, ATTRIBUTES, THEIRS))
    (accept,) = desk.manager.requests
    assert isinstance(accept, Accept)
    assert accept.qpn == desk.fabric.pairs[0].qpn
    assert desk.pump.said == [("add", 1, False)]  # and nothing is sent by it
    desk.deliver(Established(handle))
    assert desk.pump.said == [("add", 1, False)]


def test_a_link_that_goes_down_ends_every_connection(desk: Desk) -> None:
    handle = desk.connect()
    desk.driver.down()
    assert Disconnect(handle) in desk.manager.requests
    assert ("del", 1) in desk.pump.said
    assert desk.driver.snapshot() == []


def test_a_new_address_begins_anew(desk: Desk) -> None:
    desk.connect()
    desk.driver.rename(HwAddr(Qpn(0x48), Gid.parse("fe80::9"), RC_FLAG))
    assert desk.manager.subscribers == 1
    assert desk.driver.snapshot() == []


def test_events_that_were_on_their_way_to_the_former_address_are_ignored(desk: Desk) -> None:
    before = desk.manager.deliver
    desk.driver.rename(HwAddr(Qpn(0x48), Gid.parse("fe80::9"), RC_FLAG))
    before(Requested(Handle(Role.PASSIVE, 0), PEER.gid, 0, ATTRIBUTES, THEIRS))
    desk.loop.run_until_complete(asyncio.sleep(0))
    assert desk.manager.requests == []
    assert desk.driver.snapshot() == []


def test_events_after_the_end_are_ignored(desk: Desk) -> None:
    handle = desk.connect()
    desk.driver.close()
    before = len(desk.manager.requests)
    desk.deliver(Established(handle))
    assert len(desk.manager.requests) == before
    desk.manager.subscribers += 1  # the fixture closes once more
