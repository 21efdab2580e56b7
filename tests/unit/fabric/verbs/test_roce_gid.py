# SPDX-License-Identifier: BSD-2-Clause
"""The RoCE profile: GID by type and address family, and the MTU codes of verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base.addr import Gid
from ipoibu.base.errors import LinkError
from ipoibu.fabric.verbs.roce_gid import (
    GidEntry,
    choose_gid,
    is_link_local,
    local_addresses,
    mtu_from_code,
    netdev_mtu_for,
)

# The GID table of rxe on a device with 10.0.0.1, 2001:db8::1 and its link-local address.
LINK_LOCAL = GidEntry(0, Gid.parse("fe80::ff:fe00:101"), True, 7)
MAPPED = GidEntry(1, Gid.parse("::ffff:10.0.0.1"), True, 7)
GLOBAL = GidEntry(2, Gid.parse("2001:db8::1"), True, 7)
OF_V1 = GidEntry(3, Gid.parse("fe80::ff:fe00:101"), False, 7)
ADDRESSES = {(7, LINK_LOCAL.gid), (7, GLOBAL.gid)}


@pytest.mark.parametrize(
    ("table", "chosen"),
    [
        ([LINK_LOCAL, MAPPED, GLOBAL], LINK_LOCAL),
        ([OF_V1, MAPPED, GLOBAL, LINK_LOCAL], LINK_LOCAL),
        ([MAPPED, GLOBAL], GLOBAL),
        ([GidEntry(9, LINK_LOCAL.gid, True, 7), LINK_LOCAL], LINK_LOCAL),
    ],
)
def test_the_gid_is_of_roce_v2_and_ipv6_and_rather_link_local(
    table: list[GidEntry], chosen: GidEntry
) -> None:
    assert choose_gid(table, ADDRESSES, "rxe0/1") == chosen


@pytest.mark.parametrize(
    ("table", "addresses", "words"),
    [
        ([], ADDRESSES, "none at all; bring its net device up"),
        ([OF_V1], ADDRESSES, "only RoCE v1 GIDs"),
        ([MAPPED], ADDRESSES, "only IPv4 GIDs; enable IPv6"),
        ([OF_V1, MAPPED], ADDRESSES, "only IPv4 GIDs; enable IPv6"),
        ([LINK_LOCAL], set(), r"does not have \(fe80::ff:fe00:101\); enable IPv6"),
        ([LINK_LOCAL], {(8, LINK_LOCAL.gid)}, "does not have"),  # on another device
    ],
)
def test_what_there_is_instead_is_said(
    table: list[GidEntry], addresses: set[tuple[int, Gid]], words: str
) -> None:
    with pytest.raises(LinkError, match=words) as caught:
        choose_gid(table, addresses, "rxe0/1")
    assert str(caught.value).startswith("rxe0/1: a RoCE v2 GID of an IPv6 address is needed")


def test_addresses_are_read_as_the_kernel_prints_them(tmp_path: Path) -> None:
    table = tmp_path / "if_inet6"
    table.write_text(
        "fe800000000000000000 00fffe000101".replace(" ", "") + " 0a 40 20 80       va\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
    )
    assert local_addresses(table) == {
        (10, Gid.parse("fe80::ff:fe00:101")),
        (1, Gid.parse("::1")),
    }


def test_a_kernel_without_ipv6_has_no_addresses(tmp_path: Path) -> None:
    assert local_addresses(tmp_path / "absent") == set()


def test_link_local_differs_from_other_gids() -> None:
    assert is_link_local(LINK_LOCAL.gid)
    assert not is_link_local(GLOBAL.gid)
    assert not is_link_local(MAPPED.gid)


@pytest.mark.parametrize(("code", "mtu"), [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)])
def test_the_code_of_an_mtu_is_enum_ibv_mtu(code: int, mtu: int) -> None:
    assert mtu_from_code(code, "rxe0/1") == mtu


@pytest.mark.parametrize("code", [0, 6])
def test_another_code_is_no_mtu(code: int) -> None:
    with pytest.raises(LinkError, match=f"rxe0/1 reports an MTU code of {code}"):
        mtu_from_code(code, "rxe0/1")


@pytest.mark.parametrize(("ib_mtu", "netdev_mtu"), [(2048, 2128), (4096, 4176), (1024, 1104)])
def test_a_net_device_needs_80_bytes_more(ib_mtu: int, netdev_mtu: int) -> None:
    assert netdev_mtu_for(ib_mtu) == netdev_mtu  # CONFORMANCE T1
