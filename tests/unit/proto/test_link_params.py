# SPDX-License-Identifier: BSD-2-Clause
"""Partition parameters from configuration: values that fit, and the errors for others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import IpoibuError, LinkError, UsageError
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.base.limits import IB_MTUS
from ipoibu.proto.groups.link_params import ip_mtu, partition_params


def port(active_mtu_bytes: int = 4096) -> PortInfo:
    gid = Gid.parse("fe80::211:22ff:fe00:1")
    return PortInfo(
        device="soft:veth0",
        port=1,
        gid=gid,
        guid=gid.interface_id,
        active_mtu_bytes=active_mtu_bytes,
        link_layer="Ethernet",
        netdev="veth0",
    )


def test_the_defaults_are_those_of_the_roce_profile() -> None:
    assert partition_params(port()) == PartitionParams(
        pkey=PKey(0xFFFF), qkey=0x0B1B, mtu_bytes=2048, scope=2, sl=0, hop_limit=64
    )


@pytest.mark.parametrize(("active", "link", "mtu"), [(4096, 2048, 2044), (1024, 1024, 1020)])
def test_the_mtu_is_2044_or_what_the_port_has_if_that_is_less(
    active: int, link: int, mtu: int
) -> None:
    """B2, T1."""
    params = partition_params(port(active))
    assert params.mtu_bytes == link
    assert ip_mtu(params, ipv6=False) == mtu


@pytest.mark.parametrize(
    ("longest", "asked", "link"),
    [
        (1428, None, 1428),
        (8928, None, 2048),
        (8928, 8928, 8928),
        (8928, 3000, 3000),
        (1428, 260, 260),
    ],
)
def test_where_datagrams_have_any_length_so_has_the_link(
    longest: int, asked: int | None, link: int
) -> None:
    """T1."""
    anyway = replace(port(1024), datagram_bytes=longest)
    assert partition_params(anyway, mtu_bytes=asked).mtu_bytes == link
    with pytest.raises(
        LinkError, match=f"a datagram of {longest}, not {longest + 4}: raise the MTU"
    ):
        partition_params(anyway, mtu_bytes=longest + 4)


@pytest.mark.parametrize(
    ("ib", "mtu"), [(256, 252), (512, 508), (1024, 1020), (2048, 2044), (4096, 4092)]
)
def test_every_infiniband_mtu_leaves_four_bytes_less(ib: int, mtu: int) -> None:
    """T1."""
    assert ip_mtu(partition_params(port(), mtu_bytes=ib), ipv6=False) == mtu


@pytest.mark.parametrize(
    ("given_key", "key"), [(0x7FFF, 0xFFFF), (0x0001, 0x8001), (0x8001, 0x8001)]
)
def test_the_partition_key_is_always_the_full_member_s(given_key: int, key: int) -> None:
    """E7."""
    assert partition_params(port(), pkey=given_key).pkey == key


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"pkey": 0}, UsageError, "low 15 bits are zero"),
        ({"pkey": 0x8000}, UsageError, "low 15 bits are zero"),
        ({"pkey": 0x10000}, UsageError, "is not a P_Key"),
        ({"pkey": -1}, UsageError, "is not a P_Key"),
        ({"qkey": 1 << 32}, UsageError, "qkey 0x100000000 is out of range"),
        ({"mtu_bytes": 2044}, UsageError, "2044 is not an InfiniBand MTU"),
        ({"mtu_bytes": 4096}, LinkError, "carries an InfiniBand MTU of 2048, not 4096"),
        ({"scope": 0}, UsageError, "scope 0x0 is reserved"),
        ({"scope": 15}, UsageError, "scope 0xf is reserved"),
        ({"sl": 16}, UsageError, "sl 0x10 is out of range"),
        ({"hop_limit": 256}, UsageError, "hop_limit 0x100 is out of range"),
        ({"traffic_class": -1}, UsageError, "traffic_class -0x1 is out of range"),
        ({"flow_label": 1 << 20}, UsageError, "flow_label 0x100000 is out of range"),
        ({"rate": 64}, UsageError, "rate 0x40 is out of range"),
    ],
)
def test_what_cannot_be_is_one_line_that_names_it(
    wrong: dict[str, Any], error: type[IpoibuError], text: str
) -> None:
    with pytest.raises(error, match=text) as raised:
        partition_params(port(2048), **wrong)
    assert "\n" not in str(raised.value)


def test_a_port_without_an_infiniband_mtu_is_refused() -> None:
    with pytest.raises(LinkError, match="soft:veth0/1 reports an MTU of 1500"):
        partition_params(port(1500))


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        (2045, r"choose 68\.\.2044"),
        (67, r"choose 68\.\.2044"),
        (0, "MTU 0 does not fit"),
        (1279, "too small for IPv6"),
    ],
)
def test_an_interface_mtu_that_does_not_fit_is_refused(requested: int, text: str) -> None:
    """T3."""
    with pytest.raises(UsageError, match=text):
        ip_mtu(partition_params(port()), requested)


def test_a_smaller_interface_mtu_is_fine() -> None:
    assert ip_mtu(partition_params(port()), 1280) == 1280
    assert ip_mtu(partition_params(port()), 576, ipv6=False) == 576


@given(st.sampled_from(IB_MTUS), st.integers(-10, 70_000))
def test_any_requested_link_mtu_is_honoured_or_refused_never_adjusted(
    active: int, requested: int
) -> None:
    try:
        params = partition_params(port(active), mtu_bytes=requested)
    except IpoibuError:
        assert requested not in IB_MTUS or requested > active
    else:
        assert params.mtu_bytes == requested <= active
