# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ipoibu.proto.machine.timers import Timers


class Ringing:
    def __init__(self) -> None:
        self.rung: list[tuple[float, str]] = []

    def ring(self, now: float, key: str) -> None:
        self.rung.append((now, key))


def test_alarms_ring_in_the_order_of_their_times_and_then_of_their_arming() -> None:
    timers, bell = Timers(), Ringing()
    for key, at in (("late", 3.0), ("first", 1.0), ("second", 1.0)):
        timers.arm(bell.ring, key, at)
    assert timers.deadline() == 1.0
    timers.run(2.0)
    assert bell.rung == [(2.0, "first"), (2.0, "second")]
    assert timers.deadline() == 3.0


def test_nothing_rings_before_its_time() -> None:
    timers, bell = Timers(), Ringing()
    timers.arm(bell.ring, "x", 5.0)
    timers.run(4.999)
    assert bell.rung == []


def test_a_cancelled_alarm_is_silent_and_sets_no_deadline() -> None:
    timers, bell = Timers(), Ringing()
    timers.arm(bell.ring, "x", 1.0)
    timers.cancel(bell.ring, "x")
    timers.cancel(bell.ring, "never armed")
    assert timers.deadline() is None
    timers.run(9.0)
    assert bell.rung == []


def test_an_alarm_cancelled_by_one_that_rings_at_the_same_moment_is_silent() -> None:
    timers, bell = Timers(), Ringing()

    def first(now: float, key: str) -> None:
        timers.cancel(bell.ring, "second")

    timers.arm(first, "first", 1.0)
    timers.arm(bell.ring, "second", 1.0)
    timers.run(1.0)
    assert bell.rung == []


def test_moving_an_alarm_later_and_earlier_takes_the_last_word() -> None:
    timers, bell = Timers(), Ringing()
    for at in (5.0, 9.0, 7.0, 3.0, 8.0):
        timers.arm(bell.ring, "x", at)
    assert timers.deadline() == 8.0
    timers.run(7.9)
    assert bell.rung == []
    timers.run(8.0)
    assert bell.rung == [(8.0, "x")]
    assert len(timers) == 0


def test_rearming_and_cancelling_for_ever_keeps_the_heap_small() -> None:
    timers, bell = Timers(), Ringing()
    for i in range(10_000):
        timers.arm(bell.ring, "later and later", 10.0 + i)
        timers.arm(bell.ring, "earlier and earlier", 90_000.0 - i)
        timers.arm(bell.ring, f"once {i}", 5.0 + i)
        timers.cancel(bell.ring, f"once {i}")
    assert len(timers) == 2
    assert len(timers._heap) < 200


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.one_of(st.none(), st.integers(1, 20)), st.integers(0, 3)
        ),
        max_size=60,
    )
)
def test_whatever_is_armed_moved_and_cancelled_rings_once_at_its_last_time(
    orders: list[tuple[str, int | None, int]],
) -> None:
    """The test compares with a simple model: a dictionary that it searches from end to end."""
    timers, bell, now = Timers(), Ringing(), 0.0
    model: dict[str, float] = {}
    expected: list[str] = []
    for key, after, passing in orders:
        if after is None:
            timers.cancel(bell.ring, key)
            model.pop(key, None)
        else:
            timers.arm(bell.ring, key, now + after)
            model[key] = now + after
        assert timers.deadline() == min(model.values(), default=None)
        now += passing
        timers.run(now)
        due = [key for key in model if model[key] <= now]
        expected += due
        model = {key: at for key, at in model.items() if at > now}
        assert sorted(key for _, key in bell.rung) == sorted(expected)
