# SPDX-License-Identifier: BSD-2-Clause
"""The groups that the local stack receives: by its list, and by the reports that it sends (M3, M4).

Where the host side can read the kernel's list, `set_groups` takes it: it is the truth about the kernel's
sockets. IGMP and MLD reports come earlier, and for more: an ipvlan interface in a container, or an
application's own stack, reports groups that are on no list. So a group has a user while either names it,
and when a group vanishes from the list, an earlier report of it is void: reports of leaving get lost.

`membership.after` gives the effect of a record (RFC 3376 §5.1, RFC 3810 §6.1). IGMPv1 has no leave
message: a group that only its reports name stays joined until the engine stops.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import MEMBERSHIP_SOURCES_MAX
from ipoibu.proto.groups.groups import Groups
from ipoibu.wire import igmp, mld
from ipoibu.wire.membership import NOT_A_MEMBER, Interest, Query, Record, after
from ipoibu.wire.ndisc import ALL_NODES

PARSERS: Final = {4: igmp.parse_untrusted, 6: mld.parse_untrusted}

ALL_HOSTS: Final = IPv4Address("224.0.0.1")  # RFC 1112 §4: every host is a member


class Listeners:
    """The local stack's groups; each counts as one user of the group in `groups`."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._interest: dict[IpAddress, Interest] = {}  # by reports
        self._listed: set[IpAddress] = set()

    def __len__(self) -> int:
        return len(self._interest.keys() | self._listed)

    def set_groups(self, now: float, groups: Iterable[IpAddress]) -> None:
        """Take the kernel's whole list; a group that was refused for lack of room gets another try."""
        there = {group for group in groups if is_reported(group)}
        for group in sorted(self._listed - there, key=str):
            self._listed.discard(group)
            self._interest.pop(group, None)
            self._groups.leave(now, group)
        for group in sorted(there - self._listed, key=str):
            if group in self._interest or self._groups.join(now, group):
                self._listed.add(group)

    def report_untrusted(self, now: float, version: int, packet: bytes) -> None:
        """Follow one packet of the local stack and ignore queries; `BadFrame` for an invalid report."""
        message = PARSERS[version](packet)
        if message is None or isinstance(message, Query):
            return
        for record in message.records:
            self._apply(now, record)

    def _apply(self, now: float, record: Record) -> None:
        group = record.group
        before = self._interest.get(group, NOT_A_MEMBER)
        wanted = after(before, record)
        if wanted is not None and len(wanted) > MEMBERSHIP_SOURCES_MAX:
            wanted = None  # too many sources to remember: take every source
        is_user = before != NOT_A_MEMBER or group in self._listed
        if wanted != NOT_A_MEMBER:
            if is_user or self._groups.join(now, group):
                self._interest[group] = wanted
        elif before != NOT_A_MEMBER:
            del self._interest[group]
            if group not in self._listed:
                self._groups.leave(now, group)


def is_reported(group: IpAddress) -> bool:
    """Return whether hosts report the group. They are always members of all-hosts and all-nodes, and the
    groups of scopes 0 and 1 never leave the host (RFC 3810 §6)."""
    if group in (ALL_HOSTS, ALL_NODES):
        return False
    return group.version == 4 or group.packed[1] & 0xF > 1
