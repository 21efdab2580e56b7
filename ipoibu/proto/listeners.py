# SPDX-License-Identifier: BSD-2-Clause
"""Which groups the local stack wants, told by the IGMP and MLD reports that leave it (M3, M4).

The kernel knows no other way to say it through a TUN. What a record means is the codec's `after`
(RFC 3376 §5.1, RFC 3810 §6.1); here is kept what it was before, and every change of "member or not"
becomes one user more or less of the group.

IGMPv1 has no leave: a group reported that way stays until the engine stops.
"""

from __future__ import annotations

from typing import Final

from ipoibu.addr import IpAddress
from ipoibu.limits import MEMBERSHIP_SOURCES_MAX
from ipoibu.proto.group import Groups
from ipoibu.wire import igmp, mld
from ipoibu.wire.membership import NOT_A_MEMBER, Interest, Query, Record, after

_PARSERS: Final = {4: igmp.parse_untrusted, 6: mld.parse_untrusted}


class Listeners:
    """The local stack's interest per group, and the users it makes in `groups`."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._interest: dict[IpAddress, Interest] = {}

    def __len__(self) -> int:
        return len(self._interest)

    def report_untrusted(self, now: float, version: int, packet: bytes) -> None:
        """Follow one packet of the local stack; queries say nothing. `BadFrame` for a broken report."""
        message = _PARSERS[version](packet)
        if message is None or isinstance(message, Query):
            return
        for record in message.records:
            self._apply(now, record)

    def _apply(self, now: float, record: Record) -> None:
        before = self._interest.get(record.group, NOT_A_MEMBER)
        wanted = after(before, record)
        if wanted is not None and len(wanted) > MEMBERSHIP_SOURCES_MAX:
            wanted = None  # too many to remember: take every source
        if wanted == NOT_A_MEMBER:
            if self._interest.pop(record.group, NOT_A_MEMBER) != NOT_A_MEMBER:
                self._groups.leave(now, record.group)
        elif before != NOT_A_MEMBER or self._groups.join(now, record.group):
            self._interest[record.group] = wanted
