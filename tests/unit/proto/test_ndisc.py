# SPDX-License-Identifier: BSD-2-Clause
"""A host receives and sends neighbour discovery. RFC 4861, RFC 4862, RFC 4391 §9.3."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address, ip_interface

import pytest

from ipoibu.base.addr import HwAddr, Qpn
from ipoibu.base.limits import REDIRECTS_BURST
from ipoibu.proto.effects import Attach, NeighAction, SendFrame
from ipoibu.proto.engine import FrameSource
from ipoibu.proto.neigh.dad import State as AddressState
from ipoibu.proto.neigh.nud import State
from ipoibu.wire import ndisc
from ipoibu.wire.encap import Encap, EtherType
from ipoibu.wire.mgid import of_group, solicited_node
from ipoibu.wire.ndisc import (
    ALL_NODES,
    ALL_ROUTERS,
    NeighbourAdvertisement,
    NeighbourSolicitation,
    Redirect,
    RouterAdvertisement,
    RouterSolicitation,
)
from tests.doubles.engine_bench import OUR_V6, PEER, PEER_AGAIN, PEER_V6, Bench
from tests.doubles.simulation import TEMPLATE

NO_ADDRESS = IPv6Address(0)
PEER_TEXT = str(PEER_V6)
ELSEWHERE = IPv6Address("2001:db8::9")


def state_of(bench: Bench, ip: str = PEER_TEXT) -> State:
    info = bench.neighbour(ip)
    return info.state if info else State.NONE


def test_a_miss_asks_the_solicited_node_group_with_our_link_layer_address() -> None:
    bench = Bench()
    bench.send(PEER_TEXT)
    [(destination, message)] = bench.sent_nd()
    group = solicited_node(PEER_V6)
    assert destination.gid == of_group(group, TEMPLATE.params.pkey)
    assert destination.qpn == 0xFFFFFF
    assert message == NeighbourSolicitation(OUR_V6, group, PEER_V6, bench.host.hwaddr)


def test_a_multicast_solicitation_is_answered_solicited_and_overriding() -> None:
    """N4."""
    bench = Bench()
    bench.nd(NeighbourSolicitation(PEER_V6, solicited_node(OUR_V6), OUR_V6, PEER), multicast=True)
    [(destination, message)] = bench.sent_nd()
    assert (destination.gid, destination.qpn) == (PEER.gid, PEER.qpn)
    assert message == NeighbourAdvertisement(
        OUR_V6, PEER_V6, OUR_V6, bench.host.hwaddr, solicited=True, override=True
    )
    assert bench.action(PEER_TEXT) is NeighAction.NOTIFY


def test_a_router_says_that_it_is_one() -> None:
    bench = Bench()
    for is_router in (True, False):
        bench.host.engine.router_changed(is_router)
        bench.clear()
        bench.nd(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6, PEER))
        [(_, message)] = bench.sent_nd()
        assert isinstance(message, NeighbourAdvertisement)
        assert message.router == is_router


def test_a_solicitation_for_somebody_else_is_silently_ignored() -> None:
    bench = Bench()
    other = IPv6Address("fe80::5:1")  # in the same solicited-node group as ours
    bench.nd(NeighbourSolicitation(PEER_V6, solicited_node(other), other, PEER), multicast=True)
    assert bench.sent == []
    assert bench.host.effects == []


def test_a_unicast_solicitation_without_an_address_is_answered_to_the_host_it_came_from() -> None:
    bench = Bench()
    bench.nd(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6))
    [(destination, _)] = bench.sent_nd()
    assert (destination.gid, destination.qpn) == (PEER.gid, PEER.qpn)
    assert state_of(bench) is State.NONE


def test_a_solicitation_without_any_address_to_answer_to_is_counted() -> None:
    bench = Bench()
    parcel = Encap(EtherType.IPV6, NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6).pack())
    bench.host.receive(FrameSource(PEER.qpn, None, None), parcel.pack())
    assert bench.host.counts == {"nd_no_lladdr": 1}
    assert bench.sent == []


def test_a_probe_for_our_address_is_answered_to_all_nodes_unsolicited() -> None:
    bench = Bench()
    bench.nd(NeighbourSolicitation(NO_ADDRESS, solicited_node(OUR_V6), OUR_V6), multicast=True)
    [(destination, message)] = bench.sent_nd()
    assert destination.gid == of_group(ALL_NODES, TEMPLATE.params.pkey)
    assert message == NeighbourAdvertisement(
        OUR_V6, ALL_NODES, OUR_V6, bench.host.hwaddr, solicited=False, override=True
    )
    assert bench.host.engine.neighbours(bench.now) == []  # N5


def test_an_address_joins_its_group_then_probes_once_and_is_announced_three_times() -> None:
    bench = Bench("fe80::1/64", ready=False)
    bench.run(10)
    group = solicited_node(OUR_V6)
    kinds = [e for e in bench.host.effects if isinstance(e, (Attach, SendFrame))]
    joined = kinds.index(Attach(of_group(group, TEMPLATE.params.pkey)))
    assert isinstance(kinds[joined + 1], SendFrame)
    assert not any(isinstance(kind, SendFrame) for kind in kinds[:joined])
    announcement = NeighbourAdvertisement(
        OUR_V6, ALL_NODES, OUR_V6, bench.host.hwaddr, override=True
    )
    assert [message for _, message in bench.sent_nd()] == [
        NeighbourSolicitation(NO_ADDRESS, group, OUR_V6),
        announcement,
        announcement,
        announcement,
    ]


def test_announcements_are_a_second_apart_behind_a_second_of_probing() -> None:
    bench = Bench("fe80::1/64", ready=False)
    times: list[float] = []
    bench.simulation.network.observers.append(lambda *_: times.append(bench.now))
    bench.run(10)
    assert times == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("answer", ["probe", "advertisement"])
def test_a_tentative_address_that_another_wants_or_has_is_a_duplicate(answer: str) -> None:
    """L4."""
    bench = Bench("fe80::1/64", ready=False)
    bench.run(0.5)
    bench.clear()
    if answer == "probe":
        bench.nd(NeighbourSolicitation(NO_ADDRESS, solicited_node(OUR_V6), OUR_V6), multicast=True)
    else:
        bench.nd(NeighbourAdvertisement(OUR_V6, ALL_NODES, OUR_V6, PEER, override=True), True)
    assert bench.host.verdicts == {OUR_V6: True}
    bench.run(10)
    assert bench.sent == []
    assert [info.state for info in bench.host.engine.addresses()] == [AddressState.DUPLICATE]


def test_a_tentative_address_is_not_answered_for() -> None:
    """L3."""
    bench = Bench("fe80::1/64", ready=False)
    bench.run(0.5)
    bench.clear()
    bench.nd(NeighbourSolicitation(PEER_V6, solicited_node(OUR_V6), OUR_V6, PEER), multicast=True)
    assert bench.sent == []
    assert bench.host.verdicts == {}


def test_an_optimistic_address_is_answered_for_without_override_while_we_probe_for_it() -> None:
    """RFC 4429 §3.3."""
    bench = Bench("fe80::77/64")
    optimistic = ip_interface(f"{OUR_V6}/64")
    bench.host.carry_out(bench.host.engine.address_added(bench.now, optimistic, True, True))
    bench.run(0.1)
    bench.clear()
    for overrides, wait_s in ((False, 2.0), (True, 0.0)):
        bench.nd(
            NeighbourSolicitation(PEER_V6, solicited_node(OUR_V6), OUR_V6, PEER), multicast=True
        )
        (answer,) = [it for _, it in bench.sent_nd() if isinstance(it, NeighbourAdvertisement)]
        assert (answer.source, answer.target) == (OUR_V6, OUR_V6)
        assert (answer.solicited, answer.override) == (True, overrides)
        bench.run(wait_s + 5)
        bench.clear()


def test_an_optimistic_address_that_another_host_has_is_a_duplicate() -> None:
    bench = Bench("fe80::77/64")
    optimistic = ip_interface(f"{OUR_V6}/64")
    bench.host.carry_out(bench.host.engine.address_added(bench.now, optimistic, True, True))
    bench.run(0.1)
    bench.nd(NeighbourAdvertisement(OUR_V6, ALL_NODES, OUR_V6, PEER, override=True), multicast=True)
    assert bench.host.verdicts[OUR_V6] is True
    bench.clear()
    bench.nd(NeighbourSolicitation(PEER_V6, solicited_node(OUR_V6), OUR_V6, PEER), multicast=True)
    assert bench.sent_nd() == []


def test_our_own_probe_that_comes_back_is_no_conflict() -> None:
    bench = Bench("fe80::1/64", ready=False)
    bench.run(10)
    assert bench.host.verdicts == {OUR_V6: False}
    assert bench.host.counts["echo"] == 4


def test_an_advertisement_for_our_address_is_defended_once_in_ten_seconds_and_logged_thinly() -> (
    None
):
    bench = Bench()
    for _ in range(12):
        bench.nd(NeighbourAdvertisement(OUR_V6, ALL_NODES, OUR_V6, PEER, override=True), True)
    assert bench.host.counts["address_conflict"] == 12
    assert len(bench.sent_nd()) == 1
    assert len(bench.host.log) == 4  # 1, 2, 5, 10
    bench.run(10)
    bench.nd(NeighbourAdvertisement(OUR_V6, ALL_NODES, OUR_V6, PEER, override=True), True)
    assert len(bench.sent_nd()) == 2


def test_a_message_from_our_own_address_is_a_conflict_and_teaches_nothing() -> None:
    bench = Bench()
    bench.nd(NeighbourSolicitation(OUR_V6, OUR_V6, OUR_V6, PEER))
    assert bench.host.counts["address_conflict"] == 1
    assert bench.host.engine.neighbours(bench.now) == []


def test_the_router_flag_is_kept_and_its_loss_is_logged() -> None:
    bench = Bench()
    bench.nd(RouterAdvertisement(PEER_V6, ALL_NODES, PEER, lifetime_s=1800), multicast=True)
    info = bench.neighbour(PEER_TEXT)
    assert info is not None
    assert info.is_router
    bench.clear()
    host = NeighbourAdvertisement(PEER_V6, ALL_NODES, PEER_V6, PEER, router=False, override=True)
    bench.nd(host, multicast=True)
    assert bench.host.log == [f"{PEER_V6} is no longer a router"]


def test_a_disputed_advertisement_does_not_touch_the_router_flag() -> None:
    """RFC 4861 §7.2.5: without Override a different address leaves the entry alone."""
    bench = Bench()
    bench.nd(RouterAdvertisement(PEER_V6, ALL_NODES, PEER, lifetime_s=1800), multicast=True)
    bench.nd(NeighbourAdvertisement(PEER_V6, ALL_NODES, PEER_V6, PEER_AGAIN, router=False), True)
    info = bench.neighbour(PEER_TEXT)
    assert info is not None
    assert info.is_router


def test_a_router_advertisement_is_handed_on_without_its_option_and_teaches_the_router() -> None:
    """L6, N7."""
    bench = Bench()
    message = RouterAdvertisement(PEER_V6, ALL_NODES, PEER, hop_limit=64, lifetime_s=1800)
    bench.nd(message, multicast=True)
    [delivered] = bench.host.delivered
    assert ndisc.parse_untrusted(delivered) == replace(message, lladdr=None)
    assert bench.action(PEER_TEXT) is NeighAction.NOTIFY


def test_a_router_solicitation_is_handed_on_and_teaches_a_router_the_asker() -> None:
    """RFC 4861 §6.1.1, §6.2.6: a host learns nothing from it."""
    bench = Bench()
    bench.nd(RouterSolicitation(PEER_V6, ALL_ROUTERS, PEER), multicast=True)
    assert bench.neighbour(PEER_TEXT) is None
    bench.host.engine.router_changed(is_router=True)
    bench.nd(RouterSolicitation(PEER_V6, ALL_ROUTERS, PEER), multicast=True)
    bench.nd(RouterSolicitation(NO_ADDRESS, ALL_ROUTERS), multicast=True)
    assert len(bench.host.delivered) == 3
    assert state_of(bench) is State.STALE


def test_a_redirect_teaches_where_its_target_is() -> None:
    bench = Bench()
    router, better = IPv6Address("fe80::99"), PEER_V6
    bench.host.carry_out(bench.host.engine.note_gateway(bench.now, router, is_used=True))
    bench.nd(Redirect(router, OUR_V6, better, ELSEWHERE, PEER))
    info = bench.neighbour(PEER_TEXT)
    assert info is not None
    assert (info.state, info.is_router) == (State.STALE, True)
    assert len(bench.host.delivered) == 1


def test_a_redirect_of_a_host_to_which_no_packet_of_ours_goes_makes_no_neighbour() -> None:
    bench = Bench()
    bench.nd(Redirect(IPv6Address("fe80::99"), OUR_V6, PEER_V6, ELSEWHERE, PEER))
    assert bench.host.engine.neighbours(bench.now) == []
    assert len(bench.host.delivered) == 1  # the stack decides about the rest


def test_invented_redirects_make_few_neighbours_and_reach_the_stack() -> None:
    """Any host can send them in a router's name."""
    bench = Bench()
    router = IPv6Address("fe80::99")
    bench.host.carry_out(bench.host.engine.note_gateway(bench.now, router, is_used=True))
    for number in range(1000):
        target = IPv6Address(f"fe80::8:{number:x}")
        bench.nd(Redirect(router, OUR_V6, target, ELSEWHERE, PEER))
    assert len(bench.host.engine.neighbours(bench.now)) == REDIRECTS_BURST
    assert len(bench.host.delivered) == 1000
    assert bench.host.counts["redirect_limited"] == 1000 - REDIRECTS_BURST
    assert 1 <= len([line for line in bench.host.log if "redirects" in line]) <= 10
    bench.run(1)
    bench.nd(Redirect(router, OUR_V6, PEER_V6, ELSEWHERE, PEER))
    assert bench.neighbour(PEER_TEXT) is not None


def test_a_redirect_to_ourselves_teaches_nothing() -> None:
    bench = Bench()
    router = IPv6Address("fe80::99")
    bench.host.carry_out(bench.host.engine.note_gateway(bench.now, router, is_used=True))
    bench.nd(Redirect(router, OUR_V6, OUR_V6, ELSEWHERE, PEER))
    assert bench.host.engine.neighbours(bench.now) == []


def test_a_mirrored_frame_with_our_address_inside_is_ignored() -> None:
    bench = Bench()
    bench.nd(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6, bench.host.hwaddr))
    assert bench.host.counts == {"echo": 1}
    assert bench.sent == []


def test_a_probe_from_a_new_queue_pair_makes_us_ask_the_neighbour() -> None:
    bench = Bench()
    bench.send(PEER_TEXT)
    bench.nd(NeighbourAdvertisement(PEER_V6, OUR_V6, PEER_V6, PEER, solicited=True, override=True))
    bench.clear()
    probe = NeighbourSolicitation(NO_ADDRESS, solicited_node(PEER_V6), PEER_V6)
    bench.nd(probe, multicast=True, sender=PEER)
    assert state_of(bench) is State.REACHABLE
    bench.nd(probe, multicast=True, sender=PEER_AGAIN)
    assert state_of(bench) is State.PROBE


def test_a_solicitation_with_another_hardware_address_makes_the_neighbour_stale() -> None:
    """N5."""
    bench = Bench()
    bench.send(PEER_TEXT)
    bench.nd(NeighbourAdvertisement(PEER_V6, OUR_V6, PEER_V6, PEER, solicited=True, override=True))
    bench.nd(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6, PEER))
    assert state_of(bench) is State.REACHABLE
    bench.nd(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6, PEER_AGAIN))
    info = bench.neighbour(PEER_TEXT)
    assert info is not None
    assert (info.state, info.hwaddr) == (State.STALE, PEER_AGAIN)


@pytest.mark.parametrize("hwaddr", [HwAddr(Qpn(0), PEER.gid), HwAddr(Qpn(0xFFFFFF), PEER.gid)])
def test_an_option_that_names_no_host_is_counted_and_refused(hwaddr: HwAddr) -> None:
    bench = Bench()
    bench.nd(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6, hwaddr))
    assert bench.host.counts == {"lladdr_not_unicast": 1}
    assert bench.sent == []


def test_a_hop_limit_below_255_is_counted_and_refused() -> None:
    """N2."""
    bench = Bench()
    packet = bytearray(NeighbourSolicitation(PEER_V6, OUR_V6, OUR_V6, PEER).pack())
    packet[7] = 254
    bench.raw(Encap(EtherType.IPV6, bytes(packet)).pack())
    assert bench.host.counts == {"nd_hop_limit": 1}
