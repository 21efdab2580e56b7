# SPDX-License-Identifier: BSD-2-Clause
"""The neighbour cache of a whole engine, state by state, for ARP and ND alike."""

from __future__ import annotations

import random
from collections import Counter
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.limits import (
    MAX_MULTICAST_SOLICIT,
    NEIGH_FAILED_HOLD_S,
    NEIGH_PENDING_BYTES,
    NEIGH_PENDING_TOTAL_BYTES,
    NEIGH_STALE_KEEP_S,
    NEIGH_SUSPECTED_AT_ONCE,
    RESOLUTION_REPEATS_BURST,
    RESOLUTION_REPEATS_PER_S,
    WAITING_OVERHEAD_BYTES,
)
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Count, Forward, NeighAction, Publish, SendPacket, Withdraw
from ipoibu.proto.neigh.neighbours import Neighbours
from ipoibu.proto.neigh.nud import State
from ipoibu.wire import arp
from ipoibu.wire.ndisc import ALL_NODES, NeighbourAdvertisement, NeighbourSolicitation
from tests.doubles.engine_bench import (
    OUR_V4,
    OUR_V6,
    PEER,
    PEER_AGAIN,
    PEER_V4,
    PEER_V6,
    Bench,
)
from tests.doubles.simulation import TEMPLATE, packet

FULL_QUEUE = NEIGH_PENDING_BYTES // (24 + WAITING_OVERHEAD_BYTES)  # of what `Bench.send` sends
ACTION_OF = {
    State.INCOMPLETE: None,
    State.REACHABLE: NeighAction.SEND,
    State.STALE: NeighAction.NOTIFY,
    State.DELAY: NeighAction.NOTIFY,
    State.PROBE: NeighAction.NOTIFY,
    State.FAILED: NeighAction.UNREACHABLE,
    State.PERMANENT: NeighAction.SEND,
}


def advertise(
    bench: Bench, *, solicited: bool, override: bool, lladdr: HwAddr | None = PEER
) -> None:
    """The peer's neighbour advertisement; unsolicited ones go to all nodes."""
    message = NeighbourAdvertisement(
        PEER_V6,
        OUR_V6 if solicited else ALL_NODES,
        PEER_V6,
        lladdr,
        solicited=solicited,
        override=override,
    )
    bench.nd(message, multicast=not solicited)


def solicit(bench: Bench, lladdr: HwAddr = PEER) -> None:
    """The peer solicits us, and gives its own address."""
    bench.nd(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6, lladdr))


def v6_in(state: State) -> Bench:
    """A bench whose entry for the IPv6 peer is in `state`, by the fewest inputs."""
    bench = Bench()
    match state:
        case State.INCOMPLETE:
            bench.send(str(PEER_V6))
        case State.REACHABLE:
            bench.send(str(PEER_V6))
            advertise(bench, solicited=True, override=True)
        case State.STALE | State.DELAY | State.PROBE:
            solicit(bench)
            if state is not State.STALE:
                bench.send(str(PEER_V6))
            if state is State.PROBE:
                bench.run(5.1)
        case State.FAILED:
            bench.send(str(PEER_V6))
            bench.run(3.1)
        case State.PERMANENT:
            engine = bench.host.engine
            bench.host.carry_out(engine.permanent.set(bench.now, PEER_V6, PEER, replaces=False))
        case State.NONE:
            pass
    assert state_of(bench) is state
    bench.clear()
    return bench


def state_of(bench: Bench, ip: str = str(PEER_V6)) -> State:
    info = bench.neighbour(ip)
    return info.state if info else State.NONE


def address_of(bench: Bench) -> HwAddr | None:
    info = bench.neighbour(str(PEER_V6))
    return info.hwaddr if info else None


N, I, R, S, D, P = (  # noqa: E741
    State.NONE,
    State.INCOMPLETE,
    State.REACHABLE,
    State.STALE,
    State.DELAY,
    State.PROBE,
)


def test_a_wanted_next_hop_is_resolved_while_no_packet_waits() -> None:
    """The pump sends by another next hop meanwhile, and reports this one once."""
    bench = Bench()

    def want(ip: IPv6Address) -> None:
        bench.host.carry_out(bench.host.engine.note_wanted(bench.now, ip))

    want(PEER_V6)
    assert state_of(bench) is State.INCOMPLETE
    assert bench.action(str(PEER_V6)) is NeighAction.HOLD
    bench.clear()
    want(PEER_V6)
    assert bench.host.effects == []
    advertise(bench, solicited=True, override=True)
    assert state_of(bench) is State.REACHABLE
    assert bench.action(str(PEER_V6)) is NeighAction.SEND
    assert not any(isinstance(effect, SendPacket) for effect in bench.host.effects)
    want(OUR_V6)
    assert state_of(bench, str(OUR_V6)) is State.NONE


# RFC 4861 Appendix C, row by row: (states, event, new state or None for "unchanged", new address).
# NA(solicited, override, address): "same" and "different" compare with the cached one.
SAME, OTHER = PEER, PEER_AGAIN
APPENDIX_C: list[tuple[tuple[State, ...], tuple[bool, bool, HwAddr] | None, State | None, bool]] = [
    ((I,), (True, True, OTHER), R, True),
    ((I,), (True, False, OTHER), R, True),
    ((I,), (False, True, OTHER), S, True),
    ((I,), (False, False, OTHER), S, True),
    ((R, S, D, P), (True, False, SAME), R, False),
    ((R,), (True, False, OTHER), S, False),
    ((S, P, D), (True, False, OTHER), None, False),
    ((R, S, D, P), (True, True, SAME), R, False),
    ((R, S, D, P), (True, True, OTHER), R, True),
    ((R, S, D, P), (False, False, SAME), None, False),
    ((R,), (False, False, OTHER), S, False),
    ((S, P, D), (False, False, OTHER), None, False),
    ((R, S, D, P), (False, True, SAME), None, False),
    ((R, S, D, P), (False, True, OTHER), S, True),
    # "Neighbor Solicitation ..., different link-layer address than cached": None stands for an NS
    ((N, I, R, S, D, P), None, S, True),
]
ROWS = [(state, *row) for states, *row in APPENDIX_C for state in states]


@pytest.mark.parametrize(("state", "event", "expected", "moves"), ROWS)
def test_every_row_of_rfc_4861_appendix_c_holds(
    state: State,
    event: tuple[bool, bool, HwAddr] | None,
    expected: State | None,
    moves: bool,
) -> None:
    """N10."""
    bench = v6_in(state)
    before = address_of(bench)
    if event is None:
        solicit(bench, OTHER)
    else:
        solicited, override, lladdr = event
        advertise(bench, solicited=solicited, override=override, lladdr=lladdr)
    if state is I and expected is S:
        expected = D  # the packet that waited has used the entry
    assert state_of(bench) is (expected or state)
    assert address_of(bench) == (OTHER if moves else before)


@pytest.mark.parametrize("solicited", [True, False])
@pytest.mark.parametrize("override", [True, False])
def test_an_advertisement_makes_no_entry(solicited: bool, override: bool) -> None:
    """N10."""
    bench = v6_in(State.NONE)
    advertise(bench, solicited=solicited, override=override)
    assert state_of(bench) is State.NONE


@pytest.mark.parametrize("state", [state for state in State if state is not State.NONE])
def test_the_pump_s_entry_follows_the_state(state: State) -> None:
    bench = v6_in(state)
    assert bench.action(str(PEER_V6)) is ACTION_OF[state]


@pytest.mark.parametrize("state", [State.REACHABLE, State.STALE, State.DELAY, State.PROBE])
def test_packets_go_on_to_the_known_address_in_every_state_that_has_one(state: State) -> None:
    bench = v6_in(state)
    bench.send(str(PEER_V6), b"on it goes")
    destination, frame = bench.sent[0]
    assert (destination.qpn, destination.gid) == (PEER.qpn, PEER.gid)
    assert frame.endswith(b"on it goes")


def test_a_miss_asks_three_times_then_is_refused_for_a_second_and_forgotten() -> None:
    bench = v6_in(State.INCOMPLETE)
    bench.run(2.9)
    assert len(bench.sent_nd()) == 2  # and one before
    assert state_of(bench) is State.INCOMPLETE
    bench.run(0.2)
    assert state_of(bench) is State.FAILED
    assert bench.host.counts["neigh_unresolved"] == 1
    assert len(bench.host.delivered) == 1  # the ICMP error for the packet that waited
    bench.clear()
    bench.send(str(PEER_V6))
    assert len(bench.sent) == 0
    assert len(bench.host.delivered) == 1
    bench.run(NEIGH_FAILED_HOLD_S)
    assert state_of(bench) is State.NONE
    assert bench.action(str(PEER_V6)) is None
    bench.send(str(PEER_V6))
    assert len(bench.sent_nd()) == 1


def test_packets_that_waited_go_out_in_their_order_behind_the_publication() -> None:
    bench = Bench()
    for payload in (b"1", b"2", b"3"):
        bench.send(str(PEER_V4), payload)
    bench.clear()
    bench.arp(arp.Arp(arp.REPLY, PEER, PEER_V4, bench.host.hwaddr, OUR_V4))
    kinds = [type(effect) for effect in bench.host.effects]
    assert kinds == [Publish, SendPacket, SendPacket, SendPacket]
    assert [frame[-1:] for _, frame in bench.sent] == [b"1", b"2", b"3"]


def test_a_full_queue_makes_the_pump_hold_and_the_rest_is_counted() -> None:
    bench = Bench()
    for _ in range(FULL_QUEUE):
        bench.send(str(PEER_V4))
    assert bench.action(str(PEER_V4)) is None
    bench.send(str(PEER_V4))
    assert bench.host.counts["neigh_pending_full"] == 1
    assert bench.action(str(PEER_V4)) is NeighAction.HOLD
    bench.send(str(PEER_V4))
    assert bench.host.counts["pump_hold"] == 1
    # a miss that was on its way when the pump learnt of it
    bench.host.carry_out(bench.host.engine.miss(bench.now, PEER_V4, b"d" * 24))
    assert bench.host.counts["neigh_pending_full"] == 2
    bench.clear()
    bench.arp(arp.Arp(arp.REPLY, PEER, PEER_V4, bench.host.hwaddr, OUR_V4))
    assert len([e for e in bench.host.effects if isinstance(e, SendPacket)]) == FULL_QUEUE
    assert bench.action(str(PEER_V4)) is NeighAction.SEND


@pytest.mark.parametrize(("payload", "count"), [(24, 100), (100, 100), (1980, 80), (60_000, 3)])
def test_a_burst_to_a_new_neighbour_waits_whole_whatever_the_length_of_its_packets(
    payload: int, count: int
) -> None:
    """A hundred datagrams of a program, the fragments of three pings of 60 kB, or three long packets."""
    bench = Bench()
    for number in range(count):
        bench.send(str(PEER_V4), bytes((number,)) * payload)
    bench.clear()
    bench.arp(arp.Arp(arp.REPLY, PEER, PEER_V4, bench.host.hwaddr, OUR_V4))
    sent = [e.packet[-1] for e in bench.host.effects if isinstance(e, SendPacket)]
    assert sent == list(range(count))


def test_all_queues_together_are_bounded_and_the_one_that_began_last_keeps_its_packets() -> None:
    bench = Bench()
    peers = [f"10.0.0.{i}" for i in range(100, 200)]
    for peer in peers:
        for _ in range(NEIGH_PENDING_BYTES // 4 // (1024 + WAITING_OVERHEAD_BYTES)):
            bench.send(peer, bytes(1024 - 20))
    waiting = [info.pending for info in bench.host.engine.neighbours(bench.now)]
    assert sum(waiting) * (1024 + WAITING_OVERHEAD_BYTES) <= NEIGH_PENDING_TOTAL_BYTES
    for number in range(100):
        bench.send("10.0.0.2", bytes((number,)) * 60_000)
    assert bench.host.counts["neigh_pending_total_full"] == 0
    for peer in (f"10.0.0.{i}" for i in range(10, 90)):
        for _ in range(3):
            bench.send(peer, bytes(60_000))
    assert bench.host.counts["neigh_pending_total_full"] > 0
    waiting = [info.pending for info in bench.host.engine.neighbours(bench.now)]
    assert waiting[0] == 0
    assert waiting[-1] == 3
    bench.run(10)
    assert bench.host.engine.neighbours(bench.now) == []
    bench.clear()
    bench.send(peers[0])
    assert bench.host.counts["neigh_pending_total_full"] == 0
    assert bench.neighbour(peers[0]) is not None


def test_reachable_time_is_between_half_and_one_and_a_half_times_the_base() -> None:
    times = []
    for seed in range(40):
        bench = Bench(seed=seed)
        bench.send(str(PEER_V6))
        advertise(bench, solicited=True, override=True)
        start = bench.now
        assert bench.simulation.run_until(lambda b=bench: state_of(b) is State.STALE, 100)  # type: ignore[misc]
        times.append(bench.now - start)
    assert 15.0 <= min(times) < 20.0
    assert 40.0 < max(times) <= 45.0


def test_first_use_of_a_stale_entry_waits_five_seconds_then_probes_the_host_itself() -> None:
    """N12."""
    bench = v6_in(State.STALE)
    bench.send(str(PEER_V6))
    assert state_of(bench) is State.DELAY
    bench.clear()
    bench.run(4.9)
    assert bench.sent == []
    bench.run(0.2)
    [(destination, message)] = bench.sent_nd()
    assert (destination.qpn, destination.gid) == (PEER.qpn, PEER.gid)
    assert isinstance(message, NeighbourSolicitation)
    assert message.destination == PEER_V6
    assert message.lladdr == bench.host.hwaddr


def test_three_unanswered_probes_forget_the_neighbour_and_the_next_packet_asks_everybody() -> None:
    """N12."""
    bench = v6_in(State.PROBE)
    bench.run(2.9)
    assert len(bench.sent_nd()) == 2  # and one before
    assert state_of(bench) is State.NONE
    bench.clear()
    bench.send(str(PEER_V6))
    [(destination, _)] = bench.sent_nd()
    assert destination.qpn == 0xFFFFFF


def test_a_scan_repeats_few_broadcasts_and_a_gateway_is_asked_for_three_times() -> None:
    bench = Bench("10.0.0.1/8")
    gateway = "10.9.9.9"
    hosts = [f"10.1.{number >> 8}.{number & 255}" for number in range(2000)]
    for host in hosts:
        bench.send(host)
    bench.host.carry_out(
        bench.host.engine.note_gateway(bench.now, IPv4Address(gateway), is_used=True)
    )
    bench.send(gateway)
    bench.run(2.9)
    asked = Counter(str(message.target_ip) for _, message in bench.sent_arp())
    assert asked[gateway] == MAX_MULTICAST_SOLICIT
    repeats = sum(asked[host] - 1 for host in hosts)
    limit = RESOLUTION_REPEATS_BURST + RESOLUTION_REPEATS_PER_S * 2.9
    assert RESOLUTION_REPEATS_BURST <= repeats <= limit
    assert bench.host.counts["neigh_repeat_limited"] == 2 * len(hosts) - repeats
    assert all(asked[host] >= 1 for host in hosts)


def test_refusals_of_the_pump_are_counted_and_logged_with_the_first_address() -> None:
    bench = Bench()
    for _ in range(100):
        bench.host.carry_out(bench.host.engine.reports.note_resolution_limited(bench.now, PEER_V4))
    assert bench.host.counts["resolution_limited"] == 100
    assert 1 <= len(bench.host.log) < 10
    assert str(PEER_V4) in bench.host.log[0]


def test_an_answered_probe_makes_the_entry_reachable_again() -> None:
    bench = v6_in(State.PROBE)
    advertise(bench, solicited=True, override=True)
    assert bench.action(str(PEER_V6)) is NeighAction.SEND


def test_a_stale_entry_that_nobody_uses_is_forgotten_after_an_hour() -> None:
    bench = v6_in(State.STALE)
    bench.run(NEIGH_STALE_KEEP_S - 1)
    assert state_of(bench) is State.STALE
    bench.run(2)
    assert state_of(bench) is State.NONE
    assert bench.host.effects[-1] == Withdraw(PEER_V6)


def test_flags_of_an_address_are_kept_and_do_not_make_it_another() -> None:
    """A6: RFC 4755 §3.3 masks byte 0 in comparisons."""
    bench = v6_in(State.REACHABLE)
    connected = HwAddr(PEER.qpn, PEER.gid, flags=0x80)
    advertise(bench, solicited=False, override=True, lladdr=connected)
    assert state_of(bench) is State.REACHABLE
    assert address_of(bench) == connected


def test_an_advertisement_without_an_address_confirms_but_does_not_resolve() -> None:
    bench = v6_in(State.STALE)
    advertise(bench, solicited=True, override=True, lladdr=None)
    assert state_of(bench) is State.REACHABLE
    bench = v6_in(State.INCOMPLETE)
    advertise(bench, solicited=True, override=True, lladdr=None)
    assert state_of(bench) is State.INCOMPLETE
    assert bench.host.counts["nd_no_lladdr"] == 1


def test_resolution_waits_for_our_own_address_and_goes_on_the_moment_it_is_ours() -> None:
    bench = Bench("10.0.0.1/24", "fe80::1/64", ready=False)
    bench.run(0.001)
    bench.send(str(PEER_V4))
    bench.send(str(PEER_V6))
    assert (bench.host.counts["arp_no_source"], bench.host.counts["nd_no_source"]) == (1, 1)
    bench.clear()
    bench.run(1.1)
    assert any(m.target_ip == PEER_V4 and m.sender_ip == OUR_V4 for _, m in bench.sent_arp())
    assert any(
        isinstance(m, NeighbourSolicitation) and m.target == PEER_V6 for _, m in bench.sent_nd()
    )


def test_we_ask_from_the_address_that_the_waiting_packet_has() -> None:
    bench = Bench("10.0.0.9/24", "10.0.0.1/24")
    bench.send(str(PEER_V4))
    assert [m.sender_ip for _, m in bench.sent_arp()] == [OUR_V4]


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (State.REACHABLE, NeighAction.SEND),
        (State.STALE, NeighAction.NOTIFY),
        (State.DELAY, NeighAction.SEND),
        (State.PROBE, NeighAction.SEND),
    ],
)
def test_a_miss_of_a_usable_neighbour_publishes_it_again_and_sends_the_packet(
    state: State, action: NeighAction
) -> None:
    """The pump may have lost the entry; or the miss was on its way when the entry came."""
    bench = v6_in(state)
    published, sent = bench.host.engine.miss(bench.now, PEER_V6, b"late")
    assert isinstance(published, Publish)
    assert (published.next_hop, published.action) == (PEER_V6, action)
    assert sent == SendPacket(b"late")


@pytest.mark.parametrize("state", [State.STALE, State.DELAY, State.PROBE])
def test_a_confirmation_makes_the_pump_send_without_notice(state: State) -> None:
    bench = v6_in(state)
    advertise(bench, solicited=True, override=False)
    assert bench.action(str(PEER_V6)) is NeighAction.SEND


def test_a_confirmation_starts_the_reachable_time_anew() -> None:
    bench = v6_in(State.REACHABLE)
    for _ in range(100):
        bench.run(14)  # the shortest reachable time is 15 s
        advertise(bench, solicited=True, override=True)
    assert bench.action(str(PEER_V6)) is NeighAction.SEND
    assert [effect for effect in bench.host.effects if isinstance(effect, Publish)] == []


def test_a_dispute_about_a_reachable_neighbour_keeps_its_address_under_notice() -> None:
    bench = v6_in(State.REACHABLE)
    advertise(bench, solicited=False, override=False, lladdr=PEER_AGAIN)
    assert bench.action(str(PEER_V6)) is NeighAction.NOTIFY
    row = bench.host.table[PEER_V6]
    assert row.destination is not None
    assert row.destination.qpn == PEER.qpn


@pytest.mark.parametrize("solicited", [True, False])
def test_a_failed_neighbour_that_speaks_up_is_published_where_it_is(solicited: bool) -> None:
    bench = v6_in(State.FAILED)
    advertise(bench, solicited=solicited, override=True)
    row = bench.host.table[PEER_V6]
    assert row.destination is not None
    assert (row.destination.qpn, row.destination.gid) == (PEER.qpn, PEER.gid)


# -- the table as a whole ------------------------------------------------------------------------


class Silent:
    """A resolver that sends no messages."""

    def solicit(self, *_: object) -> None: ...

    def probe(self, *_: object) -> None: ...

    def announce(self, *_: object) -> None: ...


def cache(cap: int) -> tuple[EngineContext, Neighbours]:
    context = EngineContext(TEMPLATE, random.Random(1))
    return context, Neighbours(context, {4: Silent(), 6: Silent()}, lambda *_: None, cap)


def station_number(i: int) -> HwAddr:
    return HwAddr(Qpn(2 + i), Gid(b"\xfe\x80" + i.to_bytes(14, "big")))


def v4(i: int) -> IPv4Address:
    return IPv4Address("10.0.0.0") + i


def confirm(neighbours: Neighbours, i: int, now: float) -> None:
    neighbours.note_advertised(now, v4(i), station_number(i), solicited=True, override=True)


def ips(neighbours: Neighbours) -> list[int]:
    return sorted(int(info.ip) - int(v4(0)) for info in neighbours.snapshot(0.0))


def test_a_full_table_drops_the_least_recently_confirmed() -> None:
    context, neighbours = cache(3)
    for i in (1, 2, 3):
        neighbours.miss(float(i), v4(i), b"")
        confirm(neighbours, i, float(i))
    confirm(neighbours, 1, 4.0)
    neighbours.miss(5.0, v4(4), b"")
    assert ips(neighbours) == [1, 3, 4]
    assert Count("neigh_evicted") in context.take()


def test_strangers_push_out_only_each_other() -> None:
    _, neighbours = cache(4)
    for i in (1, 2):
        neighbours.miss(0.0, v4(i), b"")
        confirm(neighbours, i, 0.0)
    for i in range(10, 1000):
        neighbours.note_introduced(1.0, v4(i), station_number(i))
    assert ips(neighbours) == [1, 2, 998, 999]


def test_an_entry_that_is_being_resolved_or_verified_is_never_thrown_out() -> None:
    context, neighbours = cache(3)
    neighbours.miss(0.0, v4(1), b"")  # INCOMPLETE
    for i in (2, 3):
        neighbours.note_introduced(0.0, v4(i), station_number(i))
        neighbours.note_used(0.0, v4(i))  # DELAY
    neighbours.miss(0.0, v4(4), b"")
    neighbours.note_introduced(0.0, v4(5), station_number(5))
    assert ips(neighbours) == [1, 2, 3]
    assert context.take().count(Count("neigh_table_full")) == 2


def test_a_refused_neighbour_may_be_thrown_out() -> None:
    context, neighbours = cache(1)
    neighbours.miss(0.0, v4(1), b"")
    for now in (1.0, 2.0, 3.0):
        context.timers.run(now)
    neighbours.miss(3.5, v4(2), b"")
    assert ips(neighbours) == [2]


def queue_pair(i: int) -> HwAddr:
    """Return the i-th queue pair; each port has two."""
    return HwAddr(Qpn(2 + i), station_number(i // 2).gid)


def states(neighbours: Neighbours) -> list[State]:
    return [info.state for info in neighbours.snapshot(0.0)]


def move(neighbours: Neighbours, i: int, to: HwAddr) -> None:
    neighbours.note_advertised(0.0, v4(i), to, solicited=False, override=True)


def confirmed_at(owner: HwAddr, count: int) -> Neighbours:
    """A cache with `count` addresses of one queue pair, and one of another port."""
    _, neighbours = cache(100)
    for i, hwaddr in [*((i, owner) for i in range(count)), (count, queue_pair(9))]:
        neighbours.miss(0.0, v4(i), b"")
        neighbours.note_advertised(0.0, v4(i), hwaddr, solicited=True, override=True)
    assert set(states(neighbours)) == {State.REACHABLE}
    return neighbours


def test_the_other_addresses_of_a_host_that_restarted_are_probed() -> None:
    neighbours = confirmed_at(queue_pair(0), 3)
    move(neighbours, 0, queue_pair(1))
    assert states(neighbours) == [State.STALE, State.PROBE, State.PROBE, State.REACHABLE]


def test_an_address_that_goes_to_another_port_says_nothing_about_its_host() -> None:
    neighbours = confirmed_at(queue_pair(0), 2)
    move(neighbours, 0, queue_pair(2))
    assert states(neighbours) == [State.STALE, State.REACHABLE, State.REACHABLE]


def test_one_message_makes_us_probe_for_few_addresses_only() -> None:
    neighbours = confirmed_at(queue_pair(0), 50)
    move(neighbours, 0, queue_pair(1))
    assert states(neighbours).count(State.PROBE) == NEIGH_SUSPECTED_AT_ONCE


class CacheMachine(RuleBasedStateMachine):
    """Any order of inputs from eight peers into a cache of five entries."""

    def __init__(self) -> None:
        super().__init__()
        self.context, self.neighbours = cache(5)
        self.now = 0.0
        self.table: dict[object, Publish] = {}

    def settle(self) -> None:
        for effect in self.context.take():
            if isinstance(effect, Publish):
                self.table[effect.next_hop] = effect
            elif isinstance(effect, Withdraw):
                del self.table[effect.next_hop]
            elif isinstance(effect, SendPacket):
                row = self.table[v4(effect.packet[0])]
                assert row.action in (NeighAction.SEND, NeighAction.NOTIFY)

    peers = st.integers(0, 7)

    @rule(i=peers)
    def miss(self, i: int) -> None:
        self.neighbours.miss(self.now, v4(i), bytes((i,)))
        self.settle()

    @rule(i=peers)
    def used(self, i: int) -> None:
        self.neighbours.note_used(self.now, v4(i))
        self.settle()

    @rule(i=peers, at=st.integers(0, 3))
    def introduced(self, i: int, at: int) -> None:
        self.neighbours.note_introduced(self.now, v4(i), queue_pair(at))
        self.settle()

    @rule(i=peers, at=st.one_of(st.none(), st.integers(0, 3)), s=st.booleans(), o=st.booleans())
    def advertised(self, i: int, at: int | None, s: bool, o: bool) -> None:
        lladdr = None if at is None else queue_pair(at)
        self.neighbours.note_advertised(self.now, v4(i), lladdr, solicited=s, override=o)
        self.settle()

    @rule(i=peers, at=st.integers(0, 3))
    def suspect(self, i: int, at: int) -> None:
        self.neighbours.suspect(self.now, v4(i), queue_pair(at))
        self.settle()

    @rule()
    def source_ready(self) -> None:
        self.neighbours.source_ready(self.now, 4)
        self.settle()

    @rule(passing=st.sampled_from([0.1, 1.0, 5.0, 31.0, 4000.0]))
    def wait(self, passing: float) -> None:
        self.now += passing
        while (at := self.context.timers.deadline()) is not None and at <= self.now:
            self.context.timers.run(at)
            self.settle()

    @rule()
    def flush(self) -> None:
        self.neighbours.flush(self.now)
        self.settle()
        assert len(self.neighbours) == 0
        assert self.table == {}

    @invariant()
    def table_is_bounded_and_the_pump_agrees(self) -> None:
        infos = {info.ip: info for info in self.neighbours.snapshot(self.now)}
        assert len(infos) <= 5
        assert set(self.table) <= set(infos)
        for ip, info in infos.items():
            row = self.table.get(ip)
            assert info.pending <= NEIGH_PENDING_BYTES // WAITING_OVERHEAD_BYTES
            assert info.pending == 0 or info.state is State.INCOMPLETE
            if info.state is State.INCOMPLETE:
                assert row is None or row.action is NeighAction.HOLD
            elif info.state is State.FAILED:
                assert row is not None
                assert row.action is NeighAction.UNREACHABLE
            else:
                assert row is not None
                assert info.hwaddr is not None
                assert row.destination == self.context.unicast(info.hwaddr)
        assert len(self.context.timers) == len(infos)

    @invariant()
    def the_owners_are_those_of_the_reachable(self) -> None:
        owners: dict[object, set[object]] = {}
        for info in self.neighbours.snapshot(self.now):
            if info.state is State.REACHABLE:
                assert info.hwaddr is not None
                owners.setdefault((info.hwaddr.qpn, info.hwaddr.gid), set()).add(info.ip)
        assert {key: set(ips) for key, ips in self.neighbours._owners.items()} == owners

    @invariant()
    def every_entry_has_an_end(self) -> None:
        deadline = self.context.timers.deadline()
        assert (deadline is None) == (len(self.neighbours) == 0)


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestCache = CacheMachine.TestCase


def test_ipv6_and_ipv4_neighbours_are_apart() -> None:
    _, neighbours = cache(5)
    neighbours.note_introduced(0.0, v4(1), station_number(1))
    neighbours.note_introduced(0.0, IPv6Address("fe80::1"), station_number(2))
    assert neighbours.hwaddr(v4(1)) == station_number(1)
    assert neighbours.hwaddr(IPv6Address("fe80::1")) == station_number(2)


# -- other routes --------------------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "peer"), [(OUR_V4, PEER_V4), (OUR_V6, PEER_V6)])
def test_packets_that_wait_are_looked_up_again_after_a_change_of_their_route(
    ours: IPv4Address | IPv6Address, peer: IPv4Address | IPv6Address
) -> None:
    engine, now = (bench := Bench()).host.engine, bench.now
    waiting = [packet(str(ours), str(peer), bytes((number,))) for number in range(2)]
    for data in waiting:
        bench.host.carry_out(engine.miss(now, peer, data))
    assert engine.note_rerouted(now, lambda ip: ip != peer) == []
    assert engine.note_rerouted(now, lambda ip: ip == peer) == [Forward(data) for data in waiting]
    assert engine.note_rerouted(now, lambda ip: True) == []
    [entry] = engine.neighbours(now)
    assert (entry.state, entry.pending) == (State.INCOMPLETE, 0)


def test_a_full_queue_opens_for_packets_that_come_to_the_same_next_hop_again() -> None:
    bench = Bench()
    for number in range(FULL_QUEUE + 2):
        bench.send(str(PEER_V4), number.to_bytes(4))
    assert bench.host.table[PEER_V4].action is NeighAction.HOLD
    bench.clear()
    bench.host.carry_out(bench.host.engine.note_rerouted(bench.now, lambda ip: True))
    assert bench.host.effects[0] == Withdraw(PEER_V4)
    [entry] = bench.host.engine.neighbours(bench.now)
    assert entry.pending == FULL_QUEUE  # all have come again


def test_a_change_of_its_route_gives_a_neighbour_that_failed_another_chance() -> None:
    bench = Bench()
    bench.send(str(PEER_V4))
    bench.run(3.5)
    assert bench.host.table[PEER_V4].action is NeighAction.UNREACHABLE
    bench.host.carry_out(bench.host.engine.note_rerouted(bench.now, lambda ip: ip != PEER_V4))
    assert PEER_V4 in bench.host.table
    bench.host.carry_out(bench.host.engine.note_rerouted(bench.now, lambda ip: ip == PEER_V4))
    assert PEER_V4 not in bench.host.table
    assert bench.host.engine.neighbours(bench.now) == []
