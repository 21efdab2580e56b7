# SPDX-License-Identifier: BSD-2-Clause
"""When a new interface counts as usable, and when its addresses as checked."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from ipoibu.daemon.interface.readiness import Readiness
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.dhcp_config import DhcpConfig

V4, V4_OTHER = ip_address("10.0.0.1"), ip_address("10.0.0.2")
V6 = ip_address("fe80::1")


def readiness(**options: object) -> Readiness:
    return Readiness(EndpointConfig("ib0", "memory", **options))  # type: ignore[arg-type]


def state(it: Readiness) -> tuple[bool, bool]:
    return it.usable.is_set(), it.checked.is_set()


def test_ipv4_makes_an_interface_usable_while_ipv6_is_probed() -> None:
    it = readiness()
    it.begin({V4, V4_OTHER, V6})
    it.note_link_up()
    it.note_judged(V4, is_duplicate=False)
    assert state(it) == (False, False)
    it.note_judged(V4_OTHER, is_duplicate=True)
    assert state(it) == (True, False)
    it.note_judged(V6, is_duplicate=False)
    assert state(it) == (True, True)


def test_ipv6_alone_is_usable_once_it_is_checked() -> None:
    it = readiness()
    it.begin({V6})
    it.note_link_up()
    assert state(it) == (False, False)
    it.note_judged(V6, is_duplicate=True)
    assert state(it) == (True, True)


def test_where_another_host_has_the_ipv4_address_ipv6_is_waited_for() -> None:
    it = readiness(dad_ipv4="on")
    it.begin({V4, V6})
    it.note_link_up()
    it.note_judged(V4, is_duplicate=True)
    assert state(it) == (False, False)
    it.note_judged(V6, is_duplicate=False)
    assert state(it) == (True, True)


def test_optimistic_addresses_are_usable_once_the_link_is_up() -> None:
    it = readiness(dad_ipv6="optimistic")
    it.begin({V6})
    assert state(it) == (False, False)
    it.note_link_up()
    assert state(it) == (True, False)
    it.note_judged(V6, is_duplicate=False)
    assert state(it) == (True, True)


def test_a_link_that_is_up_first_makes_nothing_usable_before_the_addresses_are_there() -> None:
    it = readiness()
    it.note_link_up()
    assert state(it) == (False, False)
    it.begin({V4, V6})
    assert state(it) == (False, False)
    it.note_judged(V4, is_duplicate=False)
    assert state(it) == (True, False)


def test_an_optimistic_host_waits_for_the_ipv4_address_that_it_probes_for() -> None:
    it = readiness(dad_ipv4="on", dad_ipv6="optimistic")
    it.begin({V4, V6})
    it.note_link_up()
    assert state(it) == (False, False)
    it.note_judged(V4, is_duplicate=False)
    assert state(it) == (True, False)


@pytest.mark.parametrize("options", [{}, {"dhcp": DhcpConfig()}])
def test_without_addresses_there_is_nothing_to_wait_for(options: dict[str, object]) -> None:
    it = readiness(**options)
    it.begin(set())
    assert state(it) == (True, True)


def test_with_dhcp_only_its_lease_is_waited_for() -> None:
    """The lease is not `Readiness`'s matter."""
    it = readiness(dhcp=DhcpConfig())
    it.begin({V6})
    assert state(it) == (True, False)
