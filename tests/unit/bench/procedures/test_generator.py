# SPDX-License-Identifier: BSD-2-Clause
"""The traffic generator without a network: a clock and a socket of the test."""

from __future__ import annotations

import socket
from bisect import bisect_left
from typing import Any, cast

import pytest

from ipoibu.bench.procedures import generator
from ipoibu.bench.procedures.generator import BURST_S, HEAD, TIMESPEC, Receiver, send


class _Time:
    """A clock that a nap and each datagram move, and that stands still for `stall_s` once."""

    def __init__(self, datagram_s: float, stall_s: float = 0.0, stall_at_s: float = 0.1) -> None:
        self._now = 0.0
        self._datagram_s, self._stall_s, self._stall_at_s = datagram_s, stall_s, stall_at_s
        self.sent: list[tuple[float, bytes]] = []

    def monotonic(self) -> float:
        return self._now

    def time_ns(self) -> int:
        return round(self._now * 1e9)

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        if self._stall_s and self._now > self._stall_at_s:
            self._now += self._stall_s
            self._stall_s = 0.0

    def send(self, payload: bytearray) -> None:  # of a socket
        self._now += self._datagram_s
        self.sent.append((self._now, bytes(payload)))


def _sent(
    clock: _Time, monkeypatch: pytest.MonkeyPatch, frames: int, rate: float
) -> dict[str, float]:
    monkeypatch.setattr(generator, "time", clock)
    stream = cast("socket.socket", clock)
    return send(stream, trial=7, payload_bytes=40, frames=frames, rate=rate)


def _most_in(clock: _Time, window_s: float) -> int:
    times = [when for when, _ in clock.sent]
    return max(bisect_left(times, begin + window_s) - at for at, begin in enumerate(times))


def test_the_sender_keeps_the_rate_in_small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Time(1e-6)
    answer = _sent(clock, monkeypatch, 10_000, 20_000)
    assert answer["sent"] == 10_000
    assert answer["took_s"] == pytest.approx(0.5, rel=0.01)
    assert _most_in(clock, 0.001) <= 20_000 * (0.001 + BURST_S)
    numbers = [HEAD.unpack_from(payload) for _, payload in clock.sent]
    assert [number for _, number, _ in numbers] == list(range(10_000))
    assert {trial for trial, _, _ in numbers} == {7}
    assert all(
        abs(when - ns / 1e9) < 3e-6
        for (when, _), (_, _, ns) in zip(clock.sent, numbers, strict=True)
    )


def test_a_late_sender_makes_no_burst_of_what_it_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Time(1e-6, stall_s=0.03)
    answer = _sent(clock, monkeypatch, 10_000, 20_000)
    assert answer["sent"] == 10_000
    assert answer["took_s"] == pytest.approx(0.53, rel=0.01)
    assert _most_in(clock, 0.001) <= 20_000 * (0.001 + BURST_S)


def test_a_sender_that_cannot_keep_the_rate_ends_short(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _sent(_Time(1e-4), monkeypatch, 10_000, 20_000)
    assert answer["sent"] < 6000
    assert answer["took_s"] == pytest.approx(0.55, rel=0.05)


def test_full_speed_takes_no_naps(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = _sent(_Time(1e-6), monkeypatch, 1000, 0)
    assert answer["sent"] == 1000
    assert answer["took_s"] == pytest.approx(0.001)


def test_what_the_kernel_refuses_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Time(1e-6)
    monkeypatch.setattr(clock, "send", lambda payload: (_ for _ in ()).throw(OSError(105, "full")))
    assert _sent(clock, monkeypatch, 10, 0)["sent"] == 0


class _Arrivals:
    """A socket with datagrams and the kernel's stamps of them."""

    def __init__(self, *frames: tuple[int, int, int, int]) -> None:
        self._frames = list(frames)

    def recvmsg_into(self, buffers: list[bytearray], _: int) -> tuple[int, list[Any], int, None]:
        if not self._frames:
            raise BlockingIOError
        trial, number, sent_ns, arrived_ns = self._frames.pop(0)
        HEAD.pack_into(buffers[0], 0, trial, number, sent_ns)
        stamp = TIMESPEC.pack(*divmod(arrived_ns, 10**9))
        return HEAD.size, [(socket.SOL_SOCKET, generator.SO_TIMESTAMPNS, stamp)], 0, None


def test_the_receiver_counts_its_own_trial_and_keeps_some_delays() -> None:
    second = 10**9
    frames = [(2, number, second - 500 + number, second + number) for number in (0, 1, 3, 2, 4)]
    counter = Receiver(cast("socket.socket", _Arrivals((1, 9, 0, 0), *frames)))
    counter.begin(trial=2, every=2)
    assert counter.drain()
    assert not counter.drain()
    result = counter.result()
    assert (result["received"], result["reordered"]) == (5, 1)
    assert result["tagged"] == [(0, 500), (2, 500), (4, 500)]
    counter.begin(trial=3, every=2)
    assert counter.result()["received"] == 0
