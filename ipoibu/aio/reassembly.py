# SPDX-License-Identifier: BSD-2-Clause
"""Puts fragments together, within bounds: RFC 791 §3.2, RFC 8200 §4.5; overlaps end a packet (RFC 5722)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import (
    IP_PACKET_MAX_BYTES,
    REASSEMBLY_BYTES,
    REASSEMBLY_MAX,
    REASSEMBLY_PARTS_MAX,
    REASSEMBLY_S,
)
from ipoibu.wire import ip
from ipoibu.wire.fragment import Fragment, whole

_Key = tuple[IpAddress, IpAddress, int, int]


@dataclass(slots=True)
class _Parts:
    """The fragments of one packet. After a fault only the key stays, so that late ones go, too."""

    until: float
    first: Fragment | None = None
    starts: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    held_bytes: int = 0
    total_bytes: int | None = None  # known from the last fragment on
    is_spoiled: bool = False

    def add(self, part: Fragment) -> bool:
        """Take a fragment; return False if it contradicts the others."""
        start, end = part.offset_bytes, part.end_bytes
        at = bisect_left(self.starts, start)
        if at < len(self.starts) and self.starts[at] == start:
            return self.payloads[at] == part.payload  # the network repeated it (RFC 8200 §4.5)
        before = self.starts[at - 1] + len(self.payloads[at - 1]) if at else 0
        after = self.starts[at] if at < len(self.starts) else IP_PACKET_MAX_BYTES
        if before > start or end > after or len(self.starts) >= REASSEMBLY_PARTS_MAX:
            return False
        if not part.has_more:
            if self.total_bytes is not None or at < len(self.starts):
                return False
            self.total_bytes = end
        elif self.total_bytes is not None and end > self.total_bytes:
            return False
        if start == 0:
            self.first = part
        self.starts.insert(at, start)
        self.payloads.insert(at, part.payload)
        self.held_bytes += len(part.payload)
        return True

    def spoil(self) -> None:
        self.is_spoiled, self.first = True, None
        self.starts, self.payloads, self.held_bytes = [], [], 0


class Reassembly:
    """The packets of which fragments are missing. `counts` gets what happens to them."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._packets: OrderedDict[_Key, _Parts] = OrderedDict()  # the oldest first
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._packets)

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def add(self, now: float, part: Fragment) -> ip.Packet | None:
        """Take a fragment; return the whole packet if it was the last one missing."""
        if not part.offset_bytes and not part.has_more:
            return whole(part, part.payload)  # an atomic fragment stands alone (RFC 6946 §4)
        key = (part.source, part.destination, part.identification, part.protocol)
        parts = self._packets.get(key)
        if parts is None:
            parts = self._packets[key] = _Parts(now + REASSEMBLY_S)
        if parts.is_spoiled:
            self._counts["fragment_overlap"] += 1
            return None
        before = parts.held_bytes
        if not parts.add(part):
            self._counts["fragment_overlap"] += 1
            self._held_bytes -= before
            parts.spoil()
        else:
            self._held_bytes += parts.held_bytes - before
            if parts.held_bytes == parts.total_bytes:
                del self._packets[key]
                self._held_bytes -= parts.held_bytes
                return self._joined(parts)
        self._make_room()
        return None

    def _joined(self, parts: _Parts) -> ip.Packet | None:
        assert parts.first is not None, "without gaps there is one at 0"
        payload = b"".join(parts.payloads)
        if parts.first.source.version == 4 and len(payload) > IP_PACKET_MAX_BYTES - 20:
            self._counts["fragment_overlap"] += 1
            return None
        self._counts["reassembled"] += 1
        return whole(parts.first, payload)

    def _make_room(self) -> None:
        while len(self._packets) > REASSEMBLY_MAX or self._held_bytes > REASSEMBLY_BYTES:
            self._forget_oldest()
            self._counts["fragment_table_full"] += 1

    def _forget_oldest(self) -> None:
        _, parts = self._packets.popitem(last=False)
        self._held_bytes -= parts.held_bytes

    def expire(self, now: float) -> None:
        """Forget what is older than `REASSEMBLY_S`."""
        while self._packets:
            oldest = next(iter(self._packets.values()))
            if oldest.until > now:
                return
            self._forget_oldest()
            self._counts["fragment_timeout"] += 1
