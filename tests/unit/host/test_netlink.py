# SPDX-License-Identifier: BSD-2-Clause
"""Against the kernel, as far as it needs no privilege, and against message bytes."""

from __future__ import annotations

import socket

from ipoibu.host.netlink import Netlink
from ipoibu.host.route_message import RouteReader


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
        assert list(netlink.routes(1 << 30, RouteReader(1 << 30))) == []


def test_a_broken_off_answer_does_not_reach_the_next_request() -> None:
    with Netlink() as netlink:
        assert netlink.link("ib-not-there") is None
        assert netlink.link("lo") is not None
