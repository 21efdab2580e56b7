# SPDX-License-Identifier: BSD-2-Clause
"""Receiving a table in segments: InfiniBand volume 1, §13.6.6."""

from __future__ import annotations

import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.limits import SA_WINDOW_SEGMENTS
from ipoibu.proto.sa.rmpp import Progress, Transfer
from ipoibu.wire import rmpp
from ipoibu.wire.rmpp import Rmpp, Status

FULL: Final = 200  # bytes of records in a segment


def segments(table: bytes) -> list[tuple[Rmpp, bytes]]:
    """The segments of a table as an SA sends them, each padded like a datagram."""
    parts = [table[at : at + FULL] for at in range(0, len(table), FULL)] or [b""]
    last = len(parts)
    return [
        (
            rmpp.data(
                number,
                20 + len(part) if number == last else 0,
                first=number == 1,
                last=number == last,
            ),
            part.ljust(FULL, b"\0"),
        )
        for number, part in enumerate(parts, 1)
    ]


def pattern(size: int) -> bytes:
    return bytes(at * 7 % 251 for at in range(size))


@pytest.mark.parametrize("size", [0, 1, 56, 199, 200])
def test_a_table_that_fits_one_segment_is_whole_at_once(size: int) -> None:
    transfer = Transfer()
    [(header, data)] = segments(pattern(size))
    assert transfer.add(header, data) is Progress.WHOLE
    assert transfer.data == pattern(size)
    assert (transfer.ack.data1, transfer.fault) == (1, Status.NORMAL)


def test_the_first_segment_is_acknowledged_and_opens_the_window() -> None:
    transfer = Transfer()
    first, *_ = segments(pattern(1000))
    assert transfer.add(*first) is Progress.WINDOW
    assert transfer.ack == rmpp.ack(1, 1 + SA_WINDOW_SEGMENTS)


def test_an_ack_is_due_when_the_window_is_used_up_and_at_the_end() -> None:
    """Q4."""
    transfer = Transfer()
    table = pattern(200 * SA_WINDOW_SEGMENTS + 300)
    progress = [transfer.add(*segment) for segment in segments(table)]
    quiet = [Progress.GROWN] * (SA_WINDOW_SEGMENTS - 1)
    assert progress == [Progress.WINDOW, *quiet, Progress.WINDOW, Progress.WHOLE]
    assert transfer.data == table


def test_a_segment_that_comes_twice_asks_for_the_ack_again() -> None:
    transfer = Transfer()
    first, second, third = segments(pattern(500))
    transfer.add(*first)
    assert transfer.add(*first) is Progress.REPEATED
    assert transfer.add(*second) is Progress.GROWN
    assert transfer.add(*second) is Progress.REPEATED
    assert transfer.ack.data1 == 2
    assert transfer.add(*third) is Progress.WHOLE
    assert transfer.add(*third) is Progress.REPEATED
    assert transfer.data == pattern(500)


def test_segments_that_overtook_another_wait_for_it() -> None:
    transfer = Transfer()
    first, second, third = segments(pattern(500))
    transfer.add(*first)
    assert transfer.add(*third) is Progress.IGNORED
    assert transfer.ack.data1 == 1
    assert transfer.add(*second) is Progress.WHOLE
    assert transfer.data == pattern(500)


def test_nothing_beyond_the_window_is_kept() -> None:
    transfer = Transfer()
    parts = segments(pattern(200 * (SA_WINDOW_SEGMENTS + 20)))
    transfer.add(*parts[0])
    beyond = parts[SA_WINDOW_SEGMENTS + 1]
    assert beyond[0].data1 == SA_WINDOW_SEGMENTS + 2
    assert transfer.add(*beyond) is Progress.IGNORED
    assert [transfer.add(*part) for part in parts[1 : SA_WINDOW_SEGMENTS + 1]][
        -1
    ] is Progress.WINDOW
    assert len(transfer) == SA_WINDOW_SEGMENTS + 1


@pytest.mark.parametrize(
    ("header", "size", "fault"),
    [
        (rmpp.data(0, 0), FULL, Status.INCONSISTENT_FIRST),
        (rmpp.data(1, 0), FULL, Status.INCONSISTENT_FIRST),
        (rmpp.data(2, 0, first=True), FULL, Status.INCONSISTENT_FIRST),
        (rmpp.data(1, 19, first=True, last=True), FULL, Status.INCONSISTENT_LENGTH),
        (rmpp.data(1, 221, first=True, last=True), FULL, Status.INCONSISTENT_LENGTH),
        (rmpp.data(1, 0xFFFFFFFF, first=True, last=True), FULL, Status.INCONSISTENT_LENGTH),
        (rmpp.data(1, 76, first=True, last=True), 55, Status.INCONSISTENT_LENGTH),
        (rmpp.data(1, 0, first=True), 56, Status.INCONSISTENT_LENGTH),
    ],
)
def test_a_segment_that_contradicts_itself_breaks_the_transfer(
    header: Rmpp, size: int, fault: Status
) -> None:
    transfer = Transfer()
    assert transfer.add(header, bytes(size)) is Progress.BROKEN
    assert transfer.fault is fault


def test_a_table_beyond_the_cap_breaks_the_transfer() -> None:
    transfer = Transfer(cap_bytes=1000)
    parts = segments(pattern(2000))
    progress = [transfer.add(*part) for part in parts[:6]]
    assert progress[-1] is Progress.BROKEN
    assert Progress.BROKEN not in progress[:-1]
    assert transfer.fault is Status.RESOURCES_EXHAUSTED
    assert len(transfer.data) <= 1200


@given(st.integers(0, 30_000), st.integers(0, 1 << 32))
def test_whatever_the_fabric_does_the_table_comes_through(size: int, seed: int) -> None:
    """A sender that follows the ACKs, over a fabric that loses, doubles and reorders."""
    rng = random.Random(seed)
    table = pattern(size)
    parts = segments(table)
    transfer = Transfer()
    acked, window, rounds = 0, 1, 0
    progress = Progress.IGNORED
    while progress is not Progress.WHOLE:
        rounds += 1
        assert rounds < 500
        batch = [part for part in parts[acked:window] for _ in range(rng.choice((0, 1, 1, 2)))]
        rng.shuffle(batch)
        for part in batch:
            progress = transfer.add(*part)
            assert progress is not Progress.BROKEN
            if progress is Progress.WHOLE:
                break
        # an ACK that is lost is asked for again by the segments that come twice
        acked, window = transfer.ack.data1, max(window, transfer.ack.data2)
    assert transfer.data == table


@given(
    st.lists(
        st.tuples(
            st.integers(0, 70),
            st.integers(0, 300),
            st.booleans(),
            st.booleans(),
            st.sampled_from([0, 55, 200]),
        ),
        max_size=40,
    )
)
def test_no_sender_makes_more_of_a_transfer_than_its_cap(
    fuzz: list[tuple[int, int, bool, bool, int]],
) -> None:
    transfer = Transfer(cap_bytes=2000)
    for segment, payload_bytes, first, last, size in fuzz:
        progress = transfer.add(
            rmpp.data(segment, payload_bytes, first=first, last=last), bytes(size)
        )
        assert len(transfer.data) <= 2200
        if progress in (Progress.BROKEN, Progress.WHOLE):
            break
