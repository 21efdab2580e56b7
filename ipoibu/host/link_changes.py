# SPDX-License-Identifier: BSD-2-Clause
"""Tells which notices of other interfaces may change the addresses that the host answers for.

The kernel drops the local routes of an interface that goes down, makes them again when it goes up, and a
VRF moves them to another table. Most notices are about something else: an interface is made, gets its
carrier or another MTU. A process with a hundred child interfaces would list the host's addresses a hundred
times for each of them.
"""

from __future__ import annotations

import struct
from enum import Enum, auto
from typing import Final

from ipoibu.host.monitor import Notice
from ipoibu.host.netlink import IFF_UP, RTM_DELLINK
from ipoibu.host.route_message import attributes, number_of

_HEADER: Final = struct.Struct("=BxHiII")  # struct ifinfomsg
_LENGTH: Final = struct.Struct("=I")
_IFLA_MASTER: Final = 10
_CREATED: Final = 0xFFFFFFFF  # ifi_change of the first notice of an interface


class _Stage(Enum):
    NEW = auto()  # it has never been up
    UP = auto()
    DOWN = auto()


class LinkChanges:
    """Remembers each interface of the namespace by its notices."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[_Stage, int | None]] = {}  # at most the kernel's interfaces

    def forget(self) -> None:
        """Forget everything: notices got lost."""
        self._seen.clear()

    def matter(self, notice: Notice) -> bool:
        """Return whether the notice of another interface (RTM_NEWLINK, RTM_DELLINK) may change local
        routes."""
        _, _, index, flags, change = _HEADER.unpack_from(notice.data, notice.offset + 16)
        if notice.kind == RTM_DELLINK:
            self._seen.pop(index, None)
            return False  # the kernel has removed its addresses before, each with a notice
        is_up, master = bool(flags & IFF_UP), _master(notice)
        if change == _CREATED and not is_up and master is None:
            self._seen[index] = (_Stage.NEW, None)
            return False
        stage, before = self._seen.get(index, (_Stage.DOWN, None))
        if stage is _Stage.NEW and master == before and not is_up:
            return False
        self._seen[index] = (_Stage.UP if is_up else _Stage.DOWN, master)
        return not is_up or stage is _Stage.DOWN or master != before


def _master(notice: Notice) -> int | None:
    """Return the bridge, bond or VRF that the interface belongs to."""
    (length,) = _LENGTH.unpack_from(notice.data, notice.offset)
    begin = notice.offset + 16 + _HEADER.size
    for number, value in attributes(notice.data, begin, notice.offset + length):
        if number == _IFLA_MASTER:
            return number_of(value)
    return None
