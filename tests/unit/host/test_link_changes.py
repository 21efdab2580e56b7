# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import struct

import pytest

from ipoibu.host.link_changes import LinkChanges
from ipoibu.host.monitor import Notice
from ipoibu.host.netlink import IFF_UP, RTM_DELLINK, RTM_NEWLINK

CREATED = 0xFFFFFFFF
VRF = 9


def notice(
    *, up: bool = False, change: int = 0, master: int | None = None, kind: int = RTM_NEWLINK
) -> Notice:
    attribute = b"" if master is None else struct.pack("=HHI", 8, 10, master)
    header = struct.pack("=IHHII", 32 + len(attribute), kind, 0, 0, 0)
    link = struct.pack("=BxHiII", 0, 1, 7, IFF_UP if up else 0, change)
    return Notice(kind, 0, header + link + attribute, 0)


@pytest.fixture
def links() -> LinkChanges:
    """An interface that came into being, and has not been up."""
    links = LinkChanges()
    assert not links.matter(notice(change=CREATED))
    return links


def test_an_interface_that_comes_up_for_the_first_time_has_no_routes_to_restore(
    links: LinkChanges,
) -> None:
    assert not links.matter(notice())
    assert not links.matter(notice(up=True))
    assert not links.matter(notice(up=True)), "its carrier"


def test_an_interface_that_goes_down_loses_local_routes_and_gets_them_back(
    links: LinkChanges,
) -> None:
    links.matter(notice(up=True))
    assert links.matter(notice())
    assert links.matter(notice())
    assert links.matter(notice(up=True))
    assert not links.matter(notice(up=True))


@pytest.mark.parametrize("up", [False, True])
def test_a_vrf_moves_local_routes_to_another_table(links: LinkChanges, up: bool) -> None:
    links.matter(notice(up=up))
    assert links.matter(notice(up=up, master=VRF))
    assert links.matter(notice(up=up))


def test_an_interface_that_a_vrf_took_before_it_was_up_matters_when_it_comes_up(
    links: LinkChanges,
) -> None:
    assert links.matter(notice(master=VRF))
    assert links.matter(notice(up=True, master=VRF))


def test_an_interface_that_was_there_before_matters_once() -> None:
    links = LinkChanges()
    assert links.matter(notice(up=True))
    assert not links.matter(notice(up=True))
    links.forget()
    assert links.matter(notice(up=True))


def test_an_interface_that_is_gone_has_sent_its_addresses_away_before(links: LinkChanges) -> None:
    assert not links.matter(notice(kind=RTM_DELLINK))
    assert links.matter(notice(up=True)), "another one with the same index"
