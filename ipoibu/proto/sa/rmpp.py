# SPDX-License-Identifier: BSD-2-Clause
"""Receives a table of several datagrams: InfiniBand volume 1, §13.6.6 (Q4, Q5).

The sender may send segment 1 first, then the window of our last ACK. We acknowledge when the window is
used up, when a segment comes twice (our ACK was lost) and at the end. A segment that arrives early waits
inside the window, so that the loss of one segment does not cost the later ones.
"""

from __future__ import annotations

import enum
from typing import Final

from ipoibu.base.limits import SA_TABLE_BYTES_MAX, SA_WINDOW_SEGMENTS
from ipoibu.wire import rmpp, sa
from ipoibu.wire.rmpp import Rmpp, Status

_DATA_MAX: Final = rmpp.SEGMENT_LEN - sa.OWN_HEADER_LEN  # bytes of records in a segment


class Progress(enum.Enum):
    """The effect of one more segment."""

    IGNORED = "nothing: the segment waits for earlier ones, or is of no use"
    REPEATED = "a segment that came before: the sender missed our ACK"
    GROWN = "more of the table"
    WINDOW = "more of the table, and the sender waits for an ACK"
    WHOLE = "the whole table"
    BROKEN = "an invalid segment, or a table that is too long"


class Transfer:
    """One transfer that we receive; `cap_bytes` and the window bound its memory."""

    def __init__(self, cap_bytes: int = SA_TABLE_BYTES_MAX) -> None:
        self._cap_bytes = cap_bytes
        self._parts: list[bytes] = []
        self._ahead: dict[int, tuple[Rmpp, bytes]] = {}
        self._window_last = 1
        self._is_whole = False
        self.fault = Status.NORMAL

    def __len__(self) -> int:
        """Segments received in order."""
        return len(self._parts)

    @property
    def data(self) -> bytes:
        """Return the segments received in order: after `WHOLE`, the table."""
        return b"".join(self._parts)

    @property
    def ack(self) -> Rmpp:
        return rmpp.ack(len(self._parts), self._window_last)

    def add(self, header: Rmpp, data: bytes) -> Progress:
        """Take the segment of a DATA header with the `data` behind the SA's header."""
        segment = header.data1
        if segment == 0 or (segment == 1) != header.is_first:
            return self._broken(Status.INCONSISTENT_FIRST)
        if segment <= len(self._parts):
            return Progress.REPEATED
        if segment > self._window_last or self._is_whole:
            return Progress.IGNORED
        self._ahead[segment] = header, data
        return self._advance()

    def _advance(self) -> Progress:
        progress = Progress.IGNORED
        while (segment := self._ahead.pop(len(self._parts) + 1, None)) is not None:
            header, data = segment
            if header.is_last:
                size = header.data2 - sa.OWN_HEADER_LEN
                if not 0 <= size <= min(_DATA_MAX, len(data)):
                    return self._broken(Status.INCONSISTENT_LENGTH)
                self._parts.append(data[:size])
                self._is_whole = True
                return Progress.WHOLE
            if len(data) != _DATA_MAX:
                return self._broken(Status.INCONSISTENT_LENGTH)
            self._parts.append(data)
            if len(self._parts) * _DATA_MAX > self._cap_bytes:
                return self._broken(Status.RESOURCES_EXHAUSTED)
            if progress is Progress.IGNORED:
                progress = Progress.GROWN
            # the sender sends the first segment alone, and waits for its ACK
            if len(self._parts) in (1, self._window_last):
                self._window_last = len(self._parts) + SA_WINDOW_SEGMENTS
                progress = Progress.WINDOW
        return progress

    def _broken(self, fault: Status) -> Progress:
        self.fault = fault
        return Progress.BROKEN
