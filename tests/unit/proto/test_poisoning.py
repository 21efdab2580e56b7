# SPDX-License-Identifier: BSD-2-Clause
"""A neighbour changes its address, or a message contradicts the datagram that carries it."""

from __future__ import annotations

import logging
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.limits import PEER_LOGS_BURST
from ipoibu.endpoint.interface.event_log import EventLog
from ipoibu.proto.context import FrameSource
from ipoibu.proto.neigh.dad import State as AddressState
from ipoibu.proto.neigh.nud import State
from ipoibu.wire import arp, ndisc
from ipoibu.wire.arp import REPLY, Arp
from ipoibu.wire.encap import Encap, EtherType
from ipoibu.wire.ndisc import (
    ALL_NODES,
    NeighbourAdvertisement,
    NeighbourSolicitation,
    RouterAdvertisement,
)
from tests.doubles.engine_bench import (
    OUR_V4,
    OUR_V6,
    PEER,
    PEER_AGAIN,
    PEER_V4,
    PEER_V6,
    Bench,
)

LIAR = HwAddr(Qpn(0x666), Gid.parse("fe80::bad"))


def reply(bench: Bench, hwaddr: HwAddr = PEER) -> Arp:
    return Arp(REPLY, hwaddr, PEER_V4, bench.host.hwaddr, OUR_V4)


def reachable() -> Bench:
    bench = Bench()
    bench.send(str(PEER_V4))
    bench.arp(reply(bench))
    bench.clear()
    return bench


def hwaddr_of(bench: Bench, ip: object = PEER_V4) -> HwAddr | None:
    info = bench.neighbour(str(ip))
    return info.hwaddr if info else None


def text_of(bench: Bench) -> str:
    return "\n".join(str(line) for line in bench.host.log)


def test_a_neighbour_that_moves_is_counted_and_its_transition_names_both_addresses() -> None:
    bench = reachable()
    bench.arp(arp.request(PEER_AGAIN, PEER_V4, PEER_V4), multicast=True)
    assert hwaddr_of(bench) == PEER_AGAIN
    assert bench.host.counts["neigh_moved"] == 1
    (moved,) = [it for it in bench.host.transitions if it.former is not None]
    assert (moved.subject, moved.former, moved.hwaddr) == (PEER_V4, PEER, PEER_AGAIN)


def test_a_neighbour_that_repeats_its_address_has_not_moved() -> None:
    bench = reachable()
    bench.arp(arp.request(PEER, PEER_V4, PEER_V4), multicast=True)
    bench.arp(reply(bench, HwAddr(PEER.qpn, PEER.gid, flags=0x80)))
    assert bench.host.counts["neigh_moved"] == 0
    assert all(it.former is None for it in bench.host.transitions)


def test_messages_that_the_pump_refuses_are_counted_and_logged_with_their_sender() -> None:
    bench = Bench()
    source = FrameSource(LIAR.qpn, LIAR.gid, None)
    for _ in range(100):
        bench.host.carry_out(bench.host.engine.reports.note_control_limited(bench.now, source))
    assert bench.host.counts["control_limited"] == 100
    assert len(bench.host.log) == PEER_LOGS_BURST
    text = f"too many ARP and ND messages: ignored some, the first from {LIAR.gid} queue pair"
    assert text in text_of(bench)


def test_two_hosts_that_fight_for_an_address_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = reachable()
    for hwaddr in (LIAR, PEER) * 500:
        bench.arp(arp.request(hwaddr, PEER_V4, PEER_V4), multicast=True)
    assert bench.host.counts["neigh_moved"] == 1000
    log = EventLog("ib0", lambda: bench.now)
    with caplog.at_level(logging.DEBUG):
        for transition in bench.host.transitions:
            log.take(transition)
    moves = [it for it in caplog.records if f"neighbour {PEER_V4} moved from" in it.message]
    assert len(moves) == PEER_LOGS_BURST


@pytest.mark.parametrize("sender", [LIAR, HwAddr(LIAR.qpn, PEER.gid), HwAddr(PEER.qpn, LIAR.gid)])
def test_arp_in_the_name_of_another_host_is_refused(sender: HwAddr) -> None:
    bench = Bench()
    for message in (
        arp.request(PEER, PEER_V4, OUR_V4),
        arp.request(PEER, PEER_V4, PEER_V4),
        reply(bench),
    ):
        bench.arp(message, sender=sender)
    assert hwaddr_of(bench) is None
    assert bench.sent == []
    assert bench.host.counts["neigh_contradiction"] == 3
    assert f"names {PEER}, but comes from {sender.gid} queue pair {sender.qpn}" in text_of(bench)


def test_arp_in_the_name_of_another_host_does_not_take_our_address() -> None:
    bench = Bench()
    bench.arp(arp.request(PEER, OUR_V4, OUR_V4), multicast=True, sender=LIAR)
    states = {info.address: info.state for info in bench.host.engine.addresses()}
    assert states[OUR_V4] is AddressState.PREFERRED
    assert bench.host.counts["address_conflict"] == 0


def test_nd_in_the_name_of_another_host_is_refused() -> None:
    bench = Bench()
    bench.nd(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6, PEER), sender=LIAR)
    bench.nd(NeighbourAdvertisement(PEER_V6, ALL_NODES, PEER_V6, PEER, override=True), sender=LIAR)
    assert hwaddr_of(bench, PEER_V6) is None
    assert bench.sent == []
    assert bench.host.counts["neigh_contradiction"] == 2


def test_a_router_that_names_another_host_is_heard_and_its_option_is_not() -> None:
    """FRR on ib_ipoib names an address that no host has: two bytes of it are missing."""
    bench = Bench()
    advertisement = RouterAdvertisement(PEER_V6, ALL_NODES, lifetime_s=1800, lladdr=LIAR)
    bench.nd(advertisement, sender=PEER)
    assert hwaddr_of(bench, PEER_V6) is None
    assert bench.host.counts["neigh_contradiction"] == 1
    (delivered,) = bench.host.delivered
    assert ndisc.parse_untrusted(delivered) == replace(advertisement, lladdr=None)


def test_a_proxy_may_answer_our_question() -> None:
    bench = Bench()
    bench.send(str(PEER_V4))
    bench.send(str(PEER_V6))
    bench.arp(reply(bench), sender=LIAR)
    advertisement = NeighbourAdvertisement(
        PEER_V6, OUR_V6, PEER_V6, PEER, solicited=True, override=True
    )
    bench.nd(advertisement, sender=LIAR)
    assert hwaddr_of(bench) == hwaddr_of(bench, PEER_V6) == PEER
    assert bench.host.counts["neigh_proxied"] == 2


def test_a_proxy_may_not_move_a_host_about_which_we_do_not_ask() -> None:
    bench = reachable()
    bench.arp(reply(bench, PEER_AGAIN), sender=LIAR)
    info = bench.neighbour(str(PEER_V4))
    assert info is not None
    assert (info.hwaddr, info.state) == (PEER, State.REACHABLE)
    assert bench.host.counts["neigh_contradiction"] == 1


def test_a_datagram_without_a_grh_is_compared_by_its_queue_pair() -> None:
    bench = Bench()
    frame = Encap(EtherType.ARP, arp.request(PEER, PEER_V4, OUR_V4).pack()).pack()
    bench.host.receive(FrameSource(LIAR.qpn, None, None), frame)
    assert hwaddr_of(bench) is None
    bench.host.receive(FrameSource(PEER.qpn, None, None), frame)
    assert hwaddr_of(bench) == PEER


def test_another_subnet_prefix_is_no_contradiction() -> None:
    bench = Bench()
    routed = HwAddr(PEER.qpn, Gid(bytes.fromhex("fec0000000000001") + PEER.gid.interface_id))
    bench.arp(arp.request(PEER, IPv4Address("10.0.0.9"), OUR_V4), sender=routed)
    assert hwaddr_of(bench, "10.0.0.9") == PEER
