# SPDX-License-Identifier: BSD-2-Clause
"""Reports of a path MTU: how far they count, and for how long."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from ipoibu.aio.path_mtu import PathMtus
from ipoibu.base.limits import PATH_MTU_S

FOUR, SIX = IPv4Address("10.0.0.2"), IPv6Address("fd00::2")


@pytest.mark.parametrize(
    ("destination", "reported", "expected"),
    [
        (FOUR, 1400, 1400),
        (FOUR, 68, 552),  # perhaps an attack
        (FOUR, 0, 2002),  # RFC 1191 §7.1: an old router does not say
        (FOUR, 3000, 2044),
        (SIX, 1400, 1400),
        (SIX, 100, 1280),  # RFC 8201 §4
    ],
)
def test_a_report_counts_within_bounds(
    destination: IPv4Address | IPv6Address, reported: int, expected: int
) -> None:
    table = PathMtus()
    assert table.lower(0.0, destination, reported, 2044) == (expected < 2044)
    assert table.get(destination, 2044) == expected


def test_a_path_mtu_never_grows_by_a_report_and_ends_after_ten_minutes() -> None:
    table = PathMtus()
    assert table.lower(0.0, FOUR, 1400, 2044)
    assert not table.lower(1.0, FOUR, 1500, 2044)
    assert table.get(FOUR, 1300) == 1300
    assert not table.expire(PATH_MTU_S - 1)
    assert table.expire(PATH_MTU_S)
    assert table.get(FOUR, 2044) == 2044
