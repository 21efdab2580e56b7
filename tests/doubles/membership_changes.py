# SPDX-License-Identifier: BSD-2-Clause
"""A report as joins and leaves, for tests that do not follow sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.wire.membership import Filter, Report

_EXCLUDES: Final = (Filter.IS_EXCLUDE, Filter.TO_EXCLUDE)


@dataclass(frozen=True, slots=True)
class Change:
    """A group joined (or still held), or left."""

    group: IpAddress
    join: bool


def changes(report: Report) -> tuple[Change, ...]:
    """Return the records as joins and leaves.

    "Include nothing" is a leave; a `BLOCK` alone is neither, so it yields no change.
    """
    return tuple(
        Change(record.group, bool(record.sources) or record.filter in _EXCLUDES)
        for record in report.records
        if record.filter is not Filter.BLOCK
        and (record.sources or record.filter is not Filter.ALLOW)
    )
