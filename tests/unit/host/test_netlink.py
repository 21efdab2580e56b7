# SPDX-License-Identifier: BSD-2-Clause
"""Against the kernel, as far as it needs no privilege, and against message bytes."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from ipoibu.host.netlink import Netlink, Route, _route


def test_the_loopback_interface_is_found_by_name_and_by_index() -> None:
    with Netlink() as netlink:
        link = netlink.link("lo")
        assert link is not None
        assert (link.name, link.index) == ("lo", socket.if_nametoindex("lo"))
        assert netlink.link(link.index) == link


def test_an_interface_that_is_not_there_is_none() -> None:
    with Netlink() as netlink:
        assert netlink.link("ib-not-there") is None
        assert netlink.link(1 << 30) is None
        assert netlink.addresses(1 << 30) == set()
        assert netlink.routes(1 << 30) == []


def test_a_broken_off_answer_does_not_reach_the_next_request() -> None:
    with Netlink() as netlink:
        assert netlink.link("ib-not-there") is None
        assert netlink.link("lo") is not None


def _answer(family: int, kind: int, attributes: list[Any], bits: int) -> Any:
    message = rtmsg()
    message["family"], message["type"], message["dst_len"] = family, kind, bits
    message["table"] = 254
    message["attrs"] = attributes
    message.encode()
    decoded = rtmsg(message.data)
    decoded.decode()
    return decoded


def test_a_route_without_destination_is_the_default_route() -> None:
    answer = _answer(socket.AF_INET, 1, [["RTA_OIF", 7], ["RTA_GATEWAY", "10.0.0.9"]], 0)
    assert _route(answer, 7) == Route(
        ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_address("10.0.0.9"), "unicast"
    )
    answer = _answer(socket.AF_INET6, 1, [["RTA_OIF", 7]], 0)
    assert _route(answer, 7) == Route(ipaddress.ip_network("::/0"), None, "unicast")


def test_an_ipv4_network_may_have_an_ipv6_gateway() -> None:
    via = {"family": socket.AF_INET6, "addr": "fe80::7"}
    attributes = [["RTA_OIF", 7], ["RTA_DST", "10.6.0.0"], ["RTA_VIA", via]]
    route = _route(_answer(socket.AF_INET, 1, attributes, 16), 7)
    assert route is not None
    assert route.via == ipaddress.ip_address("fe80::7")


def test_the_first_next_hop_over_our_interface_is_taken_and_the_others_are_counted() -> None:
    hops = [
        {"oif": 3, "hops": 0, "flags": 0, "attrs": [["RTA_GATEWAY", "10.3.0.1"]]},
        {"oif": 7, "hops": 0, "flags": 0, "attrs": [["RTA_GATEWAY", "10.7.0.1"]]},
        {"oif": 7, "hops": 0, "flags": 0, "attrs": [["RTA_GATEWAY", "10.7.0.2"]]},
    ]
    attributes = [["RTA_DST", "10.8.0.0"], ["RTA_MULTIPATH", hops]]
    answer = _answer(socket.AF_INET, 1, attributes, 16)
    route = _route(answer, 7)
    assert route is not None
    assert (route.via, route.paths) == (ipaddress.ip_address("10.7.0.1"), 3)
    assert _route(answer, 8) is None


@pytest.mark.parametrize("kind", [2, 4, 5, 7], ids=["local", "anycast", "multicast", "unreachable"])
def test_routes_whose_packets_never_reach_the_interface_are_left_out(kind: int) -> None:
    answer = _answer(socket.AF_INET, kind, [["RTA_OIF", 7], ["RTA_DST", "10.0.0.1"]], 32)
    assert _route(answer, 7) is None


def test_a_broadcast_route_keeps_its_kind() -> None:
    answer = _answer(socket.AF_INET, 3, [["RTA_OIF", 7], ["RTA_DST", "10.0.0.255"]], 32)
    route = _route(answer, 7)
    assert route is not None
    assert route.kind == "broadcast"
