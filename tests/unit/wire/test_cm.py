# SPDX-License-Identifier: BSD-2-Clause
"""Messages of communication management: InfiniBand volume 1, §12.6.

The vectors were laid out by the field definitions of Linux 6.1 (ibta_vol1_c12.h), every field with a
value of its own; private data counts up from the named byte.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.wire import cm, mad
from ipoibu.wire.bits import join, split
from ipoibu.wire.cm_code import About, Attribute, Reason, Transport, seconds
from ipoibu.wire.cm_setup import NO_PATH, Path, Rep, Req
from tests.doubles.cm_messages import REP, REQ, counting

TID: Final = 0x1122334455667788


def vector(head: str, private_from: int) -> bytes:
    """A datagram: its hex up to the private data, which counts up."""
    raw = bytes.fromhex(head)
    return raw + bytes(range(private_from, private_from + mad.MAD_LEN - len(raw)))


REQ_RAW: Final = vector(
    """
    01070203 00000000 11223344 55667788 00100000 00000000 a1b2c3d4 00000000 10000000
    00000049 02112233 44556677 00000000 0b1b0c1c 12345604 00000003 000000a3 789abcad
    ffff4ef8 10012002 10111213 14151617 18191a1b 1c1d1e1f 30313233 34353637 38393a3b
    3c3d3e3f abcde02a 5c409890 30034004 50515253 54555657 58595a5b 5c5d5e5f 70717273
    74757677 78797a7b 7c7d7e7f 54321015 a3016068
    """,
    0x80,
)
REP_RAW: Final = vector(
    """
    01070203 00000000 11223344 55667788 00130000 00000000 01020304 a1b2c3d4 0b1b0c1c
    65432100 00000000 cba98700 04037dd0 02112233 44556678
    """,
    0x10,
)
HEAD: Final = "01070203 00000000 11223344 55667788 "
REJ_INFO: Final = "02112233 44556677" + " 00000000" * 16
VECTORS: Final[dict[str, tuple[bytes, cm.Spoken]]] = {
    "req": (REQ_RAW, REQ),
    "rep": (REP_RAW, REP),
    "mra": (
        vector(HEAD + "00110000 00000000 01020304 a1b2c3d4 40a8", 0x10),
        cm.Mra(0x01020304, 0xA1B2C3D4, About.REP, 21, counting(0x10, 222)),
    ),
    "rej": (
        vector(HEAD + "00120000 00000000 01020304 a1b2c3d4 80100004" + REJ_INFO, 0x10),
        cm.Rej(
            0x01020304,
            0xA1B2C3D4,
            About.OTHER,
            Reason.TIMEOUT,
            bytes.fromhex("0211223344556677"),
            counting(0x10, 148),
        ),
    ),
    "rtu": (
        vector(HEAD + "00140000 00000000 a1b2c3d4 01020304", 0x10),
        cm.Rtu(0xA1B2C3D4, 0x01020304, counting(0x10, 224)),
    ),
    "dreq": (
        vector(HEAD + "00150000 00000000 a1b2c3d4 01020304 65432100", 0x10),
        cm.Dreq(0xA1B2C3D4, 0x01020304, Qpn(0x654321), counting(0x10, 220)),
    ),
    "drep": (
        vector(HEAD + "00160000 00000000 01020304 a1b2c3d4", 0x10),
        cm.Drep(0x01020304, 0xA1B2C3D4, counting(0x10, 224)),
    ),
}
every_vector = pytest.mark.parametrize(("raw", "message"), VECTORS.values(), ids=VECTORS)

LINUX_IPOIB_REQ: Final = bytes.fromhex(
    """
    01070203 00000000 11223344 55667788 00100000 00000000 5d3c2b1a 00000000 10000000
    00000049 00155dff fd33ff0b 00000000 00000000 00004a04 00000000 000000a0 000000a0
    ffff40f8 ffffffff fe800000 00000000 02155dff fd33ff0b fe800000 00000000 02155dff
    fd33ff0c 00000003 00400098 00000000 00000000 00000000 00000000 00000000 00000000
    00000000 00000000 00000000 00000000 00000000 00000048 0000fff4
    """
).ljust(mad.MAD_LEN, b"\0")


def refusal(raw: bytes) -> str | None:
    """The reason for which `raw` is refused, or None; any other exception passes through."""
    try:
        cm.parse_untrusted(raw)
    except BadFrame as error:
        return error.reason
    return None


@every_vector
def test_every_message_is_written_as_linux_lays_it_out(raw: bytes, message: cm.Spoken) -> None:
    """X1."""
    assert cm.pack(TID, message).hex(" ", 4) == raw.hex(" ", 4)


@every_vector
def test_every_message_is_read_as_linux_lays_it_out(raw: bytes, message: cm.Spoken) -> None:
    """X1."""
    assert cm.parse_untrusted(raw) == (TID, message)
    assert cm.parse_untrusted(memoryview(raw)) == (TID, message)


def test_no_two_fields_of_the_vectors_have_one_value_by_accident() -> None:
    """Otherwise the tests would not notice two fields that are mixed up."""
    for message in (REQ, REP):
        numbers = [
            value
            for value in (getattr(message, field.name) for field in fields(message))
            if isinstance(value, int) and not isinstance(value, bool) and value > 6
        ]
        assert len(numbers) == len(set(numbers))


def test_the_request_of_linux_ipoib_is_understood() -> None:
    """C4, C7, C11: the REQ of ib_ipoib of Linux 6.1 (ipoib_cm_send_req)."""
    _, req = cm.parse_untrusted(LINUX_IPOIB_REQ)
    assert isinstance(req, Req)
    assert req.service_id == 0x1000000000000049
    assert (req.qpn, req.psn, req.pkey, req.mtu) == (0x4A, 0, 0xFFFF, 4)
    assert (req.transport, req.retries, req.rnr_retries, req.cm_retries) == (0, 0, 0, 15)
    assert (req.remote_timeout, req.local_timeout, req.has_srq) == (20, 20, True)
    assert str(req.primary.local_gid) == "fe80::215:5dff:fd33:ff0b"
    assert str(req.primary.remote_gid) == "fe80::215:5dff:fd33:ff0c"
    assert (req.primary.local_lid, req.primary.remote_lid) == (0xFFFF, 0xFFFF)
    assert (req.primary.hop_limit, req.primary.subnet_local) == (64, False)
    assert req.alternate == NO_PATH
    assert req.private[:8].hex() == "000000480000fff4"


@every_vector
def test_every_truncation_is_a_bad_frame(raw: bytes, message: cm.Spoken) -> None:
    for length in range(len(raw)):
        expected = "mad_short" if length < mad.HEADER_LEN else "cm_short"
        assert refusal(raw[:length]) == expected


@every_vector
def test_bytes_behind_the_datagram_are_ignored(raw: bytes, message: cm.Spoken) -> None:
    assert cm.parse_untrusted(raw + b"\xff" * 9) == (TID, message)


@every_vector
def test_a_damaged_byte_raises_nothing_but_bad_frame(raw: bytes, message: cm.Spoken) -> None:
    for at in range(len(raw)):
        for damage in (*(1 << bit for bit in range(8)), 0xFF):
            bad = raw[:at] + bytes((raw[at] ^ damage,)) + raw[at + 1 :]
            assert refusal(bad) in cm.REASONS | {None}


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, 2, "mad_version"),
        (1, 3, "cm_class"),
        (2, 1, "cm_class"),
        (3, 0x81, "cm_method"),
        (33, (72 + 1) << 1, "cm_rej_length"),
    ],
)
def test_what_is_no_message_of_the_class_is_refused(at: int, value: int, reason: str) -> None:
    raw = bytearray(VECTORS["rej"][0])
    raw[at] = value
    assert refusal(bytes(raw)) == reason


@pytest.mark.parametrize("attribute", [0x0001, 0x0017, 0x0018, 0x0019, 0x001A, 0xFFFF])
def test_an_unknown_attribute_is_named_and_not_read(attribute: int) -> None:
    header = mad.Header(0x07, 2, 0x03, attribute, TID)
    raw = header.pack().ljust(mad.MAD_LEN, b"\xaa")
    assert cm.parse_untrusted(raw) == (TID, cm.Other(attribute))


def test_reserved_bits_are_ignored() -> None:
    for raw, message in (VECTORS["mra"], VECTORS["dreq"]):
        noisy = bytearray(raw)
        if isinstance(message, cm.Mra):
            noisy[32] |= 0x3F
            noisy[33] |= 0x07
        else:
            noisy[35] = 0xFF
        assert cm.parse_untrusted(noisy) == (TID, message)


def test_a_private_field_is_padded_and_never_overrun() -> None:
    for name, length in (
        ("req", 92),
        ("rep", 196),
        ("rej", 148),
        ("mra", 222),
        ("rtu", 224),
        ("dreq", 220),
        ("drep", 224),
    ):
        message: Any = VECTORS[name][1]
        _, parsed = cm.parse_untrusted(cm.pack(TID, replace(message, private=b"ab")))
        assert parsed == replace(message, private=b"ab".ljust(length, b"\0"))
        with pytest.raises(ValueError, match=f"{length} fit"):
            cm.pack(TID, replace(message, private=bytes(length + 1)))


def test_additional_information_of_a_reject_keeps_its_length() -> None:
    rej = cm.Rej(1, 2, About.REQ, Reason.INVALID_MTU, b"\x04", bytes(148))
    assert cm.parse_untrusted(cm.pack(TID, rej)) == (TID, rej)
    with pytest.raises(ValueError, match="72 fit"):
        cm.pack(TID, replace(rej, info=bytes(73)))


@pytest.mark.parametrize(
    "change",
    [
        {"psn": 1 << 24},
        {"mtu": 16},
        {"retries": 8},
        {"rnr_retries": 8},
        {"cm_retries": 16},
        {"local_timeout": 32},
        {"remote_timeout": 32},
        {"responder_resources": 256},
        {"primary": replace(NO_PATH, sl=16)},
        {"primary": replace(NO_PATH, ack_timeout=32)},
        {"primary": replace(NO_PATH, rate=64)},
        {"primary": replace(NO_PATH, flow_label=1 << 20)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_value_that_does_not_fit_never_spills_into_its_neighbour(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        cm.pack(TID, replace(REQ, **change))


def test_codes_of_time_are_powers_of_two_of_four_microseconds() -> None:
    assert seconds(0) == 4.096e-6
    assert round(seconds(14), 4) == 0.0671
    assert round(seconds(18), 2) == 1.07
    assert round(seconds(20), 2) == 4.29
    assert 2.4 < seconds(31) / 3600 < 2.5


def test_numbers_are_those_of_the_specification() -> None:
    assert [int(kind) for kind in Attribute] == list(range(0x10, 0x17))
    assert [reason.value for reason in Reason] == [*range(1, 34), 35]
    assert Reason(8) is Reason.INVALID_SERVICE_ID
    assert Reason(10) is Reason.STALE_CONNECTION
    assert Reason(28) is Reason.CONSUMER


@given(
    st.lists(st.integers(1, 16), min_size=1, max_size=6).flatmap(
        lambda widths: st.tuples(
            st.just(widths), st.tuples(*(st.integers(0, (1 << width) - 1) for width in widths))
        )
    )
)
def test_fields_of_any_width_survive_a_word(case: tuple[list[int], tuple[int, ...]]) -> None:
    widths, values = case
    word = join(*zip(values, widths, strict=True))
    assert word < 1 << sum(widths)
    assert split(word, *widths) == values


u32 = st.integers(0, 0xFFFFFFFF)
u64 = st.integers(0, 0xFFFFFFFFFFFFFFFF)
qpns = st.integers(0, 0xFFFFFF).map(Qpn)
gids = st.binary(min_size=16, max_size=16).map(Gid)
codes = st.integers(0, 31)
paths = st.builds(
    Path,
    gids,
    gids,
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFFF),
    st.integers(0, 63),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 15),
    st.booleans(),
    codes,
)


def private(length: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=length, max_size=length)


messages: st.SearchStrategy[cm.Spoken] = st.one_of(
    st.builds(
        Req,
        u32,
        u64,
        u64,
        qpns,
        st.integers(0, 0xFFFFFF),
        st.integers(0, 0xFFFF).map(PKey),
        st.integers(0, 15),
        paths,
        paths,
        private(92),
        u32,
        st.sampled_from(Transport),
        st.integers(0, 255),
        st.integers(0, 255),
        codes,
        codes,
        st.booleans(),
        st.integers(0, 7),
        st.integers(0, 7),
        st.integers(0, 15),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        Rep,
        u32,
        u32,
        u64,
        qpns,
        st.integers(0, 0xFFFFFF),
        private(196),
        u32,
        st.integers(0, 255),
        st.integers(0, 255),
        codes,
        st.integers(0, 3),
        st.booleans(),
        st.integers(0, 7),
        st.booleans(),
    ),
    st.builds(cm.Mra, u32, u32, st.integers(0, 3), codes, private(222)),
    st.builds(
        cm.Rej,
        u32,
        u32,
        st.integers(0, 3),
        st.integers(0, 0xFFFF),
        st.binary(max_size=72),
        private(148),
    ),
    st.builds(cm.Rtu, u32, u32, private(224)),
    st.builds(cm.Dreq, u32, u32, qpns, private(220)),
    st.builds(cm.Drep, u32, u32, private(224)),
)


@given(u64, messages)
def test_messages_survive_the_wire(tid: int, message: cm.Spoken) -> None:
    raw = cm.pack(tid, message)
    assert len(raw) == mad.MAD_LEN
    assert cm.parse_untrusted(raw) == (tid, message)


@given(st.sampled_from([*Attribute, 0x19]), st.binary(min_size=232, max_size=232))
def test_any_bytes_are_a_message_or_a_bad_frame(attribute: int, body: bytes) -> None:
    raw = mad.Header(0x07, 2, 0x03, attribute, TID).pack() + body
    assert refusal(raw) in cm.REASONS | {None}
