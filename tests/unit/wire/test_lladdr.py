# SPDX-License-Identifier: BSD-2-Clause
"""A peer's hardware address, RFC 4391 §9.1.1 and RFC 4755 §3.1: A1, A2, A4."""

from __future__ import annotations

from typing import Final

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.wire import lladdr

LLADDR: Final = bytes.fromhex("00000048fe8000000000000002155dfffd33ff0b")


def test_a1_twenty_bytes_are_flags_queue_pair_and_gid() -> None:
    """A1."""
    assert lladdr.parse_untrusted(LLADDR) == HwAddr(
        Qpn(0x48), Gid.parse("fe80::215:5dff:fd33:ff0b"), 0
    )


@pytest.mark.parametrize("flags", [0x80, 0x40, 0xC0, 0x3F, 0xFF])
def test_a2_any_flags_are_accepted_and_kept(flags: int) -> None:
    """A2."""
    claimed = lladdr.parse_untrusted(bytes((flags,)) + LLADDR[1:])
    assert claimed.flags == flags
    assert claimed.same_queue_pair(lladdr.parse_untrusted(LLADDR))


@pytest.mark.parametrize("length", [0, 6, 8, 19, 21, 32])
def test_a1_no_other_length_is_a_link_layer_address(length: int) -> None:
    """A1."""
    with pytest.raises(BadFrame) as caught:
        lladdr.parse_untrusted((LLADDR + LLADDR)[:length])
    assert caught.value.reason == "lladdr_length"


@pytest.mark.parametrize(
    "raw",
    [
        "00000048ff12401bffff00000000000000000001",  # a group's GID
        "00ffffffff12401bffff0000000000000f010203",  # a group as Linux prints it
        "00fffffffe8000000000000002155dfffd33ff0b",  # the multicast queue pair on a unicast GID
        "00000048" + "00" * 16,  # no GID
        "00000000fe8000000000000002155dfffd33ff0b",  # QP0 is subnet management's
        "00" * 20,
    ],
)
def test_a4_what_names_no_single_host_is_refused(raw: str) -> None:
    """A4."""
    with pytest.raises(BadFrame) as caught:
        lladdr.parse_untrusted(bytes.fromhex(raw))
    assert caught.value.reason == "lladdr_not_unicast"
