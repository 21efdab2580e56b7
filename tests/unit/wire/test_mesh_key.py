# SPDX-License-Identifier: BSD-2-Clause
"""Frames on a stream between two hosts that share a key, or do not."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ipoibu.base.errors import BadFrame
from ipoibu.wire.mesh_key import Denial, KeyExchange
from ipoibu.wire.mesh_stream import FrameKind, FrameReader, frame

KEY, OTHER = b"k" * 32, b"o" * 32
DIALER, ASKED = b"d" * 32, b"a" * 32


class Side:
    def __init__(self, key: bytes, nonce: bytes, *, is_ours: bool) -> None:
        self.exchange = KeyExchange(key, nonce, is_ours=is_ours)
        self._reader = FrameReader(self.exchange)

    def say(self, kind: FrameKind, body: bytes) -> bytes:
        return frame(kind, body, self.exchange.seal)

    def hear(self, data: bytes) -> list[tuple[FrameKind, bytes]]:
        return list(self._reader.frames_untrusted(data))


def pair(key: bytes = KEY, nonces: tuple[bytes, bytes] = (DIALER, ASKED)) -> tuple[Side, Side]:
    """Two hosts that have exchanged nonces; the dialing one has `KEY`."""
    dialing = Side(KEY, nonces[0], is_ours=True)
    asked = Side(key, nonces[1], is_ours=False)
    assert asked.hear(dialing.say(FrameKind.NONCE, nonces[0])) == [(FrameKind.NONCE, nonces[0])]
    assert dialing.hear(frame(FrameKind.NONCE, nonces[1])) == [(FrameKind.NONCE, nonces[1])]
    return dialing, asked


def test_the_tag_of_the_first_frame() -> None:
    dialing, _ = pair()
    label = b"ipoibu mesh 1: from the host that dials"
    key = hmac.digest(KEY, label + DIALER + ASKED, "sha256")
    bare = bytes.fromhex("0023 03 00") + b"abc"
    assert dialing.say(FrameKind.CONTROL, b"abc") == bare + hmac.digest(
        key, bytes(8) + bare, "sha256"
    )


@given(st.lists(st.binary(max_size=100), max_size=5), st.lists(st.binary(max_size=100), max_size=5))
def test_both_directions_carry_frames(there: list[bytes], back: list[bytes]) -> None:
    dialing, asked = pair()
    for one, other, bodies in ((dialing, asked, there), (asked, dialing, back)):
        stream = b"".join(one.say(FrameKind.CONTROL, body) for body in bodies)
        assert other.hear(stream) == [(FrameKind.CONTROL, body) for body in bodies]


@given(st.integers(0), st.integers(1, 255))
@example(2, FrameKind.GREETING ^ FrameKind.DENIAL)
def test_a_frame_that_was_changed_anywhere_is_refused(at: int, flip: int) -> None:
    dialing, asked = pair()
    data = bytearray(dialing.say(FrameKind.GREETING, b"g" * 36))
    data[at % len(data)] ^= flip
    try:
        heard = asked.hear(bytes(data))
    except BadFrame:
        return
    if heard:  # a host may refuse us before it has shown that it knows a key
        assert [kind for kind, _ in heard] == [FrameKind.DENIAL]
    else:  # a longer length: it waits for the rest
        assert int.from_bytes(data[:2]) > 36 + 32


def test_another_key_is_refused_by_both_sides() -> None:
    dialing, asked = pair(OTHER)
    with pytest.raises(BadFrame, match="mesh_key_wrong"):
        asked.hear(dialing.say(FrameKind.GREETING, b"hello"))
    with pytest.raises(BadFrame, match="mesh_key_wrong"):
        dialing.hear(asked.say(FrameKind.GREETING, b"hello"))


def test_a_recorded_stream_does_not_work_again() -> None:
    dialing, _ = pair()
    recorded = dialing.say(FrameKind.GREETING, b"hello")
    _, later = pair(nonces=(DIALER, b"fresh nonce of the host asked..."))
    with pytest.raises(BadFrame, match="mesh_key_wrong"):
        later.hear(recorded)


def test_frames_repeated_reordered_left_out_or_reflected_are_refused() -> None:
    dialing, asked = pair()
    first, second = (dialing.say(FrameKind.CONTROL, body) for body in (b"1", b"2"))
    assert asked.hear(first) == [(FrameKind.CONTROL, b"1")]
    for wrong in (first, dialing.say(FrameKind.CONTROL, b"3")):
        with pytest.raises(BadFrame, match="mesh_key_wrong"):
            asked.hear(wrong)
    assert asked.hear(second) == [(FrameKind.CONTROL, b"2")]
    with pytest.raises(BadFrame, match="mesh_key_wrong"):
        dialing.hear(second)


@pytest.mark.parametrize("kind", set(FrameKind) - {FrameKind.NONCE, FrameKind.DENIAL})
def test_nothing_passes_before_the_nonces(kind: FrameKind) -> None:
    asked = Side(KEY, ASKED, is_ours=False)
    with pytest.raises(BadFrame, match="mesh_key_missing"):
        asked.hear(frame(kind, b"x" * 36))


@pytest.mark.parametrize("nonce", [b"", b"n" * 31, b"n" * 33, ASKED])
def test_a_nonce_that_is_ours_or_has_another_length_is_refused(nonce: bytes) -> None:
    asked = Side(KEY, ASKED, is_ours=False)
    with pytest.raises(BadFrame, match="mesh_nonce"):
        asked.hear(frame(FrameKind.NONCE, nonce))


def test_a_second_nonce_and_frames_without_a_tag_are_refused() -> None:
    for data, reason in (
        (frame(FrameKind.NONCE, b"x" * 32), "mesh_frame_kind"),
        (frame(FrameKind.CONTROL, b""), "mesh_key_wrong"),
        (frame(FrameKind.CONTROL, b"x" * 64), "mesh_key_wrong"),
    ):
        _, asked = pair()
        with pytest.raises(BadFrame, match=reason):
            asked.hear(data)


def test_a_denial_counts_until_the_peer_has_shown_the_key() -> None:
    dialing, asked = pair()
    denial = frame(FrameKind.DENIAL, bytes((Denial.KEY_WRONG,)))
    assert dialing.hear(denial) == [(FrameKind.DENIAL, bytes((Denial.KEY_WRONG,)))]
    dialing.hear(asked.say(FrameKind.GREETING, b"hello"))
    with pytest.raises(BadFrame, match="mesh_key_wrong"):
        dialing.hear(denial)


@given(st.binary(max_size=3))
def test_a_denial_of_an_unknown_reason_is_a_bad_frame(body: bytes) -> None:
    if body[:1] in (b"\1", b"\2", b"\3"):
        assert Denial.read_untrusted(body) == body[0]
    else:
        with pytest.raises(BadFrame, match="mesh_nonce"):
            Denial.read_untrusted(body)


@given(st.lists(st.binary(max_size=80), max_size=10))
def test_garbage_is_a_bad_frame_or_waits_for_more(pieces: list[bytes]) -> None:
    _, asked = pair()
    for piece in pieces:
        try:
            assert all(kind is FrameKind.DENIAL for kind, _ in asked.hear(piece))
        except BadFrame:
            return
