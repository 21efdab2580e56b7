# SPDX-License-Identifier: BSD-2-Clause
"""Captures: hands frames, as they pass the queue pair, to any number of sinks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from ipoibu._core import CapturedFrame, Pump
from ipoibu.endpoint.datapath.tx_queues import TxQueues

SNAP_MAX_BYTES: Final = 65_535 + 44
Sink = Callable[[list[CapturedFrame]], None]

_log = logging.getLogger(__name__)


class Tap:
    """The pump's capture ring and its readers; every method runs on the engine's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pump: Pump | TxQueues) -> None:
        self._loop = loop
        self._pump = pump
        self._sinks: list[tuple[Sink, int]] = []
        # The pump goes on with an earlier capture for a moment: older frames are not ours.
        self._since_ns = 0

    def add(self, sink: Sink, snap_bytes: int) -> None:
        """Hand every frame from now on to `sink`, in batches; at least its first `snap_bytes`."""
        if not self._sinks:
            self._since_ns = time.time_ns()
            self._loop.add_reader(self._pump.capture_fd, self._woken)
        self._sinks.append((sink, snap_bytes))
        self._set()
        self._drain()

    def remove(self, sink: Sink) -> None:
        """Hand the sink the frames captured before, then none."""
        self._drain()
        self._drop(sink)

    def _drop(self, sink: Sink) -> None:
        self._sinks = [entry for entry in self._sinks if entry[0] is not sink]
        self._set()
        if not self._sinks:
            self._loop.remove_reader(self._pump.capture_fd)

    def follow(self, pump: Pump | TxQueues) -> None:
        """Another pump takes over from one that was stopped."""
        if self._sinks:
            self._drain()
            self._loop.remove_reader(self._pump.capture_fd)
            self._loop.add_reader(pump.capture_fd, self._woken)
        self._pump = pump
        if self._sinks:
            self._set()
            self._drain()

    def _set(self) -> None:
        self._pump.capture(max((snap for _, snap in self._sinks), default=0))

    def _woken(self) -> None:
        self._pump.disarm_captured()
        self._drain()

    def _drain(self) -> None:
        frames = self._pump.captured()
        if self._since_ns and frames:
            fresh = [frame for frame in frames if frame.time_ns >= self._since_ns]
            if len(fresh) == len(frames):
                self._since_ns = 0  # the clock may be set back later
            frames = fresh
        if frames:
            for sink, _ in self._sinks:
                try:
                    sink(frames)
                except Exception:
                    # The other sinks go on.
                    _log.exception("a capture's sink failed: it gets no more frames")
                    self._drop(sink)
        if self._pump.arm_captured():
            self._loop.call_soon(self._drain)
