# SPDX-License-Identifier: BSD-2-Clause
"""A stand-in for an endpoint: answers the control socket without a data path."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ipoibu.proto.machine.transition import Transition


@dataclass(frozen=True)
class FakeFrame:
    time_ns: int
    wire_len: int
    data: bytes


class FakeEndpoint:
    """Answers at once, or when `gate` opens; `frames` go to every capture as soon as it starts."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.frames: list[FakeFrame] = []
        self.sinks: list[Callable[[Sequence[FakeFrame]], None]] = []
        self.snap_bytes = 0
        self.ring_drops = 0
        self.watchers: list[Callable[[Transition], None]] = []

    def show(self) -> dict[str, Any]:
        self.gate.wait()
        return {"name": "ib0", "mtu": 2044, "addresses": []}

    def neighbours(self) -> list[dict[str, Any]]:
        return [{"ip": "10.0.0.2", "hwaddr": None, "state": "incomplete", "age_s": 0.5}]

    def groups(self) -> list[dict[str, Any]]:
        return []

    def connections(self) -> list[dict[str, Any]]:
        return []

    def peers(self) -> list[dict[str, Any]]:
        return []

    def stats(self) -> dict[str, int]:
        return {"tx_packets": 7, "capture_dropped": self.ring_drops}

    def guests(self) -> list[dict[str, Any]]:
        return []

    def drop_sources(self) -> dict[str, str]:
        return {}

    def paths(self) -> list[dict[str, Any]]:
        return []

    def watch(self, sink: Callable[[Transition], None]) -> Callable[[], None]:
        self.watchers.append(sink)
        return lambda: self.watchers.remove(sink)

    def capture(
        self, sink: Callable[[Sequence[FakeFrame]], None], snap_bytes: int
    ) -> Callable[[], None]:
        self.sinks.append(sink)
        self.snap_bytes = snap_bytes
        if self.frames:
            sink(self.frames)
        return lambda: self.sinks.remove(sink)


@pytest.fixture
def endpoint() -> FakeEndpoint:
    return FakeEndpoint()


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty runtime directory for this test alone."""
    directory = tmp_path / "run"
    monkeypatch.setenv("IPOIBU_RUNTIME_DIR", str(directory))
    return directory
