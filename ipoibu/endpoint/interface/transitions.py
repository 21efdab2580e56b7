# SPDX-License-Identifier: BSD-2-Clause
"""The observers of one interface: hands each transition of its machines to any number of sinks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ipoibu.proto.machine.transition import Transition

Sink = Callable[[Transition], None]

_log: Final = logging.getLogger(__name__)


class Transitions:
    """Every method runs on the engine's thread; a sink must not block, and must not call back."""

    def __init__(self) -> None:
        self._sinks: tuple[Sink, ...] = ()

    def add(self, sink: Sink) -> None:
        self._sinks += (sink,)

    def remove(self, sink: Sink) -> None:
        self._sinks = tuple(other for other in self._sinks if other is not sink)

    def note(self, transition: Transition) -> None:
        for sink in self._sinks:
            try:
                sink(transition)
            except Exception:
                # The engine and the other sinks go on.
                _log.exception("an observer failed: it gets no more transitions")
                self.remove(sink)
