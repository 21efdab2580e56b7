# SPDX-License-Identifier: BSD-2-Clause
"""RFC 826, RFC 4391 §9.2: R1-R3, A2, A5."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Final

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.wire import arp
from ipoibu.wire.arp import Arp
from ipoibu.wire.encap import Encap, EtherType

A: Final = HwAddr(Qpn(0x48), Gid.parse("fe80::215:5dff:fd33:ff0b"))
B: Final = HwAddr(Qpn(0x49), Gid.parse("fe80::215:5dff:fd33:ff0c"), flags=0x80)
A_IP: Final = IPv4Address("192.168.0.1")
B_IP: Final = IPv4Address("192.168.0.2")


def reason(payload: bytes) -> str:
    with pytest.raises(BadFrame) as caught:
        arp.parse_untrusted(payload)
    return caught.value.reason


def patched(payload: bytes, at: int, value: str) -> bytes:
    new = bytes.fromhex(value)
    return payload[:at] + new + payload[at + len(new) :]


def test_r1_a_request_is_56_bytes_and_60_in_its_frame(golden: Callable[[str], bytes]) -> None:
    """R1."""
    request = arp.request(A, A_IP, B_IP)
    assert request.pack() == golden("arp.request")
    assert len(request.pack()) == 56
    assert len(Encap(EtherType.ARP, request.pack()).pack()) == 60


def test_r1_a_reply_goes_back_to_the_sender_of_the_request(
    golden: Callable[[str], bytes],
) -> None:
    """R1."""
    request = arp.parse_untrusted(golden("arp.request"))
    assert request.answer(B) == Arp(arp.REPLY, B, B_IP, A, A_IP)
    assert request.answer(B).pack() == golden("arp.reply")


def test_a5_a_gratuitous_request_asks_for_its_own_address(golden: Callable[[str], bytes]) -> None:
    """A5."""
    assert arp.request(A, A_IP, A_IP).pack() == golden("arp.gratuitous")


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (0, "0001", "arp_hardware"),  # Ethernet
        (0, "2000", "arp_hardware"),  # byte order
        (2, "86dd", "arp_protocol"),
        (2, "0000", "arp_protocol"),
        (4, "06", "arp_length"),
        (4, "00", "arp_length"),
        (4, "ff", "arp_length"),
        (5, "10", "arp_length"),
        (5, "00", "arp_length"),
        (8, "00ffffff", "lladdr_not_unicast"),
        (12, "ff12401bffff", "lladdr_not_unicast"),
    ],
)
def test_r1_a_field_with_another_value_than_rfc_4391_gives_is_refused(
    golden: Callable[[str], bytes], at: int, value: str, expected: str
) -> None:
    """R1."""
    assert reason(patched(golden("arp.request"), at, value)) == expected


@pytest.mark.parametrize("length", [0, 7, 8, 27, 28, 55])
def test_r1_a_short_message_is_refused(golden: Callable[[str], bytes], length: int) -> None:
    """R1."""
    assert reason(golden("arp.request")[:length]) == "arp_short"


def test_bytes_behind_the_message_are_ignored(golden: Callable[[str], bytes]) -> None:
    raw = golden("arp.request")
    assert arp.parse_untrusted(raw + b"\xde\xad\xbe\xef").pack() == raw


@pytest.mark.parametrize("operation", [0, 3, 8, 9, 0xFFFF])
def test_r2_the_sender_is_readable_whatever_the_operation(
    golden: Callable[[str], bytes], operation: int
) -> None:
    """R2."""
    raw = patched(golden("arp.request"), 6, f"{operation:04x}")
    parsed = arp.parse_untrusted(raw)
    assert (parsed.operation, parsed.sender_hwaddr, parsed.sender_ip) == (operation, A, A_IP)


@pytest.mark.parametrize(
    "value", ["ff" * 20, "00ffffffff12401bffff0000ffffffff00000000", "5a" * 20]
)
def test_r3_the_target_hardware_address_of_a_request_may_be_anything(
    golden: Callable[[str], bytes], value: str
) -> None:
    """R3."""
    raw = patched(golden("arp.request"), 32, value)
    assert arp.parse_untrusted(raw).target_hwaddr.pack().hex() == value


def test_a2_the_flags_octet_arrives_as_it_was_sent(golden: Callable[[str], bytes]) -> None:
    """A2."""
    assert arp.parse_untrusted(golden("arp.reply")).sender_hwaddr.flags == 0x80
    assert arp.parse_untrusted(golden("arp.request")).sender_hwaddr.flags == 0
