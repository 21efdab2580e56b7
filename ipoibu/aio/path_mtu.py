# SPDX-License-Identifier: BSD-2-Clause
"""The MTUs of paths that are smaller than the link's: RFC 1191, RFC 8201."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import (
    IPV6_MIN_MTU,
    PATH_MTU_IPV4_MIN_BYTES,
    PATH_MTU_MAX,
    PATH_MTU_S,
)

# RFC 1191 §7.1: the MTU to try below that of a packet which an old router refused without a number
_PLATEAUS: Final = (32000, 17914, 8166, 4352, 2002, 1492, 1006, PATH_MTU_IPV4_MIN_BYTES)


class PathMtus:
    """The path MTU of each destination for which a router has reported one; the oldest makes room."""

    def __init__(self) -> None:
        self._known: OrderedDict[IpAddress, tuple[int, float]] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        return len(self._known)

    def get(self, destination: IpAddress, link_bytes: int) -> int:
        known = self._known.get(destination)
        return link_bytes if known is None else min(known[0], link_bytes)

    def lower(
        self, now: float, destination: IpAddress, reported_bytes: int, link_bytes: int
    ) -> bool:
        """Take a report; return whether the path MTU is smaller than before. It never grows by a report."""
        before = self.get(destination, link_bytes)
        if destination.version == 6:
            mtu = max(reported_bytes, IPV6_MIN_MTU)  # RFC 8201 §4
        elif reported_bytes == 0:
            mtu = next((it for it in _PLATEAUS if it < before), PATH_MTU_IPV4_MIN_BYTES)
        else:
            mtu = max(reported_bytes, PATH_MTU_IPV4_MIN_BYTES)
        if mtu >= before:
            return False
        self._known.pop(destination, None)
        self._known[destination] = (mtu, now + PATH_MTU_S)
        if len(self._known) > PATH_MTU_MAX:
            self._known.popitem(last=False)
        return True

    def expire(self, now: float) -> bool:
        """Forget what is older than `PATH_MTU_S`; return whether there was something."""
        before = len(self._known)
        while self._known and next(iter(self._known.values()))[1] <= now:
            self._known.popitem(last=False)
        return len(self._known) < before
