# SPDX-License-Identifier: BSD-2-Clause
"""When a new interface is usable, and when all its addresses are checked."""

from __future__ import annotations

import asyncio
from collections.abc import Set

from ipoibu.base.addr import IpAddress
from ipoibu.endpoint.config import EndpointConfig


class Readiness:
    """Follows the first verdicts about the addresses of an interface, on the event loop's thread.

    `usable` is set once one family works. That is IPv4 where the interface has an address of it: the
    detection of IPv6 addresses, which takes a second, goes on, and the packets of programs that use these
    addresses already wait for it. Without IPv4 it is IPv6: once detection has ended, with optimistic
    addresses once the link is up. `checked` is set once detection has ended for every address.
    """

    def __init__(self, config: EndpointConfig) -> None:
        self.usable = asyncio.Event()
        self.checked = asyncio.Event()
        self._is_optimistic = config.dad_ipv6 == "optimistic"
        self._has_ipv4 = config.dhcp is not None  # its lease is waited for, too
        self._is_link_up = False
        self._has_begun = False  # the link may be up before
        self._pending: set[IpAddress] = set()

    def begin(self, addresses: Set[IpAddress]) -> None:
        """Take the addresses that the interface has at its start."""
        self._pending = set(addresses)
        self._has_begun = True
        self._look()

    def note_link_up(self) -> None:
        self._is_link_up = True
        self._look()

    def note_judged(self, address: IpAddress, *, is_duplicate: bool) -> None:
        """The endpoint has decided about an address."""
        self._pending.discard(address)
        self._has_ipv4 |= address.version == 4 and not is_duplicate
        self._look()

    def _look(self) -> None:
        if not self._has_begun:
            return
        if not self._pending:
            self.checked.set()
        probes_ipv4 = any(address.version == 4 for address in self._pending)
        is_hopeful = self._is_optimistic and self._is_link_up
        if not self._pending or (not probes_ipv4 and (self._has_ipv4 or is_hopeful)):
            self.usable.set()
