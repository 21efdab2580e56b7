# SPDX-License-Identifier: BSD-2-Clause
"""Hellos and lists of peers on the wire, against the bytes that docs/mesh.md shows."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.addr import Gid, HwAddr, PKey, Qpn
from ipoibu.wire.mesh import (
    Hello,
    MeshAddress,
    pack_addresses,
    parse_seed,
    unpack_addresses_untrusted,
)

# docs/mesh.md, "The hello"
HELLO = bytes.fromhex(
    "49506f4d 01 00 ffff fff4 0010 1c08 00 123456 fe80000000000000 000000fffe000001"
)
# docs/mesh.md, "Notes": 10.0.0.1 and fd00::1, port 7176
NOTE = bytes.fromhex("00000000000000000000ffff0a0000011c08 fd0000000000000000000000000000011c08")


def test_a_hello_is_as_documented() -> None:
    hello = Hello(
        HwAddr(Qpn(0x123456), Gid.parse("fe80::ff:fe00:1")), PKey(0xFFFF), 65524, 16, 7176
    )
    assert hello.pack() == HELLO
    assert Hello.unpack_untrusted(HELLO + bytes(20)) == hello  # padded, as rdma_cm may


def test_a_note_is_as_documented() -> None:
    addresses = [
        MeshAddress(ip_address("10.0.0.1"), 7176),
        MeshAddress(ip_address("fd00::1"), 7176),
    ]
    assert pack_addresses(addresses) == NOTE
    assert unpack_addresses_untrusted(NOTE) == addresses


@pytest.mark.parametrize(
    "ip", ["0.0.0.0", "127.0.0.1", "224.0.0.1", "::", "::1", "fe80::1", "ff02::1"]
)
def test_addresses_that_lead_nowhere_are_left_out(ip: str) -> None:
    assert unpack_addresses_untrusted(pack_addresses([MeshAddress(ip_address(ip), 7176)])) == []


def test_a_port_of_zero_is_left_out() -> None:
    assert (
        unpack_addresses_untrusted(pack_addresses([MeshAddress(ip_address("10.0.0.1"), 0)])) == []
    )


@given(st.binary(max_size=300))
def test_whatever_comes_is_read_or_refused(raw: bytes) -> None:
    for read in (Hello.unpack_untrusted, unpack_addresses_untrusted):
        try:
            read(raw)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        ("host", ("host", 7)),
        ("host.example:80", ("host.example", 80)),
        ("10.0.0.1", ("10.0.0.1", 7)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("fd00::1", ("fd00::1", 7)),
        ("[fd00::1]", ("fd00::1", 7)),
        ("[fe80::1%eth0]:9", ("fe80::1%eth0", 9)),
    ],
)
def test_a_seed_is_a_host_and_perhaps_a_port(text: str, seed: tuple[str, int]) -> None:
    assert parse_seed(text, 7) == seed


@pytest.mark.parametrize(
    "text",
    ["", ":80", "host:", "host:0", "host:65536", "host:x", "[fd00::1", "[host]:1", "a b", "1:2:x"],
)
def test_what_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST|colon|port|address"):
        parse_seed(text, 7)
