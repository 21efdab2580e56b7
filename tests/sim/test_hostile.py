# SPDX-License-Identifier: BSD-2-Clause
"""Hostile frames of any kind: no input raises, no loop runs on, no table grows without bound."""

from __future__ import annotations

import random
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.limits import NEIGH_PENDING_TOTAL_BYTES, WAITING_OVERHEAD_BYTES
from ipoibu.proto.effects import Deliver, Effect, SendFrame, SendPacket
from ipoibu.proto.engine import FrameSource
from ipoibu.proto.neigh.neighbours import Neighbours
from ipoibu.wire import arp
from ipoibu.wire.encap import Encap, EtherType
from ipoibu.wire.mgid import solicited_node
from ipoibu.wire.ndisc import (
    ALL_NODES,
    Message,
    NeighbourAdvertisement,
    NeighbourSolicitation,
    Redirect,
    RouterAdvertisement,
    RouterSolicitation,
)
from tests.doubles.engine_bench import OUR_V4, OUR_V6, PEER, Bench
from tests.doubles.simulation import packet

ODD_V4 = [OUR_V4, *map(IPv4Address, ("0.0.0.0", "10.0.0.2", "224.0.0.1", "255.255.255.255"))]
ODD_V6 = [OUR_V6, *map(IPv6Address, ("::", "fe80::2", "ff02::1", "::1", "2001:db8::9"))]


@dataclass
class Attacker:
    """Makes mostly well-formed frames about the addresses of the test."""

    rng: random.Random
    host: HwAddr

    def hwaddr(self) -> HwAddr:
        rng = self.rng
        return rng.choice(
            [
                PEER,
                self.host,
                HwAddr(Qpn(rng.randrange(1 << 24)), Gid(rng.randbytes(16))),
                HwAddr(Qpn(rng.randrange(1 << 24)), PEER.gid, rng.randrange(256)),
            ]
        )

    def v4(self) -> IPv4Address:
        return self.rng.choice([*ODD_V4, IPv4Address(self.rng.randbytes(4))])

    def v6(self) -> IPv6Address:
        return self.rng.choice([*ODD_V6, IPv6Address(b"\xfe\x80" + self.rng.randbytes(14))])

    def nd(self) -> Message:
        rng, target = self.rng, self.v6()
        option = rng.choice([None, self.hwaddr()])
        group = rng.choice([ALL_NODES, solicited_node(target), OUR_V6])
        match rng.randrange(5):
            case 0:
                return NeighbourSolicitation(self.v6(), group, target, option)
            case 1:
                router, solicited, override = (rng.random() < 0.5 for _ in range(3))
                return NeighbourAdvertisement(
                    self.v6(),
                    group,
                    target,
                    option,
                    router=router,
                    solicited=solicited,
                    override=override,
                )
            case 2:
                return RouterSolicitation(self.v6(), group, option)
            case 3:
                return RouterAdvertisement(self.v6(), group, option, lifetime_s=rng.randrange(9))
            case _:
                return Redirect(self.v6(), group, target, self.v6(), option)

    def frame(self) -> bytes:
        rng = self.rng
        if rng.random() < 0.5:
            operation = rng.choice([1, 2, 0, 9, 0xFFFF])
            message = arp.Arp(operation, self.hwaddr(), self.v4(), self.hwaddr(), self.v4())
            frame = bytearray(Encap(EtherType.ARP, message.pack()).pack())
        else:
            frame = bytearray(Encap(EtherType.IPV6, self.nd().pack()).pack())
        for _ in range(rng.choice([0, 0, 0, 1, 3])):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        return bytes(frame[: rng.choice([len(frame)] * 4 + [rng.randrange(len(frame))])])

    def source(self) -> FrameSource:
        hwaddr = self.hwaddr()
        group = Gid.parse("ff12:401b:ffff::ffff:ffff")
        return FrameSource(
            hwaddr.qpn,
            self.rng.choice([None, hwaddr.gid]),
            self.rng.choice([None, group, self.host.gid]),
        )


@pytest.mark.parametrize("seed", range(10))
def test_a_flood_of_spoiled_frames_never_raises_and_never_multiplies(seed: int) -> None:
    bench = Bench(seed=seed)
    rng = random.Random(seed)
    attacker = Attacker(rng, bench.host.hwaddr)
    for _ in range(3000):
        effects = bench.host.engine.frame(bench.now, attacker.source(), attacker.frame())
        # at most one frame for one frame: no amplifier
        assert sum(isinstance(effect, SendFrame) for effect in effects) <= 1
        # to the local stack the message, and the end of a router or prefix that made room for it
        assert sum(isinstance(effect, Deliver) for effect in effects) <= 2
        # packets that waited for that neighbour may go out, and little else happens
        assert sum(not isinstance(effect, SendPacket) for effect in effects) <= 6
        bench.host.carry_out(effects)
        if rng.random() < 0.1:
            bench.run(rng.choice([0.01, 1.0, 10.0]))
        if rng.random() < 0.1:
            bench.send(rng.choice(["10.0.0.2", "fe80::2", "10.0.0.9"]))
    bench.run(10_000)
    assert bench.host.engine.neighbours(bench.now) == []


@given(st.binary(max_size=200), st.sampled_from(["", "08060000", "86dd0000"]))
@settings(max_examples=300)
def test_any_bytes_are_an_effect_and_never_an_exception(data: bytes, prefix: str) -> None:
    effects = ENGINE.frame(
        100.0, FrameSource(PEER.qpn, PEER.gid, None), bytes.fromhex(prefix) + data
    )
    assert len(effects) >= 1


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_any_packet_of_the_local_stack_is_an_effect_and_never_an_exception(data: bytes) -> None:
    for effects in (
        ENGINE.host_packet(100.0, data),
        ENGINE.unreachable(100.0, OUR_V4, data),
        ENGINE.too_big(100.0, OUR_V4, data, 1280),
        ENGINE.miss(100.0, IPv4Address("10.0.0.2"), data),
    ):
        assert isinstance(effects, list)


ENGINE = Bench().host.engine


def test_strangers_that_introduce_themselves_fill_the_table_to_its_cap_and_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    init = Neighbours.__init__
    monkeypatch.setattr(
        Neighbours, "__init__", lambda self, *a, **k: init(self, *a, **{**k, "cap": 500})
    )
    bench = Bench("10.0.0.1/8")
    bench.send("10.0.0.2")
    bench.arp(arp.Arp(arp.REPLY, PEER, IPv4Address("10.0.0.2"), bench.host.hwaddr, OUR_V4))
    bench.clear()
    for i in range(5000):
        stranger = HwAddr(Qpn(1000 + i), PEER.gid)
        bench.arp(arp.request(stranger, IPv4Address("10.1.0.0") + i, OUR_V4))
    assert len(bench.host.engine.neighbours(bench.now)) == 500
    assert len(bench.host.table) == 501  # and broadcast
    assert bench.host.counts["neigh_evicted"] == 4501
    assert bench.neighbour("10.0.0.2") is not None  # the known neighbour stays


def test_a_scan_of_the_subnet_by_our_own_host_holds_a_bounded_number_of_packets() -> None:
    bench = Bench("10.0.0.1/8")
    for i in range(3000):
        for _ in range(3):
            bench.host.send(packet("10.0.0.1", str(IPv4Address("10.1.0.0") + i), b"x" * 1000))
    infos = bench.host.engine.neighbours(bench.now)
    each_bytes = 20 + 1000 + WAITING_OVERHEAD_BYTES
    most = NEIGH_PENDING_TOTAL_BYTES // each_bytes
    assert most - 3 <= sum(info.pending for info in infos) <= most
    assert bench.host.counts["neigh_pending_total_full"] > 0
    bench.run(10)
    assert bench.host.engine.neighbours(bench.now) == []
    assert len(bench.host.delivered) < 1100  # ICMP errors, at their bounded rate


def test_confirmations_without_end_leave_one_timer() -> None:
    bench = Bench()
    bench.send("10.0.0.2")
    reply = arp.Arp(arp.REPLY, PEER, IPv4Address("10.0.0.2"), bench.host.hwaddr, OUR_V4)
    for _ in range(20_000):
        bench.arp(reply)
    effects: list[Effect] = bench.host.engine.timer(bench.now)
    assert effects == []
    timers = bench.host.engine._context.timers
    assert len(timers) == 1
    assert len(timers._heap) < 100


def test_a_fight_over_our_address_costs_one_frame_in_ten_seconds_and_few_log_lines() -> None:
    bench = Bench("10.0.0.1/24")
    for _ in range(10_000):
        bench.arp(arp.request(PEER, OUR_V4, OUR_V4), multicast=True)
        bench.run(0.01)
    assert len(bench.sent) == 10
    assert len(bench.host.log) == 13


def test_probing_for_a_neighbour_s_address_over_and_over_costs_one_question_a_second() -> None:
    bench = Bench("10.0.0.1/24")
    bench.send("10.0.0.2")
    reply = arp.Arp(arp.REPLY, PEER, IPv4Address("10.0.0.2"), bench.host.hwaddr, OUR_V4)
    bench.arp(reply)
    bench.clear()
    other = HwAddr(Qpn(0x999), PEER.gid)
    for _ in range(290):
        bench.arp(arp.request(other, IPv4Address(0), IPv4Address("10.0.0.2")), multicast=True)
        bench.run(0.01)
    assert len(bench.sent_arp()) == 3
