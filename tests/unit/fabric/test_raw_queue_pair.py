# SPDX-License-Identifier: BSD-2-Clause
"""Single datagrams without a pump, over the in-process fabric and over those that wrap it."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator

import pytest

from ipoibu._core import MemoryPort as NativePort
from ipoibu._core import RailsLink, RawFace, UnicastLink
from ipoibu.base.addr import MULTICAST_QPN, Gid, PKey, Qpn
from ipoibu.base.ib import Destination, PartitionParams
from ipoibu.base.limits import RAW_RECEIVES, RAW_SENDS
from ipoibu.fabric.faults import FaultSpec, FaultyUd
from ipoibu.fabric.memory import MemoryPort, MemorySwitch
from ipoibu.fabric.raw_queue_pair import RawDatagram, RawQueuePair, wait
from ipoibu.wire import mgid

PARAMS = PartitionParams(PKey(0xFFFF), 0x0B1B, 2048)
GROUP = mgid.broadcast(PARAMS.pkey)
FRAME = bytes.fromhex("08000000") + b"hello"
GIDS = [Gid.parse(f"fe80::{number}") for number in (1, 2)]


@pytest.fixture
def pair() -> Iterator[tuple[RawQueuePair, RawQueuePair]]:
    switch = MemorySwitch(7)
    first, second = (RawQueuePair(MemoryPort(switch, gid).open_ud(PARAMS)) for gid in GIDS)
    with first, second:
        yield first, second


def to(queue_pair: RawQueuePair, gid: Gid = GIDS[1]) -> Destination:
    return PARAMS.destination(gid, queue_pair.qpn)


def test_a_datagram_arrives_with_its_senders_number_and_gids(
    pair: tuple[RawQueuePair, RawQueuePair],
) -> None:
    first, second = pair
    first.send(to(second), FRAME)
    assert second.receive() == RawDatagram(FRAME, first.qpn, *GIDS)
    assert second.receive() is None


def test_a_group_reaches_those_that_attached_it(pair: tuple[RawQueuePair, RawQueuePair]) -> None:
    first, second = pair
    first.send(PARAMS.destination(GROUP, Qpn(MULTICAST_QPN)), FRAME)
    assert second.receive() is None
    second.fabric.attach(GROUP)
    first.send(PARAMS.destination(GROUP, Qpn(MULTICAST_QPN)), FRAME)
    assert second.receive() == RawDatagram(FRAME, first.qpn, GIDS[0], GROUP)


def test_a_datagram_without_a_grh_has_no_gids() -> None:
    """E4."""
    switch = MemorySwitch()
    ports = [NativePort(switch, gid.raw, bare_unicast=True) for gid in GIDS]
    first, second = (RawFace(port, sends=4, receives=4) for port in ports)
    assert first.send(PARAMS.destination(GIDS[1], Qpn(ports[1].qpn)), FRAME)
    assert second.receive() == (FRAME, ports[0].qpn, None)


def test_a_datagram_over_the_mtu_is_refused(pair: tuple[RawQueuePair, RawQueuePair]) -> None:
    first, second = pair
    longest = bytes(first.mtu_bytes)
    first.send(to(second), longest)
    got = second.receive()
    assert got is not None
    assert got.frame == longest
    with pytest.raises(OSError, match="datagram") as caught:
        first.send(to(second), longest + b"x")
    assert caught.value.errno == errno.EMSGSIZE


def test_more_datagrams_pass_than_there_are_frames(pair: tuple[RawQueuePair, RawQueuePair]) -> None:
    first, second = pair
    for number in range(4 * RAW_RECEIVES):
        frame = FRAME + number.to_bytes(2, "big")
        first.send(to(second), frame)
        assert second.receive() == RawDatagram(frame, first.qpn, *GIDS)
    assert first.fabric.counters()["tx_packets"] == 4 * RAW_RECEIVES


def test_a_flood_beyond_the_posted_receives_is_the_fabrics_loss(
    pair: tuple[RawQueuePair, RawQueuePair],
) -> None:
    first, second = pair
    for _ in range(RAW_RECEIVES + 10):
        first.send(to(second), FRAME)
    received = 0
    while second.receive() is not None:
        received += 1
    assert received == RAW_RECEIVES
    assert second.fabric.counters()["rx_no_buffer"] == 10


def test_a_broken_queue_pair_recovers_with_all_its_frames(
    pair: tuple[RawQueuePair, RawQueuePair],
) -> None:
    first, second = pair
    for _ in range(3):
        for queue_pair in pair:
            queue_pair.fabric.break_queue_pair()  # type: ignore[attr-defined]
        for queue_pair in pair:  # the flushed receives come back first
            while queue_pair.receive() is not None:
                pass
        for _ in range(RAW_RECEIVES):
            first.send(to(second), FRAME)
        for _ in range(RAW_RECEIVES):
            assert second.receive() == RawDatagram(FRAME, first.qpn, *GIDS)


def test_waiting_ends_with_an_arrival_or_in_time(pair: tuple[RawQueuePair, RawQueuePair]) -> None:
    first, second = pair
    wait([first, second], time.monotonic())  # at once
    first.send(to(second), FRAME)
    wait([first, second], time.monotonic() + 60)
    assert second.receive() is not None


def test_a_closed_queue_pair_refuses_and_closes_again(
    pair: tuple[RawQueuePair, RawQueuePair],
) -> None:
    first, second = pair
    destination = to(second)
    for _ in range(2):
        first.close()
    with pytest.raises(ValueError, match="closed"):
        first.send(destination, FRAME)


def test_an_impossible_device_closes_the_fabric() -> None:
    fabric = MemoryPort(MemorySwitch(), GIDS[0]).open_ud(PARAMS)
    with pytest.raises(OSError, match="connections"):  # the in-process fabric has none
        RawQueuePair(fabric, has_connections=True)


@pytest.mark.parametrize("kind", ["faulty", "unicast", "rails"])
def test_a_fabric_over_another_serves_as_well(kind: str) -> None:
    switch = MemorySwitch()
    inner, other = (NativePort(switch, gid.raw) for gid in GIDS)
    broadcast = PARAMS.destination(GROUP, Qpn(MULTICAST_QPN))
    outer: FaultyUd | UnicastLink | RailsLink
    if kind == "faulty":
        outer = FaultyUd(MemoryPort(switch, Gid.parse("fe80::3")).open_ud(PARAMS), FaultSpec())
    elif kind == "unicast":
        outer = UnicastLink(inner, broadcast=GROUP.raw, peers_max=4)
        outer.add(1, GIDS[1].raw, other.qpn)
        outer.groups(1, [GROUP.raw])
    else:
        outer = RailsLink([inner], up=1, active=0, peers_max=4, broadcast=broadcast)
    first = RawFace(outer, sends=RAW_SENDS, receives=8)
    second = RawFace(other, sends=RAW_SENDS, receives=8)
    for _ in range(3 * RAW_SENDS):
        assert first.send(PARAMS.destination(GIDS[1], Qpn(other.qpn)), FRAME)
        got = second.receive()
        assert got is not None
        assert got[0] == FRAME
