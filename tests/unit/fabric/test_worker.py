# SPDX-License-Identifier: BSD-2-Clause
"""The worker thread: it serves descriptors, wakes up on request, and leaves nothing behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from ipoibu.fabric.worker import Worker

_PATIENCE_S = 10
_BAD_ROUND = 255


class Echo(Worker):
    """Reads numbers from a pipe; a zero raises an exception."""

    def __init__(self) -> None:
        super().__init__("echo")
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.heard: list[int] = []
        self.rounds = 0
        self.wait_ms: float | None = None
        self.served = threading.Condition(self._lock)
        self.ends: list[str] = []
        self._start()

    def wake(self) -> None:
        with self._lock:
            self._wake()

    def until(self, *, rounds: int = 0, heard: int = 0) -> bool:
        with self.served:
            return self.served.wait_for(
                lambda: self.rounds >= rounds and len(self.heard) >= heard, _PATIENCE_S
            )

    def _filenos(self) -> tuple[int, ...]:
        return (self._read_fd,)

    def _serve(self) -> float | None:
        self.rounds += 1
        try:
            number = os.read(self._read_fd, 1)[0]
        except BlockingIOError:
            number = None
        if number == _BAD_ROUND:
            raise RuntimeError("the round fails")
        if number is not None:
            with self._guarded("a number"):
                self.heard.append(1 // number)
        self.served.notify_all()
        return self.wait_ms if number is None else 0.0

    def _disconnect_all(self) -> None:
        self.ends.append("farewell")

    def _release(self) -> None:
        self.ends.append("release")
        os.close(self._read_fd)
        os.close(self.write_fd)


@pytest.fixture
def echo() -> Iterator[Echo]:
    worker = Echo()
    yield worker
    worker.close()


def test_what_is_readable_is_served(echo: Echo) -> None:
    os.write(echo.write_fd, b"\1\1\1")
    assert echo.until(heard=3)


def test_a_request_wakes_it(echo: Echo) -> None:
    assert echo.until(rounds=1)
    before = echo.rounds
    echo.wake()
    assert echo.until(rounds=before + 1)


def test_it_comes_back_at_its_deadline(echo: Echo) -> None:
    echo.wait_ms = 1.0
    echo.wake()
    assert echo.until(rounds=5)


def test_a_defect_costs_one_message(echo: Echo, caplog: pytest.LogCaptureFixture) -> None:
    os.write(echo.write_fd, b"\1\0\1")
    assert echo.until(heard=2)
    assert echo.counters() == {"defect": 1}
    assert "a number was not handled" in caplog.text


def test_a_round_that_fails_is_counted_and_another_one_follows(
    echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    os.write(echo.write_fd, bytes([_BAD_ROUND, 1]))
    assert echo.until(heard=1)
    assert echo.counters() == {"defect": 1}
    assert "a round was not handled" in caplog.text


def test_closing_leaves_no_thread_and_no_descriptor_and_may_be_repeated() -> None:
    descriptors, threads = set(os.listdir("/proc/self/fd")), threading.active_count()
    worker = Echo()
    assert worker.until(rounds=1)
    worker.close()
    worker.close()
    assert worker.ends == ["farewell", "release"]
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads
    worker.wake()  # does nothing after close
