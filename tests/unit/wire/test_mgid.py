# SPDX-License-Identifier: BSD-2-Clause
"""RFC 4391 §4: G1-G5, E5, E7; the solicited-node group of N3."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import BadFrame
from ipoibu.wire import mgid
from ipoibu.wire.mgid import Mgid

DEFAULT = PKey(0xFFFF)


@pytest.mark.parametrize(
    ("group", "pkey", "scope", "expected"),
    [
        # RFC 4391 §4
        ("224.0.0.2", 0x8000, 2, "ff12401b800000000000000000000002"),
        ("239.1.2.3", 0xFFFF, 2, "ff12401bffff0000000000000f010203"),
        ("ff02::1:ff12:3456", 0xFFFF, 2, "ff12601bffff000000000001ff123456"),
        ("255.255.255.255", 0xFFFF, 2, "ff12401bffff000000000000ffffffff"),
        # what Linux joins at start on the default partition
        ("224.0.0.1", 0xFFFF, 2, "ff12401bffff00000000000000000001"),
        ("ff02::1", 0xFFFF, 2, "ff12601bffff00000000000000000001"),
        # the edges
        ("239.255.255.255", 0xFFFF, 2, "ff12401bffff0000000000000fffffff"),
        ("ff0e:1234:5679:9abc:def0:1122:3344:5566", 0x8001, 2, "ff12601b80019abcdef0112233445566"),
        ("224.0.0.2", 0xFFFF, 5, "ff15401bffff00000000000000000002"),
        ("ff0e::1", 0xFFFF, 0xE, "ff1e601bffff00000000000000000001"),
        ("ff0e::1", 0xFFFF, 0xF, "ff1f601bffff00000000000000000001"),
        ("224.0.0.0", 0xFFFF, 0, "ff10401bffff00000000000000000000"),
    ],
)
def test_g1_g2_g3_g4_groups_map_bit_for_bit(
    group: str, pkey: int, scope: int, expected: str
) -> None:
    """G1, G2, G3, G4."""
    assert mgid.of_group(ip_address(group), PKey(pkey), scope).raw.hex() == expected


def test_g4_the_broadcast_group_keeps_all_32_bits() -> None:
    """G4."""
    assert str(mgid.broadcast(DEFAULT)) == "ff12:401b:ffff::ffff:ffff"
    assert mgid.broadcast(DEFAULT) == mgid.of_group(IPv4Address("255.255.255.255"), DEFAULT)
    assert mgid.broadcast(DEFAULT) != mgid.of_group(IPv4Address("239.255.255.255"), DEFAULT)


def test_g3_ipv4_loses_only_the_class_d_prefix() -> None:
    """G3."""
    low = mgid.of_group(IPv4Address("224.1.2.3"), DEFAULT)
    high = mgid.of_group(IPv4Address("239.1.2.3"), DEFAULT)
    assert low != high
    assert mgid.parse_untrusted(high).group == 0x0F010203


def test_g3_ipv6_groups_that_differ_above_80_bits_share_an_mgid() -> None:
    """G3."""
    one = mgid.of_group(IPv6Address("ff02::1:2"), DEFAULT)
    assert one == mgid.of_group(IPv6Address("ff05::1:2"), DEFAULT)


@pytest.mark.parametrize("group", ["224.0.0.1", "239.1.2.3", "ff01::1", "ff05::2", "ff0e::3"])
def test_g5_every_group_takes_the_scope_of_the_broadcast_group(group: str) -> None:
    """G5."""
    for scope in (2, 5, 8, 0xE):
        gid = mgid.of_group(ip_address(group), DEFAULT, scope)
        assert mgid.parse_untrusted(gid).scope == scope
        assert gid.raw[1] == mgid.broadcast(DEFAULT, scope).raw[1]


def test_g5_the_default_scope_is_link_local() -> None:
    """G5."""
    assert mgid.broadcast(DEFAULT).raw[:2] == b"\xff\x12"


def test_e7_the_full_membership_bit_is_set_for_a_limited_member() -> None:
    """E7."""
    group = IPv4Address("224.0.0.1")
    assert mgid.of_group(group, PKey(0x7FFF)) == mgid.of_group(group, PKey(0xFFFF))
    assert mgid.broadcast(PKey(0x0001)).raw[4:6] == b"\x80\x01"


@pytest.mark.parametrize("address", ["10.0.0.1", "223.255.255.255", "240.0.0.1", "fe80::1", "::"])
def test_a_unicast_address_has_no_mgid(address: str) -> None:
    with pytest.raises(ValueError, match="is not a multicast group"):
        mgid.of_group(ip_address(address), DEFAULT)


@pytest.mark.parametrize("scope", [-1, 16])
def test_g1_a_scope_has_four_bits(scope: int) -> None:
    """G1."""
    with pytest.raises(ValueError, match="a scope has 4 bits"):
        mgid.broadcast(DEFAULT, scope)


@pytest.mark.parametrize("parts", [Mgid(5, 2, DEFAULT, 1), Mgid(4, 2, DEFAULT, 1 << 80)])
def test_g1_parts_that_do_not_fit_are_not_packed(parts: Mgid) -> None:
    """G1."""
    with pytest.raises(ValueError, match=r"is not an IP version|has 80 bits"):
        parts.pack()


def test_g1_an_mgid_comes_apart_into_its_fields() -> None:
    """G1."""
    gid = Gid(bytes.fromhex("ff15601b80019abcdef0112233445566"))
    assert mgid.parse_untrusted(gid) == Mgid(6, 5, PKey(0x8001), 0x9ABCDEF0112233445566)
    assert mgid.parse_untrusted(gid).pack() == gid


@pytest.mark.parametrize(
    ("gid", "reason"),
    [
        ("fe80::215:5dff:fd33:ff0b", "mgid_prefix"),  # a host
        ("ff02::1", "mgid_prefix"),  # flags 0: a permanent group
        ("ff22:401b:ffff::1", "mgid_prefix"),
        ("ff12:401c:ffff::1", "mgid_signature"),
        ("ff12::1", "mgid_signature"),
    ],
)
def test_g1_g2_other_gids_are_no_ip_groups(gid: str, reason: str) -> None:
    """G1, G2."""
    with pytest.raises(BadFrame) as caught:
        mgid.parse_untrusted(Gid.parse(gid))
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("fe80::215:5dff:fd33:ff0b", "ff02::1:ff33:ff0b"),
        ("4037::1:800:200e:8c6c", "ff02::1:ff0e:8c6c"),  # RFC 4291 §2.7.1
    ],
)
def test_n3_a_solicited_node_group_ends_in_the_low_24_bits(address: str, group: str) -> None:
    """N3."""
    assert mgid.solicited_node(IPv6Address(address)) == IPv6Address(group)
    assert mgid.solicited_node(IPv6Address(group)) == IPv6Address(group)


def test_e5_linux_prints_a_group_as_the_multicast_queue_pair_and_its_mgid() -> None:
    """E5."""
    hwaddr = mgid.hwaddr(mgid.broadcast(DEFAULT))
    assert str(hwaddr) == "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"
