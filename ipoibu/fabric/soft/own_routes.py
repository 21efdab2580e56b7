# SPDX-License-Identifier: BSD-2-Clause
"""Restores the routes that the kernel makes for a net device, and that the built-in HCA needs.

`ip -6 route replace multicast ff00::/8 dev ib0 table local metric 256` takes the route of another device
away, because the kernel compares prefix and metric alone. No option of a socket makes up for that.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from ipoibu._core import SoftHca
from ipoibu.base.limits import SOFT_OWN_ROUTES_S

_log = logging.getLogger(__name__)


class OwnRoute(IntEnum):
    """The values of enum soft_route."""

    GROUPS = 0
    LINK = 1


_WHAT: Final = {OwnRoute.GROUPS: "for IPv6 multicast", OwnRoute.LINK: "to fe80::/64"}
REMEDIES: Final = {
    OwnRoute.GROUPS: "ip -6 route append multicast ff00::/8 dev {netdev} table local metric 256",
    OwnRoute.LINK: "ip -6 route append fe80::/64 dev {netdev} metric 256",
}


class OwnRoutes:
    """The two routes of the HCA's net device."""

    def __init__(self, hca: SoftHca, device: str) -> None:
        self._hca = hca
        self._device = device
        self._looked_at_s: float | None = None
        self._unreachable = 0
        self._failing: dict[OwnRoute, int] = {}  # the errno of each route that we cannot restore

    def look(self, now: float, counters: Mapping[str, int]) -> None:
        """Restore what is lost; once a second, and when a packet could not leave, by the HCA's counters."""
        unreachable = counters["tx_unreachable"]
        is_time = self._looked_at_s is None or now - self._looked_at_s >= SOFT_OWN_ROUTES_S
        if not is_time and unreachable == self._unreachable:
            return
        self._looked_at_s, self._unreachable = now, unreachable
        for route in OwnRoute:
            self._note(route, self._hca.restore_route(route))

    def _note(self, route: OwnRoute, result: int) -> None:
        netdev = self._hca.netdev
        if result >= 0:
            self._failing.pop(route, None)
        if result == 0 or self._failing.get(route) == -result:
            return
        lost = f"{self._device}: {netdev} had lost its route {_WHAT[route]}, as another device's replaced it"
        if result > 0:
            _log.warning("%s; it is there again", lost)
            return
        self._failing[route] = -result
        why = "that needs CAP_NET_ADMIN" if -result == errno.EPERM else os.strerror(-result)
        remedy = REMEDIES[route].format(netdev=netdev)
        _log.warning("%s, and cannot be restored (%s): %s", lost, why, remedy)
