# SPDX-License-Identifier: BSD-2-Clause
"""rdma_cm's header in front of private data, as Linux 6.1 sends it (struct cma_hdr of cma_priv.h)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import Gid
from ipoibu.base.errors import BadFrame
from ipoibu.wire import cm_rdmacm
from ipoibu.wire.cm_rdmacm import Header

V6: Final = bytes.fromhex(
    "00 60 e0f7 fe80000000000000000000fffe000101 fe80000000000000000000fffe000102"
)
V4: Final = bytes.fromhex(
    "00 40 e0f7 000000000000000000000000 0a000001 000000000000000000000000 0a000002"
)
OF_V6: Final = Header(ip_address("fe80::ff:fe00:101"), ip_address("fe80::ff:fe00:102"), 57591)
OF_V4: Final = Header(ip_address("10.0.0.1"), ip_address("10.0.0.2"), 57591)


@pytest.mark.parametrize(("raw", "header"), [(V6, OF_V6), (V4, OF_V4)], ids=["v6", "v4"])
def test_both_families_on_the_wire(raw: bytes, header: Header) -> None:
    assert header.pack() == raw
    assert cm_rdmacm.parse_untrusted(raw + b"what is said") == (header, b"what is said")


@pytest.mark.parametrize("length", range(cm_rdmacm.LEN))
def test_a_header_cut_off_is_a_bad_frame(length: int) -> None:
    with pytest.raises(BadFrame, match="cm_rdmacm_short"):
        cm_rdmacm.parse_untrusted(V6[:length])


@pytest.mark.parametrize("first", ["0160", "0050", "0000", "ff60"])
def test_an_unknown_version_is_a_bad_frame(first: str) -> None:
    with pytest.raises(BadFrame, match="cm_rdmacm_version"):
        cm_rdmacm.parse_untrusted(bytes.fromhex(first) + V6[2:])


def test_the_low_half_of_the_version_byte_means_nothing() -> None:
    assert cm_rdmacm.parse_untrusted(b"\x00\x6f" + V6[2:]) == (OF_V6, b"")


def test_service_ids_of_the_tcp_port_space_carry_it_and_no_others() -> None:
    for service_id in (0x1060000, 0x1064049, 0x106FFFF):
        assert cm_rdmacm.is_rdmacm(service_id)
    for service_id in (0x1000000000000049, 0x0100000001064049, 0x105FFFF, 0x1070000, 0x1110000, 0):
        assert not cm_rdmacm.is_rdmacm(service_id)


@given(st.binary(max_size=92))
def test_any_bytes_are_a_header_or_a_bad_frame(raw: bytes) -> None:
    try:
        header, rest = cm_rdmacm.parse_untrusted(raw)
    except BadFrame as error:
        assert error.reason in cm_rdmacm.REASONS  # noqa: PT017 (most bytes are fine)
    else:
        assert header.source.version == header.destination.version
        assert len(rest) == len(raw) - cm_rdmacm.LEN


@pytest.mark.parametrize(
    ("address", "gid"),
    [
        (IPv4Address("10.0.0.1"), "::ffff:10.0.0.1"),
        (IPv6Address("fe80::1"), "fe80::1"),
        (IPv6Address("2001:db8::1"), "2001:db8::1"),
    ],
)
def test_an_address_is_a_gid_on_roce(address: IPv4Address | IPv6Address, gid: str) -> None:
    assert Gid.of_ip(address) == Gid.parse(gid)
    assert Gid.parse(gid).ip == address
