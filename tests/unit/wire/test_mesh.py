# SPDX-License-Identifier: BSD-2-Clause
"""The messages of an iWARP mesh (docs/use/mesh.md)."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import Gid, HwAddr, PKey, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.wire import mesh
from ipoibu.wire.mesh import Greeting, Locator, Operation

GREETING: Final = Greeting(
    HwAddr(Qpn(0x123456), Gid.parse("fe80::ff:fe00:1")), 65520, 32, PKey(0xFFFF), 4792
)
RAW: Final = bytes.fromhex(
    "69706f6d 01 00 0020 00123456 fe80000000000000000000fffe000001 0000fff0 ffff 12b8"
)
GROUP: Final = Gid.parse("ff12:401b:ffff::ffff:ffff")


def test_a_greeting_on_the_wire() -> None:
    assert GREETING.pack() == RAW
    assert len(RAW) == 36
    assert mesh.greeting_untrusted(RAW.ljust(56, b"\0")) == GREETING


@pytest.mark.parametrize(
    ("at", "raw", "reason"),
    [
        (0, "00", "mesh_greeting"),
        (4, "02", "mesh_version"),
        (6, "0000", "mesh_greeting"),  # no window
        (9, "000000", "mesh_hwaddr"),
        (9, "ffffff", "mesh_hwaddr"),
        (12, "ff", "mesh_hwaddr"),  # a multicast GID
        (12, "00" * 16, "mesh_hwaddr"),
        (28, "00000043", "mesh_greeting"),  # an MTU of 67
        (32, "8000", "mesh_greeting"),  # no P_Key
    ],
)
def test_a_greeting_that_makes_no_sense_is_a_bad_frame(at: int, raw: str, reason: str) -> None:
    changed = bytes.fromhex(raw)
    with pytest.raises(BadFrame, match=reason):
        mesh.greeting_untrusted(RAW[:at] + changed + RAW[at + len(changed) :])


def test_other_flags_are_masked_and_a_large_mtu_is_cut_down() -> None:
    spoiled = RAW[:8] + b"\x7f" + RAW[9:28] + b"\xff" * 4 + RAW[32:]
    assert mesh.greeting_untrusted(spoiled) == GREETING


def test_the_flag_of_connected_mode_is_kept_apart_from_the_address() -> None:
    greeting = replace(GREETING, takes_connections=True)
    raw = RAW[:8] + b"\x80" + RAW[9:]
    assert greeting.pack() == raw
    assert mesh.greeting_untrusted(raw) == greeting
    assert greeting.full_hwaddr == replace(GREETING.hwaddr, flags=0x80)


def test_the_flag_of_an_introduced_host_is_the_lowest() -> None:
    greeting = replace(GREETING, is_introduced=True)
    assert greeting.pack() == RAW[:5] + b"\x01" + RAW[6:]
    assert mesh.greeting_untrusted(RAW[:5] + b"\xff" + RAW[6:]) == greeting


@pytest.mark.parametrize("length", range(36))
def test_a_greeting_cut_off_is_a_bad_frame(length: int) -> None:
    with pytest.raises(BadFrame, match="mesh_greeting"):
        mesh.greeting_untrusted(RAW[:length])


def test_many_groups_take_several_messages_of_which_the_first_replaces() -> None:
    mgids = [Gid(GROUP.raw[:14] + n.to_bytes(2, "big")) for n in range(250)]
    messages = list(mesh.groups(Operation.GROUPS, mgids))
    assert [mesh.operation_untrusted(it) for it in messages] == [
        Operation.GROUPS,
        Operation.JOIN,
        Operation.JOIN,
    ]
    assert [mgid for it in messages for mgid in mesh.groups_untrusted(it)] == mgids
    assert max(map(len, messages)) <= 2044
    (none,) = mesh.groups(Operation.GROUPS, [])
    assert mesh.groups_untrusted(none) == []


def test_locators_of_both_families_survive() -> None:
    locators = [Locator(ip_address("10.0.0.1"), 4792), Locator(ip_address("fe80::1"), 1)]
    (message,) = mesh.peers(locators)
    assert message[:24] == bytes.fromhex("04000000 04 00 12b8 00000000000000000000000000000000")[
        :20
    ] + bytes.fromhex("0a000001")
    assert mesh.locators_untrusted(message) == locators
    assert [str(it) for it in locators] == ["10.0.0.1:4792", "[fe80::1]:1"]
    assert list(mesh.peers([])) == []


def test_addresses_are_locators_without_ports() -> None:
    ips = [ip_address("10.9.0.1"), ip_address("fd00:9::1")]
    assert [it.ip for it in mesh.locators_untrusted(mesh.addresses(ips))] == ips


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("", "mesh_operation"),
        ("010000", "mesh_operation"),
        ("00000000", "mesh_operation"),
        ("07000000", "mesh_operation"),
    ],
)
def test_an_unknown_operation_is_a_bad_frame(message: str, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        mesh.operation_untrusted(bytes.fromhex(message))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("04", "mesh_list"),
        ("05" + "00" * 19, "mesh_address"),
        ("04" + "00" * 19, "mesh_address"),  # 0.0.0.0
        ("04000000" + "00" * 12 + "e0000001", "mesh_address"),  # 224.0.0.1
        ("06000000" + "ff02" + "00" * 14, "mesh_address"),
    ],
)
def test_a_locator_that_makes_no_sense_is_a_bad_frame(body: str, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        mesh.locators_untrusted(b"\x04\0\0\0" + bytes.fromhex(body))


def test_a_group_has_to_be_one() -> None:
    for body in (GROUP.raw[:15], Gid.parse("fe80::1").raw):
        with pytest.raises(BadFrame, match="mesh_list"):
            mesh.groups_untrusted(b"\x01\0\0\0" + body)


@given(st.binary(max_size=2048))
def test_any_bytes_are_a_message_or_a_bad_frame(raw: bytes) -> None:
    for parse in (
        mesh.greeting_untrusted,
        mesh.operation_untrusted,
        mesh.groups_untrusted,
        mesh.locators_untrusted,
    ):
        try:
            parse(raw)
        except BadFrame as error:
            assert error.reason in mesh.REASONS  # noqa: PT017 (some bytes are fine)
