# SPDX-License-Identifier: BSD-2-Clause
"""IPoIB's private data: RFC 4755 §6, Linux's struct ipoib_cm_data (C3, C4, C5, C7)."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import MULTICAST_QPN, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import SUPERFRAME_BYTES_MAX
from ipoibu.wire import cm_private
from ipoibu.wire.cm_private import Private, ServiceForm

LINUX: Final = bytes.fromhex("00000048 0000fff4")  # QPN 0x48, 65524 = 65520 + 4 (C4)
OURS: Final = bytes.fromhex("00000048 0000fff4 69706f75 01000000 00010010")


def refusal(raw: bytes) -> str | None:
    try:
        cm_private.parse_untrusted(raw)
    except BadFrame as error:
        return error.reason
    return None


def test_a_host_says_its_queue_pair_and_its_receive_mtu() -> None:
    """C3, C4."""
    assert Private(Qpn(0x48), 65524).pack() == LINUX
    assert cm_private.parse_untrusted(LINUX.ljust(92, b"\0")) == Private(Qpn(0x48), 65524)


def test_super_frames_are_said_behind_what_the_rfc_defines() -> None:
    assert SUPERFRAME_BYTES_MAX == 0x10010
    value = Private(Qpn(0x48), 65524, SUPERFRAME_BYTES_MAX)
    assert value.pack() == OURS
    assert cm_private.parse_untrusted(OURS.ljust(196, b"\0")) == value


def test_the_longest_packet_is_declared_with_and_without_super_frames() -> None:
    for superframe_bytes in (0, SUPERFRAME_BYTES_MAX):
        value = Private(Qpn(0x48), 65524, superframe_bytes, 8928)
        raw = value.pack()
        assert raw[:8] == LINUX
        assert raw[8:16].hex() == "69706f7501" + "00" + "22e0"
        assert cm_private.parse_untrusted(raw.ljust(92, b"\0")) == value


@pytest.mark.parametrize("longest_bytes", [1, 252, 257, 8926, 65535])
def test_a_longest_packet_that_needs_padding_or_is_below_every_mtu_is_none(
    longest_bytes: int,
) -> None:
    raw = bytearray(Private(Qpn(0x48), 65524, 0, 8928).pack())
    raw[14:16] = longest_bytes.to_bytes(2, "big")
    assert cm_private.parse_untrusted(bytes(raw)).packet_bytes == 0


def test_the_agreed_packet_cuts_a_full_message_into_as_few() -> None:
    for longest_bytes in range(256, 65536, 4):
        agreed_bytes = cm_private.agreed_packet_bytes(longest_bytes)
        assert agreed_bytes <= longest_bytes
        assert agreed_bytes % 4 == 0
        assert -(-65536 // agreed_bytes) == -(-65536 // longest_bytes)


def test_linux_and_the_rfc_see_nothing_of_super_frames() -> None:
    """C4: the first eight bytes, and the reserved byte in them, are the same as without the extension."""
    assert OURS[:8] == LINUX
    assert OURS[0] == 0


def test_the_reserved_byte_is_masked() -> None:
    for top in range(256):
        raw = bytes((top,)) + LINUX[1:]
        assert cm_private.parse_untrusted(raw) == Private(Qpn(0x48), 65524)


@pytest.mark.parametrize(
    "tail",
    [
        "69706f74 01000000 00010010",  # another mark
        "69706f75 02000000 00010010",  # another version
        "69706f75 01000000 00000000",  # none
        "69706f75 01000000 0000000f",  # no room for its own header
        "69706f75 01000000 000100",  # cut off
    ],
)
def test_a_tail_that_is_not_ours_is_another_business(tail: str) -> None:
    raw = LINUX + bytes.fromhex(tail)
    assert cm_private.parse_untrusted(raw) == Private(Qpn(0x48), 65524)


@pytest.mark.parametrize("mtu_bytes", [65524, 65525, 1 << 31, 0xFFFFFFFF])
def test_a_receive_mtu_above_ours_is_cut_down(mtu_bytes: int) -> None:
    raw = LINUX[:4] + mtu_bytes.to_bytes(4, "big")
    assert cm_private.parse_untrusted(raw).receive_mtu_bytes == 65524


def test_a_super_frame_above_ours_is_cut_down() -> None:
    raw = OURS[:-4] + b"\xff" * 4
    assert cm_private.parse_untrusted(raw).superframe_bytes == SUPERFRAME_BYTES_MAX


@pytest.mark.parametrize("mtu_bytes", [0, 4, 5, 71])
def test_a_receive_mtu_that_carries_no_ip_is_refused(mtu_bytes: int) -> None:
    """Linux refuses up to 4; RFC 791 asks for 68 bytes, and 4 are the header's."""
    assert refusal(LINUX[:4] + mtu_bytes.to_bytes(4, "big")) == "cm_private_mtu"
    assert refusal(LINUX[:4] + (72).to_bytes(4, "big")) is None


@pytest.mark.parametrize("qpn", [0, 1, MULTICAST_QPN])
def test_a_queue_pair_that_no_host_has_is_refused(qpn: int) -> None:
    assert refusal(qpn.to_bytes(4, "big") + LINUX[4:]) == "cm_private_qpn"


def test_every_truncation_is_a_bad_frame_or_plain() -> None:
    for length in range(len(OURS)):
        expected = "cm_private_short" if length < 8 else None
        assert refusal(OURS[:length]) == expected


def test_every_form_of_service_ids() -> None:
    """C7: Linux's 0x1000000000000000 | QPN, RFC 4755's 0x0100000000000000 | QPN."""
    assert cm_private.service_id(ServiceForm.LINUX, Qpn(0x49)) == 0x1000000000000049
    assert cm_private.service_id(ServiceForm.RFC, Qpn(0x49)) == 0x0100000000000049
    assert cm_private.service_id(ServiceForm.RDMACM, Qpn(0x49)) == 0x0000000001064049
    assert cm_private.service_ids(Qpn(0xABCDEF)) == {
        0x1000000000ABCDEF,
        0x0100000000ABCDEF,
        0x0000000001064DEF,
    }


def test_rdmacm_s_ports_are_neither_reserved_nor_those_that_are_given_out() -> None:
    for qpn in range(0, 1 << 24, 4099):
        port = cm_private.service_id(ServiceForm.RDMACM, Qpn(qpn)) & 0xFFFF
        assert 1024 <= port < 32768


def test_linux_is_asked_by_its_own_form_first() -> None:
    assert list(ServiceForm) == [ServiceForm.LINUX, ServiceForm.RFC, ServiceForm.RDMACM]


@given(
    st.integers(2, MULTICAST_QPN - 1).map(Qpn),
    st.integers(72, 65524),
    st.one_of(st.just(0), st.integers(84, SUPERFRAME_BYTES_MAX)),
)
def test_what_is_said_survives_the_wire(qpn: Qpn, mtu: int, superframe: int) -> None:
    value = Private(qpn, mtu, superframe)
    assert cm_private.parse_untrusted(value.pack().ljust(92, b"\0")) == value


@given(st.binary(max_size=196))
def test_any_bytes_are_private_data_or_a_bad_frame(raw: bytes) -> None:
    assert refusal(raw) in cm_private.REASONS | {None}
