# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from ipoibu.endpoint.datapath.capture import Tap


class Pump:
    """Has frames of any time, which a test puts there."""

    def __init__(self) -> None:
        self.capture_fd = 0
        self.frames: list[Any] = []
        self.snap_bytes = 0

    def capture(self, snap_bytes: int) -> None:
        self.snap_bytes = snap_bytes

    def captured(self) -> list[Any]:
        frames, self.frames = self.frames, []
        return frames

    def disarm_captured(self) -> None: ...

    def arm_captured(self) -> bool:
        return False


def frame() -> SimpleNamespace:
    return SimpleNamespace(time_ns=time.time_ns())


def test_frames_of_an_earlier_capture_are_not_those_of_the_next_one() -> None:
    """The pump goes on for a moment after the end of the earlier one."""
    pump = Pump()
    loop: Any = SimpleNamespace(add_reader=lambda *_: None, remove_reader=lambda *_: None)
    tap = Tap(loop, pump)  # type: ignore[arg-type]
    first: list[Any] = []
    second: list[Any] = []
    sink = first.extend
    tap.add(sink, 100)
    tap.remove(sink)
    late = frame()
    pump.frames = [late]
    tap.add(second.extend, 100)
    fresh = frame()
    pump.frames = [late, fresh]
    tap._woken()
    assert second == [fresh]
    set_back = SimpleNamespace(time_ns=0)
    pump.frames = [frame()]
    tap._woken()
    pump.frames = [set_back]
    tap._woken()
    assert second[-1] is set_back
    assert first == []
