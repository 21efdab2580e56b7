# SPDX-License-Identifier: BSD-2-Clause
"""Receiving a table that takes more than one datagram: InfiniBand volume 1, §13.6.6.

The sender may send segment 1 at first, then what our last ACK allows. We acknowledge when the window
is used up, when a segment comes twice (our ACK was lost) and at the end. Segments that overtook
another wait inside the window, so that one loss does not cost all that follow.
"""

from __future__ import annotations

import enum
from typing import Final

from ipoibu.limits import SA_TABLE_BYTES_MAX, SA_WINDOW_SEGMENTS
from ipoibu.wire import rmpp, sa
from ipoibu.wire.rmpp import Rmpp, Status

_DATA_MAX: Final = rmpp.SEGMENT_LEN - sa.OWN_HEADER_LEN  # bytes of records in a segment


class Progress(enum.Enum):
    """What one more segment brought."""

    IGNORED = "nothing, or one that has to wait for those before it"
    REPEATED = "one that is there already: the sender missed our ACK"
    GROWN = "more of the table"
    WINDOW = "more of the table, and the sender waits for an ACK"
    WHOLE = "that was all of it"
    BROKEN = "the transfer makes no sense, or is too long"


class Transfer:
    """One transfer on its way in; memory is bounded by `cap_bytes` and the window."""

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
        """What is there in order; the table once `WHOLE` was said."""
        return b"".join(self._parts)

    @property
    def ack(self) -> Rmpp:
        return rmpp.ack(len(self._parts), self._window_last)

    def add(self, header: Rmpp, data: bytes) -> Progress:
        """Take the segment of a DATA header with the `data` behind the SA's header."""
        segment = header.first_word
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
        while (found := self._ahead.pop(len(self._parts) + 1, None)) is not None:
            header, data = found
            if header.is_last:
                told = header.second_word - sa.OWN_HEADER_LEN
                if not 0 <= told <= min(_DATA_MAX, len(data)):
                    return self._broken(Status.INCONSISTENT_LENGTH)
                self._parts.append(data[:told])
                self._is_whole = True
                return Progress.WHOLE
            if len(data) != _DATA_MAX:
                return self._broken(Status.INCONSISTENT_LENGTH)
            self._parts.append(data)
            if len(self._parts) * _DATA_MAX > self._cap_bytes:
                return self._broken(Status.RESOURCES_EXHAUSTED)
            if progress is Progress.IGNORED:
                progress = Progress.GROWN
            # the first segment travels alone until it is acknowledged
            if len(self._parts) in (1, self._window_last):
                self._window_last = len(self._parts) + SA_WINDOW_SEGMENTS
                progress = Progress.WINDOW
        return progress

    def _broken(self, fault: Status) -> Progress:
        self.fault = fault
        return Progress.BROKEN
