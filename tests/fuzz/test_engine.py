# SPDX-License-Identifier: BSD-2-Clause
"""Living engines under drawn actions: frames of any kind, packets, addresses, groups and time."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, ip_address, ip_interface
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.limits import NEIGH_PENDING_TOTAL_BYTES, WAITING_OVERHEAD_BYTES
from ipoibu.proto.engine import FrameSource
from ipoibu.wire import arp, ndisc
from ipoibu.wire.encap import Encap, EtherType
from tests.doubles.engine_bench import OUR_V4, PEER, Bench
from tests.fuzz.test_decoders import GOLDEN

Action = Callable[[Bench], None]
BROADCAST: Final = Gid.parse("ff12:401b:ffff::ffff:ffff")
ADDRESSES: Final = ["10.0.0.1", "10.0.0.2", "10.0.0.9", "fe80::1", "fe80::2", "fe80::9"]

hwaddrs = st.sampled_from(
    [PEER, HwAddr(Qpn(0x778), PEER.gid), HwAddr(Qpn(0x999), Gid.parse("fe80::9"))]
)
v4s = st.sampled_from([ip_address(it) for it in ("10.0.0.1", "10.0.0.2", "10.0.0.9", "0.0.0.0")])
v6s = st.sampled_from([ip_address(it) for it in ("fe80::1", "fe80::2", "fe80::9", "ff02::1")])
sources = st.builds(
    FrameSource,
    st.integers(0, 0xFFFFFF).map(Qpn) | st.just(PEER.qpn),
    st.sampled_from([None, PEER.gid, Gid.parse("fe80::9")]),
    st.sampled_from([None, BROADCAST]),
)


def _spoil(frame: bytes, spots: list[tuple[int, int]], length: int) -> bytes:
    spoiled = bytearray(frame)
    for at, value in spots:
        if at < len(spoiled):
            spoiled[at] = value
    return bytes(spoiled[:length] if length else spoiled)


arp_frames = st.builds(arp.Arp, st.sampled_from([1, 2, 9]), hwaddrs, v4s, hwaddrs, v4s).map(
    lambda message: Encap(EtherType.ARP, message.pack()).pack()
)
nd_frames = st.builds(ndisc.NeighbourSolicitation, v6s, v6s, v6s, st.none() | hwaddrs) | st.builds(
    ndisc.NeighbourAdvertisement,
    v6s,
    v6s,
    v6s,
    st.none() | hwaddrs,
    router=st.booleans(),
    solicited=st.booleans(),
    override=st.booleans(),
)
golden_frames = st.builds(
    lambda kind, raw: Encap(kind, raw).pack(), st.sampled_from(EtherType), st.sampled_from(GOLDEN)
)
frames = st.builds(
    _spoil,
    arp_frames | nd_frames.map(lambda it: Encap(EtherType.IPV6, it.pack()).pack()) | golden_frames,
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=3),
    st.just(0) | st.integers(1, 90),
) | st.binary(max_size=120)


def _arrive(source: FrameSource, frame: bytes) -> Action:
    return lambda bench: bench.host.carry_out(bench.host.engine.frame(bench.now, source, frame))


def _local(raw: bytes) -> Action:
    """What the pump passes up of the host's own packets."""

    def act(bench: Bench) -> None:
        engine = bench.host.engine
        for effects in (
            engine.host_packet(bench.now, raw),
            engine.unreachable(bench.now, OUR_V4, raw),
            engine.too_big(bench.now, OUR_V4, raw, 1280),
        ):
            bench.host.carry_out(effects)

    return act


def _address(text: str, present: bool) -> Action:
    interface = ip_interface(f"{text}/{24 if '.' in text else 64}")

    def act(bench: Bench) -> None:
        own = {entry.address for entry in bench.host.engine.addresses()}
        if present and interface.ip not in own:
            bench.host.add(interface)
        elif not present and interface.ip in own:
            bench.host.remove(interface)

    return act


def _send(destination: str) -> Action:
    return lambda bench: bench.send(destination)


def _run(seconds: float) -> Action:
    return lambda bench: bench.run(seconds)


actions = st.one_of(
    st.builds(_arrive, sources, frames),
    st.builds(_arrive, sources, frames),
    st.builds(_local, st.sampled_from(GOLDEN) | st.binary(max_size=100)),
    st.builds(_address, st.sampled_from(["10.0.0.7", "fe80::7", "10.0.0.1"]), st.booleans()),
    st.builds(_send, st.sampled_from(["10.0.0.2", "10.0.0.9", "fe80::2", "fe80::9"])),
    st.builds(_run, st.sampled_from([0.01, 1.0, 10.0, 100.0])),
)


def _check(bench: Bench) -> None:
    host: Any = bench.host
    infos = host.engine.neighbours(bench.now)
    waiting = sum(info.pending for info in infos)
    assert waiting * WAITING_OVERHEAD_BYTES <= NEIGH_PENDING_TOTAL_BYTES
    deadline = host.engine.deadline()
    assert deadline is None or deadline > bench.now - 1
    assert len(host.delivered) < 2000


@settings(max_examples=60)
@given(st.lists(actions, max_size=40))
def test_a_living_engine_survives_anything_in_any_order(steps: list[Action]) -> None:
    bench = Bench()
    for act in steps:
        act(bench)
        _check(bench)
    bench.run(10_000)
    assert bench.host.engine.neighbours(bench.now) == []


@settings(max_examples=60)
@given(st.lists(st.builds(_arrive, sources, frames), max_size=30))
def test_an_engine_answers_an_honest_peer_after_any_frames(steps: list[Action]) -> None:
    """Whatever arrived before, an ARP request for our address gets a reply."""
    bench = Bench()
    for act in steps:
        act(bench)
    bench.run(100)
    bench.clear()
    honest = HwAddr(Qpn(0x1234), Gid.parse("fe80::1234"))
    bench.arp(arp.request(honest, IPv4Address("10.0.0.200"), OUR_V4), sender=honest)
    assert any(
        message.operation == arp.REPLY and message.target_hwaddr.gid == honest.gid
        for _, message in bench.sent_arp()
    )
