# SPDX-License-Identifier: BSD-2-Clause
"""Puts fragments together, for IPv4 and IPv6."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Pieces:
    """The fragments of one packet: by their offset, with the end of all once the last one came."""

    by_offset: dict[int, bytes] = field(default_factory=dict)
    end: int | None = None
    next_header: int | None = None  # the first fragment's
    is_spoilt: bool = False

    def add(self, offset: int, data: bytes, more: bool) -> None:
        """Take a fragment; one that overlaps another spoils the packet, but not one that is the same."""
        if self.by_offset.get(offset) == data:
            return
        for other, body in self.by_offset.items():
            if offset < other + len(body) and other < offset + len(data):
                self.is_spoilt = True
        self.by_offset[offset] = data
        if not more:
            self.end = offset + len(data)

    def whole(self) -> bytes | None:
        """Return the packet's bytes if all are here."""
        if self.end is None:
            return None
        found = bytearray(self.end)
        covered = 0
        for offset, data in sorted(self.by_offset.items()):
            if offset > covered:
                return None
            found[offset : offset + len(data)] = data
            covered = max(covered, offset + len(data))
        return bytes(found[: self.end]) if covered >= self.end else None
