# SPDX-License-Identifier: BSD-2-Clause
"""The MACs that stand for hosts of the link."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import RC_FLAG, Gid, HwAddr, Mac, Qpn
from ipoibu.base.limits import ETHERNET_PUBLISH_S, NEIGH_EVICTED_AT_ONCE
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Count, DropNeighbour, Publish, SetNeighbour, Withdraw
from ipoibu.proto.ethernet.macs import Macs, after, hashed, mac_of_next_hop, next_hop_of
from tests.doubles.ethernet_bench import GUEST_IP, OUR, PEER, PEER_IP, Lan
from tests.doubles.simulation import TEMPLATE


def host(number: int) -> HwAddr:
    return HwAddr(Qpn(number), PEER.gid)


def table(cap: int = 100, taken: frozenset[Mac] = frozenset()) -> tuple[Macs, EngineContext]:
    context = EngineContext(replace(TEMPLATE, hwaddr=OUR), random.Random(1))
    return Macs(context, lambda mac: mac in taken, cap), context


@given(st.binary(min_size=20, max_size=20))
def test_every_host_has_a_local_unicast_mac_whatever_its_flags(raw: bytes) -> None:
    mac = hashed(HwAddr.unpack(raw))
    assert mac.raw[0] & 3 == 2
    assert mac == hashed(HwAddr.unpack(b"\xff" + raw[1:]))
    assert mac_of_next_hop(next_hop_of(mac)) == mac


def test_a_mac_is_the_same_after_a_restart() -> None:
    assert str(hashed(PEER)) == "a2:b6:11:1b:4e:61"
    assert table()[0].learn(0, PEER) == table()[0].learn(9, PEER) == hashed(PEER)


def test_an_address_is_no_key_of_a_mac() -> None:
    for ip in (IPv4Address("10.0.0.1"), IPv6Address("fe80::1"), IPv6Address("100::1:2:3:4")):
        assert mac_of_next_hop(ip) is None


def test_a_colliding_host_gets_the_next_mac() -> None:
    first = hashed(PEER)
    macs, context = table(taken=frozenset({first}))
    second = macs.learn(0, PEER)
    assert int.from_bytes(second.raw, "big") == int.from_bytes(first.raw, "big") + 1
    assert context.take() == [Count("ethernet_mac_collision"), SetNeighbour(second, PEER)]
    assert macs.learn(1, PEER) == second


def test_the_mac_after_the_last_one_is_the_first() -> None:
    assert after(Mac.parse("fe:ff:ff:ff:ff:ff")) == Mac.parse("02:00:00:00:00:00")
    assert after(Mac.parse("02:ff:ff:ff:ff:ff")) == Mac.parse("06:00:00:00:00:00")


def test_the_interfaces_mac_stays_when_its_queue_pair_changes() -> None:
    macs, context = table()
    before = macs.own
    context.hwaddr = HwAddr(Qpn(0x99), OUR.gid)
    assert macs.own == before
    assert before in macs
    assert before not in (hashed(OUR), hashed(context.hwaddr))


def test_a_host_that_takes_up_connected_mode_is_published_anew() -> None:
    macs, context = table()
    mac = macs.learn(0, PEER)
    macs.use(0, mac)
    context.take()
    macs.learn(1, replace(PEER, flags=RC_FLAG))
    [published] = context.take()
    assert isinstance(published, Publish)
    assert published.hwaddr == replace(PEER, flags=RC_FLAG)


def test_a_destination_that_is_heard_is_published_anew() -> None:
    """The SA's table of paths may have been full when it was new."""
    macs, context = table()
    mac = macs.learn(0, PEER)
    macs.use(0, mac)
    context.take()
    macs.learn(ETHERNET_PUBLISH_S - 1, PEER)
    assert not context.take()
    macs.learn(ETHERNET_PUBLISH_S, PEER)
    macs.learn(ETHERNET_PUBLISH_S + 1, PEER)
    assert [type(it) for it in context.take()] == [Publish]


def test_strangers_make_room_first_then_the_longest_silent() -> None:
    macs, context = table(cap=3)
    used = [macs.learn(number, host(number)) for number in (1, 2)]
    stranger = macs.learn(3, host(3))
    for mac in used:
        assert macs.use(0, mac) == next_hop_of(mac)
    macs.learn(4, host(1))
    context.take()
    fresh = macs.learn(5, host(4))
    assert context.take() == [
        Count("ethernet_neighbour_evicted"),
        DropNeighbour(stranger, host(3)),
        SetNeighbour(fresh, host(4)),
    ]
    macs.use(5, fresh)
    context.take()
    macs.learn(6, host(5))
    evicted = context.take()
    assert Withdraw(next_hop_of(used[1])) in evicted, "host 1 was heard later"
    assert DropNeighbour(used[1], host(2)) in evicted
    assert len(macs) == 3
    assert [it.mac for it in macs.snapshot(7)][:2] == [used[0], fresh]


def test_of_two_strangers_the_longest_silent_makes_room() -> None:
    macs, context = table(cap=2)
    first, second = (macs.learn(number, host(number)) for number in (1, 2))
    macs.learn(3, host(1))
    context.take()
    macs.learn(4, host(3))
    assert DropNeighbour(second, host(2)) in context.take()
    assert first in macs


def test_a_full_pump_gets_room() -> None:
    macs, context = table()
    all_macs = [macs.learn(number, host(number)) for number in range(1, 40)]
    for mac in all_macs:
        macs.use(0, mac)
    context.take()
    macs.note_refused(all_macs[-1], errno.ENOSPC)
    effects = context.take()
    assert effects.count(Count("ethernet_neighbour_evicted")) == NEIGH_EVICTED_AT_ONCE
    gone = [it for it in effects if isinstance(it, Withdraw)]
    assert gone[0].next_hop == next_hop_of(all_macs[-1])
    assert len(gone) == NEIGH_EVICTED_AT_ONCE + 1
    assert macs.use(0, all_macs[-1]) is not None, "the next packet tries again"


def test_the_engine_hears_of_a_refusal() -> None:
    lan = Lan()
    mac = lan.meet()
    lan.asks(GUEST_IP)
    lan.guest_packet(mac, GUEST_IP, PEER_IP)
    lan.carry_out(lan.engine.note_neigh_refused(lan.now, next_hop_of(mac), errno.ENOMEM))
    assert next_hop_of(mac) not in lan.table
    lan.guest_packet(mac, GUEST_IP, PEER_IP)
    assert next_hop_of(mac) in lan.table
    lan.carry_out(lan.engine.note_neigh_refused(lan.now, IPv6Address("ff02::1"), errno.ENOSPC))


def test_a_link_that_goes_down_takes_the_destinations_and_keeps_the_macs() -> None:
    lan = Lan()
    mac = lan.meet()
    lan.asks(GUEST_IP)
    lan.guest_packet(mac, GUEST_IP, PEER_IP)
    lan.carry_out(lan.engine.port_event(lan.now, "down"))
    assert next_hop_of(mac) not in lan.table
    assert [it.is_used for it in lan.ethernet.neighbours(lan.now)] == [False]
    lan.carry_out(lan.engine.port_event(lan.now, "up"))
    lan.guest_packet(mac, GUEST_IP, PEER_IP)
    assert next_hop_of(mac) in lan.table
    [info] = lan.ethernet.neighbours(lan.now)
    assert (info.mac, info.hwaddr, info.is_used) == (mac, PEER, True)
    assert Gid.parse("fe80::2:c903:0:7777") == info.hwaddr.gid
