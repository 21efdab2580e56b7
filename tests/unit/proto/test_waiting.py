# SPDX-License-Identifier: BSD-2-Clause
"""Packets that wait for an answer, in bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.limits import WAITING_OVERHEAD_BYTES
from ipoibu.proto.machine.waiting import Waiting

PACKET = 1000 - WAITING_OVERHEAD_BYTES  # which counts as 1000 bytes


class Bed:
    """Queues of at most 10 packets, and at most 25 in all."""

    def __init__(self) -> None:
        self.evicted: list[tuple[str, int]] = []
        self.waiting: Waiting[str, int] = Waiting(
            10_000, 25_000, lambda key, count: self.evicted.append((key, count))
        )

    def fill(self, key: str, packets: int) -> int:
        return sum(self.waiting.add(key, number, PACKET) for number in range(packets))


def test_a_queue_takes_what_fits_and_returns_it_in_order() -> None:
    bed = Bed()
    assert bed.fill("a", 12) == 10
    assert list(bed.waiting.of("a")) == list(range(10))
    assert bed.waiting.take("a") == list(range(10))
    assert (bed.waiting.bytes, bed.waiting.count("a"), bed.waiting.take("a")) == (0, 0, [])


def test_one_packet_longer_than_a_queue_is_refused_and_leaves_nothing() -> None:
    bed = Bed()
    assert not bed.waiting.add("a", 1, 10_000)
    assert bed.waiting.take("a") == []


def test_the_queue_that_began_first_makes_room_for_others() -> None:
    bed = Bed()
    for key in "abcd":
        assert bed.fill(key, 8) == 8
    assert bed.evicted == [("a", 8)]
    assert [bed.waiting.count(key) for key in "abcd"] == [0, 8, 8, 8]


def test_packets_that_nobody_wants_leave_their_bytes() -> None:
    bed = Bed()
    bed.fill("a", 10)
    assert bed.waiting.discard("a", lambda number: number % 2 == 0) == 5
    assert (list(bed.waiting.of("a")), bed.waiting.bytes) == ([1, 3, 5, 7, 9], 5000)
    assert bed.waiting.discard("b", lambda number: True) == 0


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 9000), st.booleans())))
def test_all_queues_together_never_exceed_their_bytes(steps: list[tuple[str, int, bool]]) -> None:
    bed = Bed()
    for key, length, takes in steps:
        bed.waiting.add(key, length, length)
        assert bed.waiting.bytes <= 25_000
        if takes:
            bed.waiting.take(key)
    counts = [list(bed.waiting.of(key)) for key in "abcde"]
    costs = [sum(length + WAITING_OVERHEAD_BYTES for length in lengths) for lengths in counts]
    assert bed.waiting.bytes == sum(costs)
    assert max(costs) <= 10_000
