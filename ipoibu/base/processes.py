# SPDX-License-Identifier: BSD-2-Clause
"""The processes that a process has started."""

from __future__ import annotations


def children_of(pid: int) -> list[int]:
    """Return the processes that the main thread of the process `pid` started."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]
