# SPDX-License-Identifier: BSD-2-Clause
"""The headers of management datagrams and of RMPP: InfiniBand volume 1, §13.4.3 and §13.6.2."""

from __future__ import annotations

import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.errors import BadFrame
from ipoibu.wire import mad, rmpp
from ipoibu.wire.mad import Header, Method
from ipoibu.wire.rmpp import Flag, Rmpp, Status, Type

# OpenSM 3.3.23 on ibsim: SubnAdmGetResp(ClassPortInfo)
GET_RESPONSE: Final = bytes.fromhex("010302810000000000010000556677880001000000000000")
# by hand, §13.6.2: the first segment of a table; one in the middle; the last one, of 76 bytes
FIRST: Final = bytes.fromhex("0101fb00 00000001 00000000".replace(" ", ""))
MIDDLE: Final = bytes.fromhex("0101f900 00000002 00000000".replace(" ", ""))
LAST: Final = bytes.fromhex("0101fd00 00000003 0000004c".replace(" ", ""))


def test_a_header_comes_apart_into_its_fields() -> None:
    header = mad.parse_untrusted(GET_RESPONSE)
    assert header == Header(3, 2, Method.GET_RESPONSE, 1, 0x0001000055667788)
    assert header.method & mad.RESPONSE
    assert header.pack() == GET_RESPONSE


def test_status_and_modifier_have_their_places() -> None:
    raw = Header(3, 2, Method.SET, 0x38, 5, status=0x0600, modifier=0xFFFFFFFF).pack()
    assert raw.hex() == "010302020600000000000000000000050038" + "0000" + "ffffffff"
    assert not mad.parse_untrusted(raw).method & mad.RESPONSE


@pytest.mark.parametrize("length", range(mad.HEADER_LEN))
def test_a_header_cut_off_is_refused(length: int) -> None:
    with pytest.raises(BadFrame, match="mad_short"):
        mad.parse_untrusted(GET_RESPONSE[:length])


def test_another_base_version_is_refused() -> None:
    with pytest.raises(BadFrame, match="mad_version"):
        mad.parse_untrusted(b"\x80" + GET_RESPONSE[1:])


def test_values_that_do_not_fit_are_not_packed() -> None:
    with pytest.raises(struct.error):
        Header(3, 2, Method.GET, 0x10000, 0).pack()
    with pytest.raises(struct.error):
        Header(3, 2, Method.GET, 1, 1 << 64).pack()


@given(
    st.builds(
        Header,
        *(st.integers(0, 0xFF) for _ in range(3)),
        st.integers(0, 0xFFFF),
        st.integers(0, (1 << 64) - 1),
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFFFFFF),
    )
)
def test_every_header_survives_packing(header: Header) -> None:
    assert mad.parse_untrusted(header.pack()) == header


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (FIRST, rmpp.data(1, 0, first=True)),
        (MIDDLE, rmpp.data(2, 0)),
        (LAST, rmpp.data(3, 76, last=True)),
        (bytes.fromhex("0102f9000000000300000043"), rmpp.ack(3, 67)),
        (bytes.fromhex("0104f9760000000000000000"), rmpp.abort(Status.TOTAL_TIME_TOO_LONG)),
        (bytes.fromhex("0103f97f0000000000000000"), Rmpp(Type.STOP, Flag.ACTIVE, 127, 0, 0, 31)),
    ],
)
def test_each_kind_of_rmpp_header(raw: bytes, expected: Rmpp) -> None:
    assert rmpp.parse_untrusted(raw) == expected
    assert expected.pack() == raw


def test_first_and_last_are_flags() -> None:
    first, middle, last = (rmpp.parse_untrusted(raw) for raw in (FIRST, MIDDLE, LAST))
    assert [part.is_first for part in (first, middle, last)] == [True, False, False]
    assert [part.is_last for part in (first, middle, last)] == [False, False, True]


@pytest.mark.parametrize(
    "raw",
    [
        "000000000000000000000000",
        "010100000000000100000000",  # DATA, but not active
        "ff07f8ffffffffffffffffff",
        "000001000000000000000000",  # what OpenSM leaves to the kernel
    ],
)
def test_what_is_no_rmpp_is_not_looked_at(raw: str) -> None:
    assert rmpp.parse_untrusted(bytes.fromhex(raw)) == rmpp.NOT_ACTIVE


def test_a_header_that_is_not_active_is_all_zeros() -> None:
    assert rmpp.NOT_ACTIVE.pack() == bytes(12)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (FIRST[:11], "rmpp_short"),
        (b"", "rmpp_short"),
        (b"\x02" + FIRST[1:], "rmpp_version"),
        (FIRST[:1] + b"\x05" + FIRST[2:], "rmpp_type"),
        (FIRST[:1] + b"\xff" + FIRST[2:], "rmpp_type"),
    ],
)
def test_rmpp_that_makes_no_sense_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        rmpp.parse_untrusted(raw)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_a_bad_frame(raw: bytes) -> None:
    for parse, reasons in (
        (mad.parse_untrusted, mad.REASONS),
        (rmpp.parse_untrusted, rmpp.REASONS),
    ):
        try:
            parse(raw)
        except BadFrame as error:
            assert error.reason in reasons  # noqa: PT017 (most inputs raise nothing)
