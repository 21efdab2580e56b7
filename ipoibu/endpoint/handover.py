# SPDX-License-Identifier: BSD-2-Clause
"""What an earlier process has left to an endpoint, so that a restart costs its peers a pause only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.fabric.base import KeptPort


@dataclass(frozen=True, slots=True)
class HandedNeighbour:
    """A neighbour of the earlier process; a permanent one was set by the administrator."""

    ip: IpAddress
    hwaddr: HwAddr
    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class Handover:
    """The port, unless the endpoint shares another's, the own addresses that have been checked for
    duplicates, and the neighbours."""

    port: KeptPort | None = None
    checked: Sequence[IpAddress] = ()
    neighbours: Sequence[HandedNeighbour] = ()
