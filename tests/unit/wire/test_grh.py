# SPDX-License-Identifier: BSD-2-Clause
"""The 40 bytes in front of every UD receive: E4, E5, E8."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from ipoibu.base.addr import Gid
from ipoibu.base.errors import BadFrame
from tests.doubles import grh
from tests.doubles.grh import Grh

A: Final = Gid.parse("fe80::215:5dff:fd33:ff0b")
B: Final = Gid.parse("fe80::215:5dff:fd33:ff0c")
GROUP: Final = Gid.parse("ff12:401b:ffff::f01:203")
A_IPV4: Final = Gid.parse("::ffff:10.0.0.1")
B_IPV4: Final = Gid.parse("::ffff:10.0.0.2")

INFINIBAND: Final = Grh(A, GROUP, 80, 64, traffic_class=0xAB, flow_label=0xCDEF0)


def reason(area: bytes) -> str:
    with pytest.raises(BadFrame) as caught:
        grh.parse_untrusted(area)
    return caught.value.reason


def test_e4_e5_the_header_of_infiniband_names_source_and_group(
    golden: Callable[[str], bytes],
) -> None:
    """E4, E5."""
    assert grh.parse_untrusted(golden("grh.infiniband")) == INFINIBAND
    assert INFINIBAND.pack() == golden("grh.infiniband")


def test_e4_rocev2_over_ipv6_has_the_same_form(golden: Callable[[str], bytes]) -> None:
    """E4."""
    raw = golden("grh.rxe-ipv6")
    assert grh.parse_untrusted(raw) == Grh(A, B, 96, 64, next_header=17)
    assert grh.parse_untrusted(raw).pack() == raw


@pytest.mark.parametrize("name", ["grh.rxe-ipv4", "grh.garbled-ipv4"])
def test_e4_rocev2_over_ipv4_fills_the_last_20_bytes(
    golden: Callable[[str], bytes], name: str
) -> None:
    """E4."""
    expected = Grh(A_IPV4, B_IPV4, 96, 63, traffic_class=0x20, next_header=17)
    assert grh.parse_untrusted(golden(name)) == expected


def test_e4_the_form_over_ipv4_is_20_zero_bytes_and_an_ipv4_header() -> None:
    """E4."""
    area = Grh(A_IPV4, B_IPV4, 96, 63).pack_ipv4()
    assert area[:20] == bytes(20)
    # the checksum is the complement of 4500+0074+0000+0000+3f11+0a00+0001+0a00+0002
    assert area[20:].hex() == "45000074000000003f1167770a0000010a000002"


def test_e4_a_datagram_without_payload_has_a_header_too() -> None:
    """E4."""
    expected = Grh(A_IPV4, B_IPV4, 0, next_header=17)
    assert grh.parse_untrusted(Grh(A_IPV4, B_IPV4, 0).pack_ipv4()) == expected


def test_e4_what_follows_the_40_bytes_is_not_looked_at(golden: Callable[[str], bytes]) -> None:
    """E4."""
    assert grh.parse_untrusted(golden("grh.infiniband") + b"\x08\x00\x00\x00E") == INFINIBAND


@pytest.mark.parametrize("length", [0, 1, 20, 39])
def test_e4_less_than_40_bytes_are_refused(length: int) -> None:
    """E4."""
    assert reason(INFINIBAND.pack()[:length]) == "grh_short"


def test_e4_an_area_that_holds_no_header_is_refused(golden: Callable[[str], bytes]) -> None:
    """E4."""
    assert reason(bytes(40)) == "grh_version"
    assert reason(b"\xff" * 40) == "grh_version"
    broken = bytearray(golden("grh.rxe-ipv4"))
    broken[39] ^= 1  # the IPv4 checksum no longer holds, and the version is not 6 either
    assert reason(bytes(broken)) == "grh_version"


def test_e4_an_ipv4_length_below_its_header_is_refused() -> None:
    # total length 19, checksum made right for it: 0x6777 + 0x0074 - 0x0013
    """E4."""
    assert (
        reason(bytes(20) + bytes.fromhex("45000013000000003f1167d80a0000010a000002")) == "grh_short"
    )


def test_e8_an_echo_of_our_own_multicast_shows_our_gid_as_the_source() -> None:
    """E8."""
    received = grh.parse_untrusted(Grh(A, GROUP, 80).pack())
    assert received.sgid == A
    assert received.dgid.is_multicast


def test_values_that_do_not_fit_are_not_packed() -> None:
    with pytest.raises(ValueError, match="traffic class"):
        Grh(A, B, 0, traffic_class=0x100).pack()
    with pytest.raises(ValueError, match="traffic class"):
        Grh(A, B, 0, flow_label=1 << 20).pack()
    with pytest.raises(ValueError, match="IPv4-mapped"):
        Grh(A, B_IPV4, 0).pack_ipv4()
