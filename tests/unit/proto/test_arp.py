# SPDX-License-Identifier: BSD-2-Clause
"""A host receives and sends ARP messages. RFC 826, RFC 5227, RFC 4391 §9.2."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.proto.effects import NeighAction
from ipoibu.proto.neigh.dad import State as AddressState
from ipoibu.proto.neigh.nud import State
from ipoibu.wire import arp
from ipoibu.wire.arp import NOBODY, REPLY, REQUEST, Arp
from ipoibu.wire.mgid import broadcast
from tests.doubles.engine_bench import OUR_V4, PEER, PEER_AGAIN, PEER_V4, Bench

NO_ADDRESS = IPv4Address(0)
PEER_TEXT = str(PEER_V4)


def request(sender: HwAddr = PEER, sender_ip: IPv4Address = PEER_V4) -> Arp:
    return arp.request(sender, sender_ip, OUR_V4)


def reply(bench: Bench, sender: HwAddr = PEER) -> Arp:
    return Arp(REPLY, sender, PEER_V4, bench.host.hwaddr, OUR_V4)


def gratuitous(sender: HwAddr = PEER, ip: IPv4Address = PEER_V4) -> Arp:
    return arp.request(sender, ip, ip)


def reachable() -> Bench:
    bench = Bench()
    bench.send(PEER_TEXT)
    bench.arp(reply(bench))
    bench.clear()
    return bench


def state_of(bench: Bench) -> State:
    info = bench.neighbour(PEER_TEXT)
    return info.state if info else State.NONE


def test_a_miss_asks_the_broadcast_group() -> None:
    bench = Bench()
    bench.send(PEER_TEXT)
    [(destination, message)] = bench.sent_arp()
    params = bench.simulation.template.params
    assert (destination.gid, destination.qpn) == (broadcast(params.pkey), 0xFFFFFF)
    assert message == Arp(REQUEST, bench.host.hwaddr, OUR_V4, NOBODY, PEER_V4)


def test_a_request_for_us_is_answered_to_the_asker_alone_and_notes_it() -> None:
    bench = Bench()
    bench.arp(request(), multicast=True)
    [(destination, message)] = bench.sent_arp()
    assert (destination.gid, destination.qpn) == (PEER.gid, PEER.qpn)
    assert message == Arp(REPLY, bench.host.hwaddr, OUR_V4, PEER, PEER_V4)
    assert state_of(bench) is State.STALE
    assert bench.action(PEER_TEXT) is NeighAction.NOTIFY


def test_a_request_for_somebody_else_is_neither_answered_nor_noted() -> None:
    bench = Bench()
    bench.arp(arp.request(PEER, PEER_V4, IPv4Address("10.0.0.3")), multicast=True)
    assert bench.sent == []
    assert state_of(bench) is State.NONE


def test_a_request_for_somebody_else_moves_an_entry_that_is_there() -> None:
    """R2: RFC 826 merges before it looks at the target."""
    bench = reachable()
    bench.arp(arp.request(PEER_AGAIN, PEER_V4, IPv4Address("10.0.0.3")), multicast=True)
    assert state_of(bench) is State.STALE
    row = bench.host.table[PEER_V4]
    assert row.destination is not None
    assert row.destination.qpn == PEER_AGAIN.qpn


@pytest.mark.parametrize("operation", [REQUEST, REPLY])
def test_a_gratuitous_message_of_a_restarted_peer_redirects_at_once_and_confirms_nothing(
    operation: int,
) -> None:
    bench = reachable()
    bench.arp(Arp(operation, PEER_AGAIN, PEER_V4, NOBODY, PEER_V4), multicast=True)
    assert state_of(bench) is State.STALE
    bench.send(PEER_TEXT)
    assert bench.sent[0][0].qpn == PEER_AGAIN.qpn


def test_a_gratuitous_message_of_a_stranger_makes_no_entry() -> None:
    bench = Bench()
    bench.arp(gratuitous(), multicast=True)
    assert state_of(bench) is State.NONE


def test_a_gratuitous_message_resolves_what_waits() -> None:
    bench = Bench()
    bench.send(PEER_TEXT, b"waits")
    bench.clear()
    bench.arp(gratuitous(), multicast=True)
    assert bench.sent[0][1].endswith(b"waits")


def test_a_unicast_reply_to_us_confirms() -> None:
    assert state_of(reachable()) is State.REACHABLE


def test_a_reply_to_us_that_was_sent_to_everybody_does_not_confirm() -> None:
    bench = Bench()
    bench.send(PEER_TEXT)
    bench.arp(reply(bench), multicast=True)
    assert bench.action(PEER_TEXT) is NeighAction.NOTIFY


def test_a_reply_that_nobody_asked_for_makes_no_entry() -> None:
    bench = Bench()
    bench.arp(reply(bench))
    assert state_of(bench) is State.NONE


def test_an_unknown_operation_directed_to_us_is_merged_and_not_answered() -> None:
    """R2: RFC 826 looks at the opcode last."""
    bench = Bench()
    bench.arp(Arp(8, PEER, PEER_V4, NOBODY, OUR_V4))
    assert state_of(bench) is State.STALE
    assert bench.sent == []


@pytest.mark.parametrize("sender", ["224.0.0.5", "127.0.0.1", "255.255.255.255"])
def test_an_impossible_sender_is_counted_and_taught_nothing(sender: str) -> None:
    bench = Bench()
    bench.arp(request(sender_ip=IPv4Address(sender)))
    assert bench.host.counts == {"arp_sender": 1}
    assert bench.sent == []
    assert bench.host.engine.neighbours(bench.now) == []


def test_who_claims_our_subnets_broadcast_address_does_not_get_its_broadcasts() -> None:
    """A peer with another prefix length may have this address."""
    bench, claimed = Bench(), IPv4Address("10.0.0.255")
    bench.send(str(claimed))
    before = bench.host.table[claimed]
    bench.arp(request(sender_ip=claimed))
    bench.host.carry_out(bench.host.engine.note_learned(bench.now, PEER, [claimed]))
    assert bench.host.counts["arp_sender"] == 1
    assert bench.host.table[claimed] == before


@pytest.mark.parametrize(
    "hwaddr",
    [
        HwAddr(Qpn(0), PEER.gid),
        HwAddr(Qpn(0xFFFFFF), PEER.gid),
        HwAddr(PEER.qpn, Gid(bytes(16))),
        HwAddr(PEER.qpn, Gid.parse("ff12:401b:ffff::1")),
    ],
)
def test_a_hardware_address_of_no_host_is_counted_and_refused(hwaddr: HwAddr) -> None:
    bench = Bench()
    bench.arp(request(sender=hwaddr))
    assert bench.host.counts == {"lladdr_not_unicast": 1}
    assert bench.sent == []


def test_our_own_frames_that_come_back_are_ignored() -> None:
    bench = Bench()
    ours = bench.host.hwaddr
    bench.arp(gratuitous(ours, OUR_V4), multicast=True, sender=ours)
    bench.arp(gratuitous(ours, OUR_V4), multicast=True)  # reflected without our queue pair
    assert bench.host.counts == {"echo": 2}
    assert bench.host.log == []


def test_an_address_is_probed_for_three_times_from_nobody_then_announced_three_times() -> None:
    """K2."""
    bench = Bench("10.0.0.1/24", ready=False)
    bench.run(10)
    messages = [message for _, message in bench.sent_arp()]
    ours = bench.host.hwaddr
    assert (
        messages
        == [arp.request(ours, NO_ADDRESS, OUR_V4)] * 3 + [arp.request(ours, OUR_V4, OUR_V4)] * 3
    )
    assert all(destination.qpn == 0xFFFFFF for destination, _ in bench.sent_arp())


def test_a_tentative_address_is_not_answered_for() -> None:
    bench = Bench("10.0.0.1/24", ready=False)
    bench.run(0.1)
    bench.clear()
    bench.arp(request(), multicast=True)
    assert bench.sent_arp() == []
    assert state_of(bench) is State.NONE


def test_a_probe_for_our_address_is_answered_and_makes_no_entry() -> None:
    """K7."""
    bench = Bench()
    bench.arp(arp.request(PEER, NO_ADDRESS, OUR_V4), multicast=True)
    [(destination, message)] = bench.sent_arp()
    assert destination.qpn == PEER.qpn
    assert message == Arp(REPLY, bench.host.hwaddr, OUR_V4, PEER, NO_ADDRESS)
    assert bench.host.engine.neighbours(bench.now) == []


def test_a_probe_of_a_station_that_has_its_neighbour_s_address_makes_us_ask_the_neighbour() -> None:
    """A5: a restarted peer probes from its new queue pair before it may announce it."""
    bench = reachable()
    bench.arp(arp.request(PEER_AGAIN, NO_ADDRESS, PEER_V4), multicast=True)
    assert state_of(bench) is State.PROBE
    [(destination, _)] = bench.sent_arp()
    assert destination.qpn == PEER.qpn


def test_a_probe_of_the_neighbour_itself_is_no_reason_to_ask() -> None:
    bench = reachable()
    bench.arp(arp.request(PEER, NO_ADDRESS, PEER_V4), multicast=True)
    assert state_of(bench) is State.REACHABLE
    assert bench.sent == []


def test_a_reply_from_nobody_is_counted() -> None:
    bench = Bench()
    bench.arp(Arp(REPLY, PEER, NO_ADDRESS, bench.host.hwaddr, OUR_V4))
    assert bench.host.counts == {"arp_sender": 1}


def test_another_probe_for_our_tentative_address_makes_it_a_duplicate() -> None:
    """K4."""
    bench = Bench("10.0.0.1/24", ready=False)
    bench.run(0.1)
    bench.arp(arp.request(PEER, NO_ADDRESS, OUR_V4), multicast=True)
    assert bench.host.verdicts == {OUR_V4: True}
    [info] = bench.host.engine.addresses()
    assert info.state is AddressState.DUPLICATE


def test_a_duplicate_is_a_neighbour_like_any_other() -> None:
    bench = Bench("10.0.0.1/24", "10.0.0.7/24", ready=False)
    bench.run(0.1)
    bench.arp(gratuitous(PEER, OUR_V4), multicast=True)
    bench.run(10)
    bench.clear()
    bench.arp(arp.request(PEER, OUR_V4, IPv4Address("10.0.0.7")))
    assert bench.host.counts == {}
    assert bench.neighbour(str(OUR_V4)) is not None


def test_a_probe_with_our_own_address_as_the_asker_s_is_a_conflict_that_is_not_answered() -> None:
    bench = Bench()
    bench.arp(arp.request(PEER, OUR_V4, OUR_V4), multicast=True)
    assert bench.host.counts["address_conflict"] == 1
    assert bench.sent_arp()[0][1] == arp.request(bench.host.hwaddr, OUR_V4, OUR_V4)  # the defence
    assert bench.host.engine.neighbours(bench.now) == []
