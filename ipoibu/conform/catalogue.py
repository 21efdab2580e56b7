# SPDX-License-Identifier: BSD-2-Clause
"""All tests, in the order in which they run."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from ipoibu.base.errors import UsageError
from ipoibu.conform import tables
from ipoibu.conform.test import Test


@cache
def all_tests() -> tuple[Test, ...]:
    """Return the tests of every table, by the table's file name; those that disturb the peer come last."""
    found: list[Test] = []
    for module in sorted(it.name for it in pkgutil.iter_modules(tables.__path__)):
        found.extend(import_module(f"{tables.__name__}.{module}").TESTS)
    return tuple(sorted(found, key=lambda test: test.is_destructive))


def chosen(only: str | None) -> tuple[Test, ...]:
    """Return the tests that `only` names: ids of tests or clauses, with commas between; all for None.

    `UsageError`: there is no such id.
    """
    if only is None:
        return all_tests()
    wanted = [it.strip() for it in only.split(",") if it.strip()]
    for it in wanted:
        if not any(it == test.id or it in test.clauses for test in all_tests()):
            raise UsageError(f"{it}: no test and no clause; ipoibu conform --list shows them")
    return tuple(
        test for test in all_tests() if test.id in wanted or set(test.clauses) & set(wanted)
    )
