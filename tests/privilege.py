# SPDX-License-Identifier: BSD-2-Clause
"""Hooks of pytest: an ordinary user runs tests in network namespaces as root of a user namespace.

Tests with the mark `root` need the machine's root: they are for others to run (`make test-netns`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from ipoibu.base.errors import NotPermitted
from ipoibu.lab import enter_user_namespace

WORKER: Final = "PYTEST_XDIST_WORKER"


def pytest_configure() -> None:
    """Enter the namespaces before xdist starts its workers, which inherit them."""
    try:
        enter_user_namespace()
    except NotPermitted as error:
        if WORKER in os.environ:  # it has threads, and so may not enter
            raise pytest.UsageError(
                "name the directory of these tests on the command line"
            ) from error
        raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not is_root_of_the_machine():
        config.hook.pytest_deselected(
            items=[item for item in items if item.get_closest_marker("root")]
        )
        items[:] = [item for item in items if not item.get_closest_marker("root")]


def is_root_of_the_machine(uid_map: Path = Path("/proc/self/uid_map")) -> bool:
    """Whether this process may become other users: its user namespace has more than one."""
    return sum(int(line.split()[2]) for line in uid_map.read_text().splitlines()) > 1
