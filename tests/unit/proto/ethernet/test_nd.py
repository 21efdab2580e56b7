# SPDX-License-Identifier: BSD-2-Clause
"""Neighbour discovery between guests behind a TAP and hosts of the link."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from ipoibu.base.addr import Mac
from ipoibu.proto.ethernet.macs import hashed
from ipoibu.wire import ndisc
from ipoibu.wire.ethernet import group_mac
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
from ipoibu.wire.ndopt import LinkLayer, Option
from tests.doubles.ethernet_bench import (
    GUEST,
    GUEST2,
    GUEST_V6,
    OTHER,
    OUR,
    PEER,
    PEER_V6,
    Lan,
    with_option,
)
from tests.doubles.simulation import PARAMS

GUEST_GLOBAL = IPv6Address("fd77::11")
PREFIX = Option(3, bytes(30))
UNSPECIFIED = IPv6Address(0)


@pytest.fixture
def lan() -> Lan:
    lan = Lan()
    lan.clear()
    return lan


def solicitation(target: IPv6Address = PEER_V6) -> NeighbourSolicitation:
    return NeighbourSolicitation(
        GUEST_V6, solicited_node(target), target, options=with_option(GUEST)
    )


def group_of(ip: IPv6Address) -> object:
    return of_group(solicited_node(ip), PARAMS.pkey, PARAMS.scope)


def test_a_guests_solicitation_has_our_address_on_the_link(lan: Lan) -> None:
    """H3."""
    lan.guest_nd(solicitation())
    [(destination, message)] = lan.sent_nd()
    assert destination.gid == group_of(PEER_V6)
    assert message == NeighbourSolicitation(GUEST_V6, solicited_node(PEER_V6), PEER_V6, OUR)
    assert lan.guests == {GUEST_V6: (GUEST, True)}
    assert group_of(GUEST_V6) in lan.groups


def test_the_answer_of_a_host_names_its_mac(lan: Lan) -> None:
    """H3."""
    lan.guest_nd(solicitation())
    answer = NeighbourAdvertisement(
        PEER_V6, GUEST_V6, PEER_V6, PEER, router=True, solicited=True, override=True
    )
    lan.link_nd(answer)
    [(frame, message, named)] = lan.nd_frames()
    assert (frame.destination, frame.source, named) == (GUEST, hashed(PEER), hashed(PEER))
    assert isinstance(message, NeighbourAdvertisement)
    assert (message.router, message.solicited, message.override) == (True, True, True)
    assert len(frame.payload) == 40 + 24 + 8, "the option of Ethernet has 8 bytes"


def test_a_guest_answers_a_host_of_the_link_itself(lan: Lan) -> None:
    question = NeighbourSolicitation(PEER_V6, solicited_node(GUEST_V6), GUEST_V6, PEER)
    lan.link_nd(question)
    [(frame, message, mac)] = lan.nd_frames()
    assert frame.destination == group_mac(solicited_node(GUEST_V6))
    assert isinstance(message, NeighbourSolicitation)
    assert mac is not None
    answer = NeighbourAdvertisement(
        GUEST_V6,
        PEER_V6,
        GUEST_V6,
        options=with_option(GUEST, LinkLayer.TARGET),
        solicited=True,
        override=True,
    )
    lan.guest_nd(answer, destination=mac)
    [(destination, sent)] = lan.sent_nd()
    assert (destination.gid, destination.qpn) == (PEER.gid, PEER.qpn)
    assert sent == question.answer(OUR)


def test_duplicate_detection_of_a_guest_works_across_the_link(lan: Lan) -> None:
    probe = NeighbourSolicitation(UNSPECIFIED, solicited_node(GUEST_V6), GUEST_V6)
    lan.guest_nd(probe)
    assert [it for _, it in lan.sent_nd()] == [probe]
    assert group_of(GUEST_V6) in lan.groups, "another host's probe must reach the guest"
    assert not lan.guests, "nobody has the address yet"
    lan.link_nd(NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, PEER, override=True))
    [(frame, message, _)] = lan.nd_frames()
    assert frame.destination == group_mac(ALL_NODES)
    assert isinstance(message, NeighbourAdvertisement)
    lan.run(5)
    assert group_of(GUEST_V6) not in lan.groups


def test_a_silent_guest_is_asked_once_its_probes_are_over(lan: Lan) -> None:
    lan.guest_nd(NeighbourSolicitation(UNSPECIFIED, solicited_node(GUEST_V6), GUEST_V6))
    lan.run(2.5)
    [(frame, question, _)] = lan.nd_frames()
    assert frame.destination == GUEST
    assert isinstance(question, NeighbourSolicitation)
    assert question.source.is_link_local
    assert question.target == GUEST_V6
    answer = NeighbourAdvertisement(
        GUEST_V6,
        question.source,
        GUEST_V6,
        options=with_option(GUEST, LinkLayer.TARGET),
        solicited=True,
    )
    lan.clear()
    lan.guest_nd(answer, destination=lan.mac)
    assert lan.guests == {GUEST_V6: (GUEST, True)}
    assert not lan.sent, "the answer is ours"


def test_router_discovery_goes_both_ways(lan: Lan) -> None:
    lan.guest_nd(RouterSolicitation(GUEST_V6, ALL_ROUTERS, options=with_option(GUEST)))
    assert [it for _, it in lan.sent_nd()] == [RouterSolicitation(GUEST_V6, ALL_ROUTERS, OUR)]
    lan.clear()
    offered = RouterAdvertisement(PEER_V6, ALL_NODES, PEER, (PREFIX,), 64, 0x40, 1800)
    lan.link_nd(offered)
    [(frame, message, named)] = lan.nd_frames()
    assert (frame.destination, named) == (group_mac(ALL_NODES), hashed(PEER))
    assert isinstance(message, RouterAdvertisement)
    assert (message.options[-1], message.lifetime_s, message.flags) == (PREFIX, 1800, 0x40)
    lan.clear()
    lan.guest_nd(
        RouterAdvertisement(GUEST_V6, ALL_NODES, None, (*with_option(GUEST), PREFIX), 64, 0, 900)
    )
    assert [it for _, it in lan.sent_nd()] == [
        RouterAdvertisement(GUEST_V6, ALL_NODES, OUR, (PREFIX,), 64, 0, 900)
    ]


def test_a_redirect_names_a_neighbour_or_a_guest(lan: Lan) -> None:
    lan.guest_nd(solicitation())
    lan.clear()
    redirect = Redirect(PEER_V6, GUEST_V6, IPv6Address("fe80::3"), GUEST_GLOBAL, OTHER)
    lan.link_nd(redirect)
    [(frame, _, named)] = lan.nd_frames()
    assert (frame.destination, frame.source, named) == (GUEST, hashed(PEER), hashed(OTHER))
    lan.clear()
    lan.link_nd(Redirect(PEER_V6, GUEST_V6, GUEST_V6, IPv6Address("fd77::9"), OUR))
    assert lan.nd_frames()[0][2] == GUEST
    lan.clear()
    options = with_option(hashed(OTHER), LinkLayer.TARGET)
    lan.guest_nd(
        Redirect(GUEST_V6, PEER_V6, IPv6Address("fe80::3"), GUEST_GLOBAL, options=options),
        destination=hashed(PEER),
    )
    [(destination, message)] = lan.sent_nd()
    assert destination.qpn == PEER.qpn
    assert isinstance(message, Redirect)
    assert message.lladdr == OTHER


def test_a_solicitation_to_a_mac_from_before_our_restart_asks_the_group(lan: Lan) -> None:
    question = NeighbourSolicitation(GUEST_V6, PEER_V6, PEER_V6, options=with_option(GUEST))
    lan.guest_nd(question, destination=hashed(PEER))
    [(destination, message)] = lan.sent_nd()
    assert destination.gid == group_of(PEER_V6)
    assert isinstance(message, NeighbourSolicitation)
    assert message.lladdr == OUR


def test_an_advertisement_to_an_unknown_mac_is_a_counted_drop(lan: Lan) -> None:
    answer = NeighbourAdvertisement(GUEST_V6, PEER_V6, GUEST_V6, solicited=True)
    lan.guest_nd(answer, destination=Mac.parse("02:00:00:00:00:99"))
    assert not lan.sent
    assert lan.counts == {"ethernet_unknown_mac": 1}


def test_an_option_that_names_another_guest_is_dropped(lan: Lan) -> None:
    message = NeighbourSolicitation(
        GUEST_V6, solicited_node(PEER_V6), PEER_V6, options=with_option(GUEST2)
    )
    lan.guest_nd(message)
    assert not lan.sent
    assert not lan.guests
    assert lan.counts == {"ethernet_spoofed": 1}


def test_a_guest_without_an_address_asks_for_routers(lan: Lan) -> None:
    lan.guest_nd(RouterSolicitation(UNSPECIFIED, ALL_ROUTERS))
    assert [it for _, it in lan.sent_nd()] == [RouterSolicitation(UNSPECIFIED, ALL_ROUTERS)]
    assert not lan.guests


def test_an_answer_in_the_place_of_the_owner_takes_no_address(lan: Lan) -> None:
    """H4: a guest is a proxy for the address of another one."""
    lan.guest_nd(NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, override=True))
    lan.guest_nd(NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, override=False), GUEST2)
    assert lan.guests[GUEST_V6] == (GUEST, True)
    lan.guest_nd(NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, override=True), GUEST2)
    assert lan.guests[GUEST_V6] == (GUEST2, True)


def test_a_solicitation_is_no_announcement(lan: Lan) -> None:
    lan.guest_nd(solicitation())
    lan.clear()
    rival = NeighbourSolicitation(
        GUEST_V6, solicited_node(PEER_V6), PEER_V6, options=with_option(GUEST2)
    )
    lan.guest_nd(rival, GUEST2)
    assert not lan.sent
    assert lan.counts == {"ethernet_spoofed": 1}
    assert lan.guests == {GUEST_V6: (GUEST, True)}


def test_a_host_that_claims_our_hardware_address_is_ignored(lan: Lan) -> None:
    """E8."""
    lan.link_nd(NeighbourSolicitation(PEER_V6, solicited_node(GUEST_V6), GUEST_V6, OUR))
    assert not lan.frames
    assert lan.counts == {"echo": 1}


@pytest.mark.parametrize(
    ("message", "held"),
    [
        (NeighbourSolicitation(GUEST_V6, solicited_node(PEER_V6), PEER_V6, PEER), "checking"),
        (NeighbourSolicitation(GUEST_V6, solicited_node(PEER_V6), PEER_V6), "claimed"),
        (NeighbourSolicitation(UNSPECIFIED, solicited_node(GUEST_V6), GUEST_V6), "claimed"),
        (NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, PEER), "checking"),
        (
            NeighbourAdvertisement(
                GUEST_V6, PEER_V6, GUEST_V6, PEER, solicited=True, override=True
            ),
            "checking",
        ),
        (NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, PEER, override=True), None),
    ],
)
def test_a_host_takes_an_address_by_an_announcement_alone(
    lan: Lan, message: ndisc.Message, held: str | None
) -> None:
    lan.guest_nd(solicitation())
    lan.clear()
    lan.link_nd(message)
    states = [it.state.value for it in lan.ethernet.guests(lan.now)]
    assert states == ([] if held is None else [held])
    assert type(message) in {type(it) for _, it, _ in lan.nd_frames()}, "the guests hear of it"


def test_no_host_takes_a_bound_address() -> None:
    lan = Lan({GUEST: frozenset({GUEST_V6})})
    lan.clear()
    lan.link_nd(NeighbourAdvertisement(GUEST_V6, ALL_NODES, GUEST_V6, PEER, override=True))
    assert not lan.frames
    assert lan.counts == {"ethernet_spoofed": 1}
    assert lan.guests == {GUEST_V6: (GUEST, True)}


def test_a_host_that_names_another_one_is_dropped(lan: Lan) -> None:
    question = NeighbourSolicitation(PEER_V6, solicited_node(GUEST_V6), GUEST_V6, PEER)
    lan.link_nd(question, sender=OTHER)
    assert not lan.frames
    assert lan.counts == {"neigh_contradiction": 1}


def test_a_router_that_names_another_host_is_heard_without_its_option(lan: Lan) -> None:
    advertisement = RouterAdvertisement(PEER_V6, ALL_NODES, lifetime_s=1800, lladdr=PEER)
    lan.link_nd(advertisement, sender=OTHER)
    assert lan.counts == {"neigh_contradiction": 1}
    ((_, heard, option),) = lan.nd_frames()
    assert heard == replace(advertisement, lladdr=None)
    assert option is None


@pytest.mark.parametrize(
    ("address", "reason"),
    [(bytes(14), "lladdr_length"), (b"\x33" * 6, "lladdr_not_unicast")],
)
def test_a_bad_address_of_a_guest_is_counted(lan: Lan, address: bytes, reason: str) -> None:
    options = (Option(LinkLayer.SOURCE, address),)
    lan.guest_nd(NeighbourSolicitation(GUEST_V6, PEER_V6, PEER_V6, options=options), GUEST, GUEST2)
    assert lan.counts == {reason: 1}
    assert not lan.sent


def test_a_probe_must_not_have_an_address(lan: Lan) -> None:
    probe = NeighbourSolicitation(
        UNSPECIFIED, solicited_node(GUEST_V6), GUEST_V6, options=with_option(GUEST)
    )
    lan.guest_nd(probe)
    assert lan.counts == {"nd_source": 1}


def test_an_advertisement_that_grows_beyond_the_mtu_is_dropped(lan: Lan) -> None:
    many = tuple(Option(3, bytes(30)) for _ in range(61))
    lan.guest_nd(
        RouterAdvertisement(GUEST_V6, ALL_NODES, options=(*with_option(GUEST), *many, *many[:1]))
    )
    assert not lan.sent
    assert lan.counts == {"ethernet_too_long": 1}


def test_without_ipv6_a_guests_ipv6_is_refused() -> None:
    lan = Lan(mtu_bytes=1000)
    lan.clear()
    lan.guest_nd(solicitation())
    lan.link_nd(NeighbourSolicitation(PEER_V6, solicited_node(GUEST_V6), GUEST_V6, PEER))
    assert lan.counts == {"ipv6_refused": 2}
    assert not lan.sent
    assert not lan.frames


def test_a_relinked_packet_is_a_valid_one() -> None:
    packet = NeighbourSolicitation(PEER_V6, GUEST_V6, GUEST_V6, PEER).pack()
    relinked = ndisc.relinked_untrusted(packet)
    assert relinked.is_source
    assert relinked.pack(relinked.address) == packet
    assert ndisc.parse_untrusted(relinked.pack(None)) == NeighbourSolicitation(
        PEER_V6, GUEST_V6, GUEST_V6
    )
