# SPDX-License-Identifier: BSD-2-Clause
"""Own addresses: probing, announcing, choosing a source, removal."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network

import pytest

from ipoibu.base.addr import Gid, HwAddr, IpAddress, Qpn
from ipoibu.base.limits import ADDRESSES_MAX, ANNOUNCE_COUNT
from ipoibu.proto.context import Dad
from ipoibu.proto.effects import AddressVerdict, Attach, Detach, OwnAddress
from ipoibu.proto.neigh.dad import State
from ipoibu.proto.neigh.proxy_networks import ProxyRules
from ipoibu.wire import arp, ndisc
from ipoibu.wire.mgid import of_group, solicited_node
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

MOVED = HwAddr(Qpn(0x777), Gid.parse("fe80::777"))


def states(bench: Bench) -> dict[IpAddress, State]:
    return {info.address: info.state for info in bench.host.engine.addresses()}


def test_an_address_waits_for_the_link_then_is_tentative_then_preferred() -> None:
    bench = Bench(ready=False)
    assert bench.sent == []
    assert states(bench) == {OUR_V4: State.TENTATIVE, OUR_V6: State.TENTATIVE}
    bench.run(0.9)
    assert states(bench) == {OUR_V4: State.PREFERRED, OUR_V6: State.TENTATIVE}
    bench.run(0.2)
    assert states(bench) == {OUR_V4: State.PREFERRED, OUR_V6: State.PREFERRED}
    assert bench.host.verdicts == {OUR_V4: False, OUR_V6: False}


def test_an_ipv6_address_is_not_probed_for_before_its_group_is_joined() -> None:
    """L1: RFC 4862 §5.4.2: a host that cannot receive objections must not take silence for consent."""
    group = of_group(solicited_node(OUR_V6), TEMPLATE.params.pkey)
    bench = Bench("fe80::1/64", ready=False)
    bench.host.refused.add(group)
    bench.run(5)
    assert bench.sent == []
    assert states(bench) == {OUR_V6: State.TENTATIVE}
    bench.host.refused.clear()
    bench.run(10)
    assert states(bench) == {OUR_V6: State.PREFERRED}


def test_without_probes_an_address_is_taken_and_announced_at_once() -> None:
    bench = Bench(template=replace(TEMPLATE, arp_probes=0, dad_transmits=0), ready=False)
    bench.run(0.001)
    assert states(bench) == {OUR_V4: State.PREFERRED, OUR_V6: State.PREFERRED}
    assert [m.sender_ip for _, m in bench.sent_arp()] == [OUR_V4]
    assert [type(m) for _, m in bench.sent_nd()] == [ndisc.NeighbourAdvertisement]


def test_an_optimistic_address_is_probed_for_then_announced_and_defended() -> None:
    """RFC 4429: by the policy of the family."""
    template = replace(TEMPLATE, dad_ipv6=Dad.OPTIMISTIC)
    bench = Bench(f"{OUR_V6}/64", template=template, ready=False)
    bench.run(0.5)
    assert states(bench) == {OUR_V6: State.OPTIMISTIC}
    assert [type(m) for _, m in bench.sent_nd()] == [ndisc.NeighbourSolicitation]
    bench.run(10)
    assert states(bench) == {OUR_V6: State.PREFERRED}
    assert bench.host.verdicts == {OUR_V6: False}
    bench.clear()
    claim = ndisc.NeighbourAdvertisement(OUR_V6, ndisc.ALL_NODES, OUR_V6, PEER, override=True)
    bench.nd(claim, multicast=True)
    assert [type(m) for _, m in bench.sent_nd()] == [ndisc.NeighbourAdvertisement]


def test_a_neighbour_is_asked_once_the_optimistic_address_is_ours() -> None:
    """RFC 4429 §3.2: not before; the packet waits meanwhile."""
    template = replace(TEMPLATE, dad_ipv6=Dad.OPTIMISTIC)
    bench = Bench(f"{OUR_V6}/64", template=template, ready=False)
    bench.run(0.5)
    bench.clear()
    bench.host.send(packet(str(OUR_V6), str(PEER_V6), b"hello"))
    bench.run(0.4)
    assert bench.sent_nd() == []
    bench.run(0.2)
    asked = [m for _, m in bench.sent_nd() if isinstance(m, ndisc.NeighbourSolicitation)]
    assert [(m.source, m.target) for m in asked] == [(OUR_V6, PEER_V6)]


def test_an_optimistic_address_that_another_host_probes_for_is_a_duplicate() -> None:
    """L4: RFC 4429 changes nothing about that."""
    template = replace(TEMPLATE, dad_ipv6=Dad.OPTIMISTIC)
    bench = Bench(f"{OUR_V6}/64", template=template, ready=False)
    bench.run(0.5)
    probe = ndisc.NeighbourSolicitation(IPv6Address(0), solicited_node(OUR_V6), OUR_V6)
    bench.nd(probe, multicast=True)
    assert states(bench) == {OUR_V6: State.DUPLICATE}
    assert bench.host.verdicts == {OUR_V6: True}


def test_a_router_has_no_optimistic_addresses() -> None:
    """RFC 4429 is about hosts."""
    template = replace(TEMPLATE, dad_ipv6=Dad.OPTIMISTIC, is_router=True)
    bench = Bench(f"{OUR_V6}/64", template=template, ready=False)
    bench.run(0.5)
    assert states(bench) == {OUR_V6: State.TENTATIVE}


def test_the_number_of_announcements_and_their_distance_are_the_configuration_s() -> None:
    template = replace(TEMPLATE, arp_probes=0, announce_count=5, announce_interval_s=0.1)
    bench = Bench("10.0.0.1/24", template=template, ready=False)
    bench.run(0.45)
    assert len(bench.sent) == 5
    bench.run(10)
    assert len(bench.sent) == 5


def test_a_removed_address_is_silent_and_its_group_is_left() -> None:
    bench = Bench()
    bench.host.remove(ip_interface(f"{OUR_V6}/64"))
    bench.host.remove(ip_interface(f"{OUR_V4}/24"))
    bench.run(2)
    group = of_group(solicited_node(OUR_V6), TEMPLATE.params.pkey)
    assert Detach(group) in bench.host.effects
    bench.clear()
    bench.arp(arp.request(PEER, IPv4Address("10.0.0.2"), OUR_V4))
    assert bench.sent == []
    assert states(bench) == {}


def test_removing_an_address_in_the_middle_of_probing_ends_it_without_a_verdict() -> None:
    bench = Bench("10.0.0.1/24", ready=False)
    bench.run(0.1)
    bench.host.remove(ip_interface("10.0.0.1/24"))
    bench.run(10)
    assert bench.host.verdicts == {}
    assert bench.host.engine.deadline() is None


def test_removing_what_was_never_there_changes_nothing() -> None:
    bench = Bench()
    bench.host.remove(ip_interface("10.0.0.77/24"))
    bench.host.remove(ip_interface("fe80::77/64"))
    assert bench.host.effects == []


def test_addresses_that_share_a_solicited_node_group_share_its_membership() -> None:
    bench = Bench("fe80::1/64", "2001:db8::1/64")
    group = of_group(solicited_node(OUR_V6), TEMPLATE.params.pkey)
    bench.host.remove(ip_interface("fe80::1/64"))
    bench.run(5)
    assert group in bench.host.groups
    bench.host.remove(ip_interface("2001:db8::1/64"))
    bench.run(5)
    assert group not in bench.host.groups


def test_the_same_address_with_two_prefixes_stays_until_both_are_gone() -> None:
    bench = Bench("10.0.0.1/24")
    bench.host.add(ip_interface("10.0.0.1/16"))
    assert bench.sent == []
    bench.host.remove(ip_interface("10.0.0.1/24"))
    assert states(bench) == {OUR_V4: State.PREFERRED}
    bench.host.remove(ip_interface("10.0.0.1/16"))
    assert states(bench) == {}


def test_a_link_that_goes_down_and_comes_up_asks_again() -> None:
    bench = Bench("10.0.0.1/24")
    bench.host.carry_out(bench.host.engine.port_event(bench.now, "down"))
    assert states(bench) == {OUR_V4: State.TENTATIVE}
    bench.host.carry_out(bench.host.engine.port_event(bench.now, "up"))
    bench.run(10)
    assert [m.sender_ip == OUR_V4 for _, m in bench.sent_arp()] == [False] * 3 + [True] * 3
    assert bench.host.effects.count(AddressVerdict(OUR_V4, duplicate=False)) == 1


def test_a_duplicate_is_tried_again_when_the_link_comes_up_again() -> None:
    bench = Bench("10.0.0.1/24", ready=False)
    bench.run(0.1)
    bench.arp(arp.request(PEER, OUR_V4, OUR_V4), multicast=True)
    assert states(bench) == {OUR_V4: State.DUPLICATE}
    for event in ("down", "up"):
        bench.host.carry_out(bench.host.engine.port_event(bench.now, event))
    bench.run(10)
    assert states(bench) == {OUR_V4: State.PREFERRED}


def test_an_ipv4_conflict_is_defended_once_in_ten_seconds_and_the_address_is_kept() -> None:
    """RFC 5227 §2.4 (c)."""
    bench = Bench("10.0.0.1/24")
    for _ in range(30):
        bench.arp(arp.request(PEER, OUR_V4, OUR_V4), multicast=True)
        bench.run(1)
    assert [m for _, m in bench.sent_arp()] == [arp.request(bench.host.hwaddr, OUR_V4, OUR_V4)] * 3
    assert states(bench) == {OUR_V4: State.PREFERRED}
    assert bench.host.log[0] == f"address 10.0.0.1 is also used by {PEER}"


def test_a_conflict_while_announcing_is_answered_at_once() -> None:
    bench = Bench("10.0.0.1/24", ready=False)
    bench.run(0.9)
    bench.clear()
    bench.arp(arp.request(PEER, OUR_V4, OUR_V4), multicast=True)
    assert [m for _, m in bench.sent_arp()] == [arp.request(bench.host.hwaddr, OUR_V4, OUR_V4)]


@pytest.mark.parametrize("address", ["0.0.0.0/8", "127.0.0.1/8", "::1/128", "224.0.0.1/4"])
def test_an_address_that_no_interface_can_have_is_ignored(address: str) -> None:
    bench = Bench()
    bench.host.add(ip_interface(address))
    assert bench.host.effects == []
    assert len(states(bench)) == 2


def test_addresses_beyond_the_cap_are_refused_and_leave_no_group_behind() -> None:
    bench = Bench(*(f"10.0.{i // 250}.{i % 250 + 1}/16" for i in range(ADDRESSES_MAX)))
    bench.host.add(ip_interface("fe80::5/64"))
    bench.run(5)
    assert bench.host.counts["address_table_full"] == 1
    group = of_group(solicited_node(ip_address("fe80::5")), TEMPLATE.params.pkey)  # type: ignore[arg-type]
    assert group not in bench.host.groups
    assert len(states(bench)) == ADDRESSES_MAX


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("10.0.0.9", "10.0.0.1"),
        ("10.7.0.9", "10.7.0.1"),
        ("192.0.2.1", "10.0.0.1"),
        ("fe80::9", "fe80::1"),
        ("2001:db8::9", "2001:db8::1"),
        ("2001:db8:9::9", "2001:db8::1"),
    ],
)
def test_we_ask_from_the_target_s_subnet_or_at_least_its_scope(target: str, source: str) -> None:
    bench = Bench("10.0.0.1/24", "10.7.0.1/16", "fe80::1/64", "2001:db8::1/64")
    foreign = ip_address("192.0.2.99" if ip_address(target).version == 4 else "2001:db8:5::5")
    data = packet(str(foreign), target, b"forwarded")
    bench.host.carry_out(bench.host.engine.miss(bench.now, ip_address(target), data))
    asked: list[IpAddress] = [m.sender_ip for _, m in bench.sent_arp()]
    asked += [m.source for _, m in bench.sent_nd()]
    assert asked == [ip_address(source)]


def test_an_attach_asks_for_the_solicited_node_group_of_each_new_address() -> None:
    bench = Bench("10.0.0.1/24")
    bench.host.add(ip_interface("2001:db8::abcd:1234/64"))
    address = ip_address("2001:db8::abcd:1234")
    assert bench.host.effects == [
        Attach(of_group(ip_address("ff02::1:ffcd:1234"), TEMPLATE.params.pkey)),
        OwnAddress(address, is_ours=True),
    ]


WATCHED = replace(TEMPLATE, dad_ipv4=Dad.WARN, dad_ipv6=Dad.WARN)


def test_a_watched_address_is_ours_at_once_and_one_probe_looks_for_another_owner() -> None:
    bench = Bench("10.0.0.1/24", template=WATCHED, ready=False)
    bench.run(0.001)
    assert states(bench) == {OUR_V4: State.PREFERRED}
    assert [m.sender_ip for _, m in bench.sent_arp()] == [OUR_V4, IPv4Address(0)]
    bench.run(10)
    assert [m.sender_ip for _, m in bench.sent_arp()].count(IPv4Address(0)) == 1


def test_a_watched_address_stays_whatever_others_claim_and_is_not_contested() -> None:
    """A VRRP router that takes an address over gets no answer to its announcement, as from the kernel."""
    bench = Bench("10.0.0.1/24", template=WATCHED, ready=False)
    bench.run(10)
    bench.clear()
    for _ in range(3):
        bench.arp(arp.request(PEER, OUR_V4, OUR_V4))
    bench.run(0.9)
    assert bench.sent == []
    assert states(bench) == {OUR_V4: State.PREFERRED}
    assert bench.host.counts["address_conflict"] == 3
    bench.arp(arp.request(PEER, IPv4Address(0), OUR_V4))
    assert [m.target_ip for _, m in bench.sent_arp()] == [IPv4Address(0)]  # an answer: it is in use


def test_an_unchecked_address_is_ours_at_once_under_any_policy() -> None:
    bench = Bench("10.0.0.1/24")
    bench.clear()
    added = bench.host.engine.address_added(bench.now, ip_interface("10.0.0.9/24"), False)
    bench.host.carry_out(added)
    bench.run(0.001)
    assert [m.sender_ip for _, m in bench.sent_arp()] == [IPv4Address("10.0.0.9")]
    assert states(bench)[ip_address("10.0.0.9")] is State.PREFERRED


def test_a_contested_address_is_announced_once_its_other_owner_is_gone() -> None:
    """keepalived announces nothing on a TUN when a router that was frozen becomes master again."""
    bench = Bench("10.0.0.1/24", template=WATCHED, ready=False)
    bench.run(10)
    bench.clear()
    bench.arp(arp.request(PEER, OUR_V4, OUR_V4))
    for _ in range(20):
        bench.run(0.5)
        if bench.sent:  # a check, which the other host answers
            assert [m.sender_ip for _, m in bench.sent_arp()] == [IPv4Address(0)]
            bench.arp(arp.request(PEER, OUR_V4, OUR_V4))
        bench.clear()
    bench.run(5)
    assert [m.sender_ip for _, m in bench.sent_arp()][-2:] == [OUR_V4, OUR_V4]
    bench.clear()
    bench.run(100)
    assert bench.sent == []


def test_another_hardware_address_is_announced_and_nothing_else_changes() -> None:
    """A5: a rail that takes over, whose queue pair is in all groups already."""
    bench = Bench(ready=False)
    bench.run(10)
    bench.clear()
    engine = bench.host.engine
    bench.host.carry_out(engine.note_moved(bench.now, MOVED))
    bench.run(10)
    assert {m.sender_ip for _, m in bench.sent_arp()} == {OUR_V4}
    assert {m.sender_hwaddr for _, m in bench.sent_arp()} == {MOVED}
    assert len(bench.sent_arp()) == len(bench.sent_nd()) == ANNOUNCE_COUNT
    assert states(bench) == {OUR_V4: State.PREFERRED, OUR_V6: State.PREFERRED}
    bench.host.carry_out(engine.port_event(bench.now, "down"))
    bench.clear()
    bench.host.carry_out(
        engine.note_moved(bench.now, MOVED)
    )  # the link announces it when it comes up
    assert bench.sent == []


@pytest.mark.parametrize("is_known", [True, False])
def test_a_host_that_moves_after_us_hears_our_address_at_once(is_known: bool) -> None:
    """It may not have heard our announcement, by a wire that was a backup's then."""
    bench = Bench()
    engine = bench.host.engine
    if is_known:
        bench.arp(arp.request(PEER, PEER_V4, OUR_V4))
    bench.host.carry_out(engine.note_moved(bench.now, MOVED))
    bench.run(0.1)
    bench.clear()
    bench.arp(arp.request(PEER_AGAIN, PEER_V4, PEER_V4), multicast=True)
    assert [(m.sender_ip, m.sender_hwaddr) for _, m in bench.sent_arp()] == [(OUR_V4, MOVED)]
    assert [type(m) for _, m in bench.sent_nd()] == [ndisc.NeighbourAdvertisement]
    bench.run(10)
    assert len(bench.sent_arp()) == ANNOUNCE_COUNT  # the other regular ones
    bench.clear()
    bench.arp(arp.request(PEER, PEER_V4, PEER_V4), multicast=True)  # it moves back, much later
    bench.run(10)
    assert bench.sent_arp() == []


def test_a_rail_without_a_queue_pair_of_its_own_is_announced_again_too() -> None:
    """Its link comes up anew, and knows no neighbours then."""
    bench = Bench()
    engine = bench.host.engine
    engine.keep_ours()
    bench.host.carry_out(engine.port_event(bench.now, "down"))
    bench.host.carry_out(engine.port_event(bench.now, "up"))
    bench.run(0.1)
    bench.clear()
    advertisement = ndisc.NeighbourAdvertisement(
        PEER_V6, ndisc.ALL_NODES, PEER_V6, PEER_AGAIN, override=True
    )
    bench.nd(advertisement, multicast=True)
    assert [m.sender_ip for _, m in bench.sent_arp()] == [OUR_V4]
    assert [type(m) for _, m in bench.sent_nd()] == [ndisc.NeighbourAdvertisement]


def test_hosts_that_move_all_the_time_get_ever_fewer_announcements() -> None:
    bench = Bench()
    bench.arp(arp.request(PEER, PEER_V4, OUR_V4))
    bench.host.carry_out(bench.host.engine.note_moved(bench.now, MOVED))
    bench.clear()
    for _ in range(1000):
        for hwaddr in (PEER_AGAIN, PEER):
            bench.arp(arp.request(hwaddr, PEER_V4, PEER_V4), multicast=True)
        bench.run(0.01)
    assert len(bench.sent_arp()) < 15
    assert bench.host.counts["moved_again"] < 12


def test_hosts_behind_us_are_announced_again_with_us() -> None:
    bench = Bench()
    engine, behind = bench.host.engine, IPv4Address("10.0.0.50")
    network = ip_network("10.0.0.48/29")
    rules = ProxyRules((network,), behind=frozenset({behind}))
    bench.host.carry_out(engine.proxied_changed(bench.now, rules))
    bench.arp(arp.request(PEER, PEER_V4, OUR_V4))
    bench.run(10)
    bench.host.carry_out(engine.note_moved(bench.now, MOVED))
    bench.run(0.1)
    bench.clear()
    bench.arp(arp.request(PEER_AGAIN, PEER_V4, PEER_V4), multicast=True)
    assert {m.sender_ip for _, m in bench.sent_arp()} == {OUR_V4, behind}


def test_addresses_that_were_ours_are_announced_at_once_over_another_queue_pair() -> None:
    """A rail that takes over: the link is the same, so nobody had time to take the addresses."""
    bench = Bench(ready=False)
    bench.run(10)
    bench.clear()
    engine = bench.host.engine
    engine.keep_ours()
    for event in ("down", "up"):
        bench.host.carry_out(engine.port_event(bench.now, event))
    bench.run(0.001)
    assert states(bench) == {OUR_V4: State.PREFERRED, OUR_V6: State.PREFERRED}
    assert [m.sender_ip for _, m in bench.sent_arp()] == [OUR_V4]
    assert [type(m) for _, m in bench.sent_nd()] == [ndisc.NeighbourAdvertisement]
    for event in ("down", "up"):  # once only
        bench.host.carry_out(engine.port_event(bench.now, event))
    bench.run(0.001)
    assert states(bench) == {OUR_V4: State.TENTATIVE, OUR_V6: State.TENTATIVE}
