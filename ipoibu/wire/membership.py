# SPDX-License-Identifier: BSD-2-Clause
"""What IGMP and MLD reports say, in one form for every version of both (M3, M4).

A report is a list of records: a group, a filter, a list of sources. The older versions know only
"every source" and "none". Records, not yes or no, because a host that drops the last source of a
source-specific group says only "block this one": whoever follows joins exactly keeps an `Interest`
per group and brings it up to date with `after`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from ipoibu.addr import IpAddress


class Filter(enum.IntEnum):
    """Record types: RFC 3376 §4.2.12, RFC 3810 §5.2.12."""

    IS_INCLUDE = 1
    IS_EXCLUDE = 2
    TO_INCLUDE = 3
    TO_EXCLUDE = 4
    ALLOW = 5
    BLOCK = 6


FILTERS: Final = frozenset(Filter)


@dataclass(frozen=True, slots=True)
class Record:
    """What the reporter wants of `group` from now on."""

    group: IpAddress
    filter: Filter
    sources: tuple[IpAddress, ...] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """A group joined (or still held), or left."""

    group: IpAddress
    join: bool


@dataclass(frozen=True, slots=True)
class Report:
    """Records in the order of the packet."""

    records: tuple[Record, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """The records as joins and leaves, for who keeps no sources.

        "Include nothing" is a leave; a `BLOCK` alone says neither, so it yields no change.
        """
        return tuple(
            Change(record.group, bool(record.sources) or record.filter in _EXCLUDES)
            for record in self.records
            if record.filter is not Filter.BLOCK
            and (record.sources or record.filter is not Filter.ALLOW)
        )


@dataclass(frozen=True, slots=True)
class Query:
    """A router asks who is in `group`; None: in any group."""

    group: IpAddress | None


Interest = frozenset[IpAddress] | None
"""The sources wanted of one group; None is every source, the empty set is no membership."""

NOT_A_MEMBER: Interest = frozenset()

_EXCLUDES = (Filter.IS_EXCLUDE, Filter.TO_EXCLUDE)


def after(before: Interest, record: Record) -> Interest:
    """The interest in `record.group` once the record is applied; RFC 3376 §4.2.12.

    Excluded sources are not kept: a group serves its whole membership on this medium.
    """
    sources = frozenset(record.sources)
    match record.filter:
        case Filter.IS_EXCLUDE | Filter.TO_EXCLUDE:
            return None
        case Filter.IS_INCLUDE | Filter.TO_INCLUDE:
            return sources
        case Filter.ALLOW:
            return None if before is None else before | sources
        case Filter.BLOCK:
            return None if before is None else before - sources
