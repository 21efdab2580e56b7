# SPDX-License-Identifier: BSD-2-Clause
"""An interface as the daemon's clients see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ipoibu.daemon.pcap import Frame
from ipoibu.proto.transition import Transition


class Observed(Protocol):
    """The part of `Endpoint` that the control socket and the metrics show."""

    def show(self) -> dict[str, Any]: ...
    def neighbours(self) -> list[dict[str, Any]]: ...
    def groups(self) -> list[dict[str, Any]]: ...
    def connections(self) -> list[dict[str, Any]]: ...
    def stats(self) -> dict[str, int]: ...
    def watch(self, sink: Callable[[Transition], None], /) -> Callable[[], None]: ...
    def capture(
        self, sink: Callable[[Sequence[Frame]], None], snap_bytes: int, /
    ) -> Callable[[], None]: ...
