# SPDX-License-Identifier: BSD-2-Clause
"""The neighbours of an administrator, whose entries no message and no time changes."""

from __future__ import annotations

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.proto.context import EngineContext
from ipoibu.proto.groups.link import IpoibLink
from ipoibu.proto.host_side import HostSide
from ipoibu.proto.inputs import EnginePart, engine_input
from ipoibu.proto.neigh.neighbours import Neighbours


class PermanentNeighbours(EnginePart):
    """Sets permanent entries, and removes entries of every kind."""

    def __init__(
        self, context: EngineContext, link: IpoibLink, neighbours: Neighbours, host: HostSide
    ) -> None:
        self._context = context
        self._link = link
        self._neighbours = neighbours
        self._host = host

    @engine_input
    def set(self, now: float, ip: IpAddress, hwaddr: HwAddr, replaces: bool) -> None:
        """Set a permanent entry; `UsageError` for an impossible one, or if there is one already and we may
        not replace it."""
        self._host.pin(now, ip, hwaddr, replaces)
        if not self._link.is_up:
            self._neighbours.flush(now)  # withdraws it until the link is up

    @engine_input
    def remove(self, now: float, ip: IpAddress) -> None:
        """Remove an entry, permanent or not; `UsageError` if there is none."""
        self._neighbours.remove(now, ip)

    @engine_input
    def flush(self, now: float, permanent: bool) -> None:
        """Remove all entries, the permanent ones only if `permanent`."""
        self._neighbours.clear(now, permanent=permanent)
