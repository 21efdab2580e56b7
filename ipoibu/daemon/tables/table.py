# SPDX-License-Identifier: BSD-2-Clause
"""One row of the register of tables, and who may fill it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Filler(enum.Enum):
    """A party that makes entries; SECURITY.md describes the attackers."""

    LINK = "any host of the link"
    MEMBER = "a member of the partition"
    CALLER = "whoever reaches the TCP port"
    PEER = "a peer of the mesh"
    SERVER = "a DHCP server"
    SA = "the subnet administrator"
    GUEST = "a guest behind the TAP"
    BEHIND = "a host behind another interface"
    LOCAL = "a local program"
    OWNER = "a process of the owner"


@dataclass(frozen=True, slots=True)
class Table:
    """One row.

    `holders` are the places of the entries: `FILE:CLASS.ATTRIBUTE` in Python, `FILE:WHAT` in C. Indices of
    the same entries stand beside them.
    `cap` counts `unit`.
    `entry_bytes` bounds the memory of an entry, with its share of the indices.
    `full` says what happens beyond the cap.
    `counter` counts that; or `uncounted` says why nobody has to know how often.
    `is_logged`: a line of the log says so, at a limited rate.
    `steps`: an entry costs so many steps at most, where it is not the same small number for each.
    """

    name: str
    holders: tuple[str, ...]
    fillers: tuple[Filler, ...]
    cap: int
    entry_bytes: int
    full: str
    counter: str = ""
    is_logged: bool = False
    unit: str = "entries"
    steps: int = 1
    uncounted: str = ""

    @property
    def max_bytes(self) -> int:
        return self.cap if self.unit == "bytes" else self.cap * self.entry_bytes


@dataclass(frozen=True, slots=True)
class CoreTable(Table):
    """A table in C, which a C program fills to twice its cap (ext/tests/table_rows.h)."""
