# SPDX-License-Identifier: BSD-2-Clause
"""The effect of a change of the subnet on the interfaces of a port, in the kernel's three levels."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipoibu.fabric.sa.mad_port import MadPortInfo


class Flush(enum.IntEnum):
    """Says how much of an interface a change invalidates (the kernel's `IPOIB_FLUSH_LIGHT` and its like)."""

    LIGHT = 0  # the SA may have forgotten us: the interface asks for its paths and groups again
    NORMAL = 1  # the port has another address: the interface goes down and up
    HEAVY = 2  # the P_Key table changed: an interface whose own key moved needs a new queue pair


def flushes_of(before: MadPortInfo, after: MadPortInfo) -> list[Flush]:
    """Return the flushes that a change of the port calls for.

    An interface whose P_Key stayed in place ignores a heavy flush, so the list has the lighter one, too.
    """
    flushes = [Flush.HEAVY] if before.pkeys != after.pkeys else []
    if (before.lid, before.gid) != (after.lid, after.gid):
        flushes.append(Flush.NORMAL)
    elif (before.sa_lid, before.sa_sl) != (after.sa_lid, after.sa_sl):
        flushes.append(Flush.LIGHT)
    return flushes
