# SPDX-License-Identifier: BSD-2-Clause
"""What happens when there is no more memory."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ipoibu.base.exhaustion import EXHAUSTION, Exhaustion
from ipoibu.base.limits import EXHAUSTION_AGAIN_S, EXHAUSTION_END_S, EXHAUSTION_RESERVE_BYTES
from ipoibu.fabric.loop_thread import Loop, LoopThread, submit


@pytest.fixture(autouse=True)
def timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds after which SIGALRM would end this process."""
    armed: list[float] = []
    monkeypatch.setattr(signal, "setitimer", lambda which, *times_s: armed.extend(times_s))
    return armed


@pytest.fixture
def ends() -> Iterator[list[int]]:
    """Has as many elements as the process would have begun to end."""
    called: list[int] = []
    EXHAUSTION.prepare(lambda: called.append(1), "x")
    yield called
    EXHAUSTION.prepare(lambda: None, "x")
    EXHAUSTION.forget()


def test_the_first_error_frees_the_reserve_and_begins_the_end_once(timers: list[float]) -> None:
    free: list[bool] = []
    one = Exhaustion()
    one.prepare(lambda: free.append(not one._reserve), "x")
    assert len(one._reserve) == EXHAUSTION_RESERVE_BYTES
    assert not one.is_one(OSError(12, "Cannot allocate memory"))
    assert not one.is_one(None)
    assert one.is_one(MemoryError())
    assert one.is_one(MemoryError("again"))
    assert free == [True]
    assert timers == [EXHAUSTION_END_S, EXHAUSTION_AGAIN_S]
    one.forget()
    assert one.is_one(MemoryError()), "of a task that the interpreter finds at its end"


def test_an_application_hears_of_the_error_itself(timers: list[float]) -> None:
    one = Exhaustion()
    assert not one.is_one(MemoryError())
    one.prepare(lambda: None, "x")
    one.forget()
    assert not one.is_one(MemoryError())
    assert timers == []


HANGS = """
import time
from ipoibu.base import exhaustion
exhaustion.EXHAUSTION_END_S = 0.001
exhaustion.EXHAUSTION.prepare(lambda: None, "the line")
exhaustion.EXHAUSTION.is_one(MemoryError())
time.sleep(60)
"""


def test_an_end_that_takes_too_long_is_cut_short_with_the_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "the line\n")


class _Poor(Loop):
    """Gets no memory for its first two rounds."""

    rounds = 0

    def _run_once(self) -> None:
        self.rounds += 1
        if self.rounds <= 2:
            raise MemoryError
        super()._run_once()  # type: ignore[misc]


def test_a_loop_without_memory_goes_on_as_far_as_the_end(ends: list[int]) -> None:
    async def work() -> int:
        return 7

    with asyncio.Runner(loop_factory=_Poor) as runner:
        assert runner.run(work()) == 7
    assert ends == [1]


def test_a_loop_of_an_application_raises_the_error() -> None:
    loop = _Poor()
    for _ in range(2):
        with pytest.raises(MemoryError):
            loop.run_forever()
    loop.close()


def test_a_callback_without_memory_begins_the_end_and_writes_no_traceback(
    ends: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    thread = LoopThread("poor")
    thread.start()

    def fail() -> None:
        raise MemoryError

    async def done() -> bool:
        return True

    thread.loop.call_soon_threadsafe(fail)
    assert submit(thread.loop, done).result(60)
    thread.stop()
    assert ends == [1]
    assert caplog.records == []
