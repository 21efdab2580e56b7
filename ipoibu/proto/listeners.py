# SPDX-License-Identifier: BSD-2-Clause
"""The groups that the local stack joins, from the IGMP and MLD reports that it sends (M3, M4).

A TUN gives no other sign of the kernel's groups. `membership.after` gives the effect of a record (RFC 3376
§5.1, RFC 3810 §6.1); `Listeners` keeps the interest per group, and each change between member and
non-member adds or removes one user of the group.

IGMPv1 has no leave message: a group that it reports stays joined until the engine stops.
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
    """The local stack's interest per group; it counts as one user of the group in `groups`."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._interest: dict[IpAddress, Interest] = {}

    def __len__(self) -> int:
        return len(self._interest)

    def report_untrusted(self, now: float, version: int, packet: bytes) -> None:
        """Follow one packet of the local stack and ignore queries; `BadFrame` for an invalid report."""
        message = _PARSERS[version](packet)
        if message is None or isinstance(message, Query):
            return
        for record in message.records:
            self._apply(now, record)

    def _apply(self, now: float, record: Record) -> None:
        before = self._interest.get(record.group, NOT_A_MEMBER)
        wanted = after(before, record)
        if wanted is not None and len(wanted) > MEMBERSHIP_SOURCES_MAX:
            wanted = None  # too many sources to remember: take every source
        if wanted == NOT_A_MEMBER:
            if self._interest.pop(record.group, NOT_A_MEMBER) != NOT_A_MEMBER:
                self._groups.leave(now, record.group)
        elif before != NOT_A_MEMBER or self._groups.join(now, record.group):
            self._interest[record.group] = wanted
