# SPDX-License-Identifier: BSD-2-Clause
"""Neighbours that an administrator sets, removes and flushes."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address

import pytest

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, Qpn
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import NEIGH_STALE_KEEP_S
from ipoibu.proto.effects import NeighAction, SendPacket
from ipoibu.proto.neigh import neighbours as neigh
from ipoibu.proto.neigh.nud import State
from ipoibu.wire import arp
from tests.doubles.engine_bench import OUR_V4, PEER, PEER_AGAIN, PEER_V4, Bench

OTHER_V4 = IPv4Address("10.0.0.3")


def put(
    bench: Bench, hwaddr: HwAddr = PEER, ip: IPv4Address = PEER_V4, *, replaces: bool = False
) -> None:
    bench.host.carry_out(bench.host.engine.permanent.set(bench.now, ip, hwaddr, replaces))


def entry(bench: Bench, ip: IPv4Address = PEER_V4) -> tuple[State, HwAddr | None] | None:
    info = bench.neighbour(str(ip))
    return (info.state, info.hwaddr) if info is not None else None


def learn(bench: Bench, ip: IPv4Address = PEER_V4, hwaddr: HwAddr = PEER) -> None:
    bench.arp(arp.request(hwaddr, ip, OUR_V4), multicast=True)


def flush(bench: Bench, *, permanent: bool = False) -> None:
    bench.host.carry_out(bench.host.engine.permanent.flush(bench.now, permanent))


def test_a_permanent_neighbour_carries_packets_without_a_question() -> None:
    bench = Bench("10.0.0.1/24")
    put(bench)
    bench.send(str(PEER_V4))
    bench.run(NEIGH_STALE_KEEP_S + 100)
    assert entry(bench) == (State.PERMANENT, PEER)
    assert bench.action(str(PEER_V4)) is NeighAction.SEND
    assert len(bench.sent) == 1


def test_no_message_changes_a_permanent_neighbour() -> None:
    """Nor a request, a reply or a probe of another host."""
    bench = Bench("10.0.0.1/24")
    put(bench)
    for sender in (PEER_V4, IPv4Address(0)):
        bench.arp(arp.request(PEER_AGAIN, sender, OUR_V4), multicast=True)
        bench.arp(arp.request(PEER_AGAIN, sender, PEER_V4), multicast=True)
    bench.arp(arp.request(bench.host.hwaddr, OUR_V4, PEER_V4).answer(PEER_AGAIN))
    bench.run(10)
    assert entry(bench) == (State.PERMANENT, PEER)


def test_packets_that_wait_go_when_an_administrator_sets_the_neighbour() -> None:
    bench = Bench("10.0.0.1/24")
    bench.send(str(PEER_V4), b"waiting")
    bench.clear()
    put(bench, replaces=True)
    assert [effect for effect in bench.host.effects if isinstance(effect, SendPacket)]
    assert bench.host.counts == {}


def test_only_replace_changes_an_entry_and_it_is_no_news_of_a_peer() -> None:
    bench = Bench("10.0.0.1/24")
    learn(bench)
    with pytest.raises(UsageError, match=r"10\.0\.0\.2 has an entry \(stale\): replace it"):
        put(bench, PEER_AGAIN)
    assert entry(bench) == (State.STALE, PEER)
    put(bench, PEER_AGAIN, replaces=True)
    put(bench, PEER, replaces=True)
    assert entry(bench) == (State.PERMANENT, PEER)
    assert bench.host.counts["neigh_moved"] == 0


def test_a_removed_neighbour_is_asked_for_again() -> None:
    bench = Bench("10.0.0.1/24")
    put(bench)
    bench.host.carry_out(bench.host.engine.permanent.remove(bench.now, PEER_V4))
    assert entry(bench) is None
    assert bench.action(str(PEER_V4)) is None
    bench.send(str(PEER_V4))
    assert entry(bench) == (State.INCOMPLETE, None)
    with pytest.raises(UsageError, match=r"10\.0\.0\.3 has no entry"):
        bench.host.engine.permanent.remove(bench.now, OTHER_V4)


def test_a_flush_keeps_the_permanent_neighbours_unless_told_otherwise() -> None:
    bench = Bench("10.0.0.1/24")
    put(bench)
    learn(bench, OTHER_V4, PEER_AGAIN)
    flush(bench)
    assert (entry(bench), entry(bench, OTHER_V4)) == ((State.PERMANENT, PEER), None)
    flush(bench, permanent=True)
    assert entry(bench) is None


def test_a_permanent_neighbour_outlives_a_link_that_goes_down() -> None:
    bench = Bench("10.0.0.1/24")
    put(bench)
    engine = bench.host.engine
    bench.host.carry_out(engine.port_event(bench.now, "down"))
    assert bench.action(str(PEER_V4)) is None
    put(bench, PEER, OTHER_V4)
    assert bench.action(str(OTHER_V4)) is None
    bench.host.carry_out(engine.port_event(bench.now, "up"))
    bench.run(5)
    bench.clear()
    for ip in (PEER_V4, OTHER_V4):
        bench.send(str(ip))
        assert bench.action(str(ip)) is NeighAction.SEND
    assert len(bench.sent) == 2
    engine.note_wanted(bench.now, PEER_V4)
    assert bench.action(str(PEER_V4)) is NeighAction.SEND


def test_a_wanted_next_hop_with_a_permanent_entry_is_published_again() -> None:
    bench = Bench("10.0.0.1/24")
    put(bench)
    for event in ("down", "up"):
        bench.host.carry_out(bench.host.engine.port_event(bench.now, event))
    bench.run(5)
    bench.clear()
    bench.host.carry_out(bench.host.engine.note_wanted(bench.now, PEER_V4))
    assert bench.action(str(PEER_V4)) is NeighAction.SEND
    assert not any(isinstance(effect, SendPacket) for effect in bench.host.effects)


@pytest.mark.parametrize(
    "ip", ["10.0.0.1", "10.0.0.255", "255.255.255.255", "224.0.0.5", "127.0.0.1", "0.0.0.0"]
)
def test_an_address_of_no_other_host_is_refused(ip: str) -> None:
    bench = Bench("10.0.0.1/24")
    with pytest.raises(UsageError, match="is not the address of another host"):
        bench.host.engine.permanent.set(bench.now, ip_address(ip), PEER, replaces=True)


def test_a_hardware_address_of_no_other_host_is_refused() -> None:
    bench = Bench("10.0.0.1/24")
    group = HwAddr(Qpn(MULTICAST_QPN), Gid.parse("ff12:401b:ffff::ffff:ffff"))
    for hwaddr in (group, bench.host.hwaddr):
        with pytest.raises(UsageError, match="is not the hardware address of another host"):
            put(bench, hwaddr)


def test_there_are_so_many_permanent_neighbours_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neigh, "NEIGH_PERMANENT_MAX", 1)
    bench = Bench("10.0.0.1/24")
    put(bench)
    put(bench, PEER_AGAIN, replaces=True)
    with pytest.raises(UsageError, match="there are 1 permanent entries"):
        put(bench, PEER, OTHER_V4)
    bench.host.carry_out(bench.host.engine.permanent.remove(bench.now, PEER_V4))
    put(bench, PEER, OTHER_V4)
