# SPDX-License-Identifier: BSD-2-Clause
"""Options of neighbour discovery: N1, the option rules of N2."""

from __future__ import annotations

from typing import Final

import pytest

from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.wire import ndopt
from ipoibu.wire.ndopt import LinkLayer, Option

A: Final = HwAddr(Qpn(0x48), Gid.parse("fe80::215:5dff:fd33:ff0b"))
B: Final = HwAddr(Qpn(0x49), Gid.parse("fe80::215:5dff:fd33:ff0c"), flags=0x80)


@pytest.mark.parametrize(
    ("kind", "start"), [(LinkLayer.SOURCE, "01030000"), (LinkLayer.TARGET, "02030000")]
)
def test_n1_the_link_layer_option_is_24_bytes(kind: LinkLayer, start: str) -> None:
    """N1."""
    raw = ndopt.link_layer(kind, A).pack()
    assert raw.hex() == start + "00000048fe8000000000000002155dfffd33ff0b"
    assert ndopt.split_untrusted(kind, ndopt.parse_untrusted(raw)) == (A, ())


def test_n1_the_two_zero_bytes_are_not_looked_at() -> None:
    """N1."""
    option = Option(1, b"\xff\xff" + A.pack())
    assert ndopt.split_untrusted(LinkLayer.SOURCE, [option]) == (A, ())


def test_options_are_read_in_order() -> None:
    raw = bytes.fromhex("0e01a1b2c3d4e5f6" + "0501000000000500")
    options = (Option(14, bytes.fromhex("a1b2c3d4e5f6")), Option(5, bytes.fromhex("000000000500")))
    assert ndopt.parse_untrusted(raw) == options
    assert b"".join(option.pack() for option in options) == raw
    assert ndopt.parse_untrusted(b"") == ()


@pytest.mark.parametrize(
    "area",
    [
        "01",  # no length
        "0100000000000000",  # length zero: N2
        "0103000000000048",  # its length is 24 bytes
        "05010000000005",  # one byte is missing
        "0501000000000500" + "00",
        "0501000000000500" + "0000",
        "05ff" + "00" * 254,
    ],
)
def test_n2_an_empty_or_cut_option_is_refused(area: str) -> None:
    """N2."""
    with pytest.raises(BadFrame) as caught:
        ndopt.parse_untrusted(bytes.fromhex(area))
    assert caught.value.reason == "nd_option"


@pytest.mark.parametrize("body_bytes", [6, 14, 30])
def test_n1_a_link_layer_option_of_another_medium_is_refused(body_bytes: int) -> None:
    """N1."""
    with pytest.raises(BadFrame) as caught:
        ndopt.split_untrusted(LinkLayer.SOURCE, [Option(1, bytes(body_bytes))])
    assert caught.value.reason == "lladdr_length"


def test_n1_a_link_layer_option_that_names_a_group_is_refused() -> None:
    """N1."""
    group = HwAddr(Qpn(0xFFFFFF), Gid.parse("ff12:601b:ffff::1"))
    with pytest.raises(BadFrame) as caught:
        ndopt.split_untrusted(LinkLayer.TARGET, [ndopt.link_layer(LinkLayer.TARGET, group)])
    assert caught.value.reason == "lladdr_not_unicast"


def test_the_first_of_several_addresses_counts_and_the_other_kind_is_left_alone() -> None:
    source_a, source_b = (ndopt.link_layer(LinkLayer.SOURCE, hwaddr) for hwaddr in (A, B))
    target = ndopt.link_layer(LinkLayer.TARGET, B)
    split = ndopt.split_untrusted(LinkLayer.SOURCE, [target, source_a, source_b])
    assert split == (A, (target,))


@pytest.mark.parametrize("body_bytes", [0, 5, 7, 8])
def test_an_option_that_is_no_multiple_of_8_bytes_is_not_packed(body_bytes: int) -> None:
    with pytest.raises(ValueError, match="not 8n - 2"):
        Option(3, bytes(body_bytes)).pack()
