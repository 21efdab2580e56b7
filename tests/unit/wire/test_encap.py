# SPDX-License-Identifier: BSD-2-Clause
"""RFC 4391 §6 and §7: E1-E3, T1, T3."""

from __future__ import annotations

from typing import cast

import pytest

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import IPV6_MIN_MTU
from ipoibu.wire import encap
from ipoibu.wire.encap import Encap, EtherType


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        (EtherType.IPV4, "08000000"),
        (EtherType.ARP, "08060000"),
        (EtherType.RARP, "80350000"),
        (EtherType.IPV6, "86dd0000"),
    ],
)
def test_e3_the_four_types_of_rfc_4391_are_sent_and_accepted(kind: EtherType, header: str) -> None:
    """E3."""
    frame = bytes.fromhex(header) + b"payload"
    assert encap.parse_untrusted(frame) == Encap(kind, b"payload")
    assert Encap(kind, b"payload").pack() == frame


def test_e2_the_reserved_half_is_ignored_on_receive_and_zero_on_send() -> None:
    """E2."""
    parsed = encap.parse_untrusted(bytes.fromhex("0800ffff45"))
    assert parsed == Encap(EtherType.IPV4, b"\x45")
    assert parsed.pack() == bytes.fromhex("0800000045")


@pytest.mark.parametrize("kind", [0x0000, 0x0600, 0x0801, 0x86DC, 0x8100, 0x8847, 0xFFFF])
def test_e3_an_unknown_type_is_refused_on_receive_and_on_send(kind: int) -> None:
    """E3."""
    with pytest.raises(BadFrame) as caught:
        encap.parse_untrusted(kind.to_bytes(2, "big") + bytes(60))
    assert caught.value.reason == "encap_type"
    with pytest.raises(ValueError, match="is not a valid EtherType"):
        Encap(cast(EtherType, kind), b"").pack()


@pytest.mark.parametrize("frame", [b"", b"\x08", b"\x08\x00", b"\x08\x00\x00"])
def test_e2_less_than_a_header_is_refused(frame: bytes) -> None:
    """E2."""
    with pytest.raises(BadFrame) as caught:
        encap.parse_untrusted(frame)
    assert caught.value.reason == "encap_short"


def test_a_header_without_payload_is_a_frame() -> None:
    assert encap.parse_untrusted(bytes.fromhex("86dd0000")) == Encap(EtherType.IPV6, b"")


@pytest.mark.parametrize(
    ("ib_mtu_bytes", "ip_mtu_bytes"),
    [(256, 252), (512, 508), (1024, 1020), (2048, 2044), (4096, 4092)],
)
def test_t1_the_header_takes_four_bytes_of_the_infiniband_mtu(
    ib_mtu_bytes: int, ip_mtu_bytes: int
) -> None:
    """T1."""
    assert encap.ip_mtu_bytes(ib_mtu_bytes) == ip_mtu_bytes


@pytest.mark.parametrize("ib_mtu_bytes", [0, -1, 255, 1500, 2044, 8192])
def test_t1_no_other_infiniband_mtu_exists(ib_mtu_bytes: int) -> None:
    """T1."""
    with pytest.raises(ValueError, match="is not an InfiniBand MTU"):
        encap.ip_mtu_bytes(ib_mtu_bytes)


def test_t3_ipv6_needs_an_infiniband_mtu_of_2048() -> None:
    """T3."""
    fits = [mtu for mtu in (256, 512, 1024, 2048, 4096) if encap.ip_mtu_bytes(mtu) >= IPV6_MIN_MTU]
    assert fits == [2048, 4096]
