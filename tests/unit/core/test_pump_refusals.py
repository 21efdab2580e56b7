# SPDX-License-Identifier: BSD-2-Clause
"""The pump refuses a neighbour because it has no room, and the engine makes room for it."""

from __future__ import annotations

import errno
import random
from ipaddress import IPv4Address

import pytest

from ipoibu import _core
from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.ib import Destination
from ipoibu.base.limits import (
    ADDRESS_HANDLES_MAX,
    GROUPS_MAX,
    NEIGH_EVICTED_AT_ONCE,
    NEIGH_MAX,
    NEIGH_REFUSALS_MAX,
    PEER_LOGS_BURST,
)
from ipoibu.base.route import address_of, key_of
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Count, Log, NeighAction, Publish, Withdraw
from ipoibu.proto.neigh.neighbours import Neighbours
from tests.doubles.simulation import TEMPLATE

MTU = 2044
HANDLES = 64


class Silent:
    """A resolver that sends no messages."""

    def solicit(self, *_: object) -> None: ...

    def probe(self, *_: object) -> None: ...

    def announce(self, *_: object) -> None: ...


def v4(i: int) -> IPv4Address:
    return IPv4Address("10.0.0.0") + i


def peer(i: int) -> HwAddr:
    return HwAddr(Qpn(2 + i), Gid(b"\xfe\x80" + i.to_bytes(14, "big")))


class Host:
    """The neighbour cache over a pump that has `ah_max` address handles."""

    def __init__(
        self, cap: int = NEIGH_MAX, ah_max: int = HANDLES, neigh_max: int = NEIGH_MAX
    ) -> None:
        self.port = _core.MemoryPort(_core.MemorySwitch(1), Gid.parse("fe80::a").raw)
        self.pump = _core.Pump(
            self.port, _core.QueueDevice(), mtu=MTU, ah_max=ah_max, neigh_max=neigh_max
        )
        self.context = EngineContext(TEMPLATE, random.Random(1))
        resolvers = {4: Silent(), 6: Silent()}
        self.neighbours = Neighbours(self.context, resolvers, lambda *_: None, cap)
        self.counts: list[str] = []
        self.log: list[str] = []

    def run(self) -> None:
        """Carry the effects out, and give the engine the pump's events, until there are none."""
        while effects := self.context.take():
            for effect in effects:
                match effect:
                    case Publish(next_hop, action, destination, mtu_bytes):
                        self.pump.neigh_set(key_of(next_hop), action, destination, mtu_bytes)
                    case Withdraw(next_hop):
                        self.pump.neigh_del(key_of(next_hop))
                    case Count(reason):
                        self.counts.append(reason)
                    case Log(_, text):
                        self.log.append(text)
            while self.pump.step():
                pass
            for event in self.pump.events():
                assert event.type == _core.EVENT_NEIGH_REFUSED
                self.neighbours.note_refused(0.0, address_of(event.next_hop), event.error)

    def introduce(self, i: int) -> None:
        self.neighbours.note_introduced(0.0, v4(i), peer(i))
        self.run()

    def confirm(self, i: int) -> None:
        self.neighbours.miss(0.0, v4(i), b"")
        self.neighbours.note_advertised(0.0, v4(i), peer(i), solicited=True, override=True)
        self.run()

    def known(self) -> set[int]:
        return {int(info.ip) - int(v4(0)) for info in self.neighbours.snapshot(0.0)}


def test_a_refusal_names_the_next_hop_and_the_error() -> None:
    host = Host()
    for i in range(HANDLES + 1):
        to = Destination(peer(i).gid, peer(i).qpn)
        host.pump.neigh_set(key_of(v4(i)), NeighAction.SEND, to, MTU)
        host.pump.step()
    [event] = host.pump.events()
    assert (event.type, event.error) == (_core.EVENT_NEIGH_REFUSED, errno.ENOSPC)
    assert address_of(event.next_hop) == v4(HANDLES)


def test_strangers_do_not_keep_an_honest_host_out() -> None:
    host = Host()
    for i in range(10):
        host.confirm(i)
    for i in range(100, 1100):
        host.introduce(i)
    host.confirm(50)
    assert set(range(10)) | {50} <= host.known()
    assert len(host.known()) <= HANDLES
    assert "neigh_refused" in host.counts
    assert 0 < len(host.log) <= PEER_LOGS_BURST
    assert "no room in the data path for 10.0.0.154, of 65 neighbours" in host.log[0]


@pytest.mark.parametrize("cap", [1024, pytest.param(NEIGH_MAX, marks=pytest.mark.nightly)])
def test_a_table_full_of_strangers_takes_an_honest_host_and_logs_little(cap: int) -> None:
    host = Host(cap, ah_max=ADDRESS_HANDLES_MAX, neigh_max=NEIGH_MAX + GROUPS_MAX)
    host.confirm(0)
    for i in range(1, cap + 100):
        host.neighbours.note_introduced(0.0, v4(i), peer(i))
        if i % 256 == 0:
            host.run()
    honest = cap + 100
    host.introduce(honest)
    host.confirm(honest)
    assert {0, honest} <= host.known()
    assert len(host.neighbours) == cap
    assert host.counts == ["neigh_evicted"] * 101
    assert len(host.log) == PEER_LOGS_BURST
    assert host.log[0] == f"no room for a neighbour beside {cap} others: forgot 10.0.0.1"


def test_where_all_are_known_the_oldest_makes_room() -> None:
    host = Host()
    for i in range(HANDLES + 1):
        host.confirm(i)
    assert host.known() == set(range(1, HANDLES + 1))


def test_an_address_that_the_device_refuses_costs_only_strangers() -> None:
    host = Host()
    for i in range(5):
        host.confirm(i)
    for i in range(10, 20):
        host.introduce(i)
    host.neighbours.note_introduced(0.0, v4(50), peer(50))
    for _ in range(NEIGH_REFUSALS_MAX + 1):
        host.neighbours.note_refused(0.0, v4(50), errno.EINVAL)
    assert host.known() == set(range(5))
    assert (
        host.counts.count("neigh_evicted") + host.context.take().count(Count("neigh_evicted"))
        <= NEIGH_EVICTED_AT_ONCE
    )


def test_a_refusal_about_a_neighbour_that_is_gone_is_only_counted() -> None:
    host = Host()
    host.neighbours.note_refused(0.0, v4(1), errno.ENOSPC)
    host.run()
    assert host.counts == ["neigh_refused"]
