# SPDX-License-Identifier: BSD-2-Clause
"""What the pump reports to the engine about messages and packets that it refused; only the log follows."""

from __future__ import annotations

from ipoibu.base.addr import IpAddress
from ipoibu.proto.context import EngineContext, FrameSource
from ipoibu.proto.inputs import EnginePart, engine_input


class PumpReports(EnginePart):
    """Inputs that change no table."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    @engine_input
    def note_control_limited(self, now: float, source: FrameSource) -> None:
        """The pump refuses ARP and ND messages of this second, the first one of them from `source`."""
        text = f"too many ARP and ND messages: ignored some, the first from {source}"
        self._context.warn("control_limited", now, text)

    @engine_input
    def note_resolution_limited(self, now: float, next_hop: IpAddress) -> None:
        """The pump drops packets of this second to addresses that it does not know, the first one of them to
        `next_hop`."""
        text = f"too many new addresses: dropped packets to some, the first to {next_hop}"
        self._context.warn("resolution_limited", now, text)

    @engine_input
    def note_dropped(self, now: float, source: FrameSource, counter: str) -> None:
        """The pump dropped a datagram of `source`, and has counted it under `counter`."""
        self._context.note_drop(now, source, counter)
