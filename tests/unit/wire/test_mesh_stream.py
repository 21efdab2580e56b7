# SPDX-License-Identifier: BSD-2-Clause
"""The frames of a mesh on a byte stream."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.errors import BadFrame
from ipoibu.wire.mesh_stream import BODY_MAX, FrameKind, FrameReader, frame

frames = st.lists(st.tuples(st.sampled_from(FrameKind), st.binary(max_size=300)), max_size=8)


def test_a_frame_on_the_wire() -> None:
    assert frame(FrameKind.CONTROL, b"abc") == bytes.fromhex("0003 03 00") + b"abc"


@given(frames, st.integers(1, 50))
def test_frames_survive_a_stream_that_is_cut_anywhere(
    sent: list[tuple[FrameKind, bytes]], step: int
) -> None:
    stream = b"".join(frame(kind, body) for kind, body in sent)
    reader = FrameReader()
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [it for piece in pieces for it in reader.frames_untrusted(piece)] == sent


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("0000 00 00", "mesh_frame_kind"),
        ("0000 07 00", "mesh_frame_kind"),
        ("1001 03 00", "mesh_frame_length"),
        ("ffff 01 00", "mesh_frame_length"),
    ],
)
def test_a_header_that_makes_no_sense_is_a_bad_frame(raw: str, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        list(FrameReader().frames_untrusted(bytes.fromhex(raw)))


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_garbage_is_a_bad_frame_or_waits_for_more(pieces: list[bytes]) -> None:
    reader = FrameReader()

    def read() -> None:
        for piece in pieces:
            for kind, body in reader.frames_untrusted(piece):
                assert isinstance(kind, FrameKind)
                assert len(body) <= BODY_MAX

    with contextlib.suppress(BadFrame):
        read()


@pytest.mark.parametrize("kind", list(FrameKind))
def test_the_last_byte_of_a_header_is_zero(kind: FrameKind) -> None:
    """No tag covers the header of a nonce."""
    changed = bytearray(frame(kind, b"x" * 32))
    changed[3] = 8
    with pytest.raises(BadFrame, match="mesh_frame_kind"):
        list(FrameReader().frames_untrusted(bytes(changed)))
