# SPDX-License-Identifier: BSD-2-Clause
"""The carrier: whether the link carries traffic, as `ip link` shows by LOWER_UP.

As in the kernel's ib_ipoib, a link has a carrier while it has joined its broadcast group, and none
while its port is down. A flush leaves that group for a moment; the kernel's packets wait in the TUN
meanwhile, so the carrier stays for `GRACE_S`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ipoibu.endpoint.callbacks import OnLink
from ipoibu.fabric.base import Port

GRACE_S: Final = 0.5  # a flush takes milliseconds, and a join that the SA refuses lasts seconds


class Carrier:
    """Calls `on_link` at each change, on the loop's thread. There is no carrier in the beginning."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: Port, on_link: OnLink) -> None:
        self._loop = loop
        self._port = port
        self._on_link = on_link
        self._is_up = False
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, port: Port) -> None:
        """Report the speed of another port from now on."""
        self._port = port

    def stop(self) -> None:
        """Report nothing any more."""
        self._cancel()

    def note_link(self, is_up: bool) -> None:
        """Follow the link, which has joined its broadcast group, or left it."""
        self._cancel()
        if is_up:
            self._set(True)
        elif self._is_up:
            self._timer = self._loop.call_later(GRACE_S, self.port_down)

    def port_down(self) -> None:
        """Remove the carrier at once: the port carries no traffic."""
        self._cancel()
        self._set(False)

    def _set(self, is_up: bool) -> None:
        if self._is_up != is_up:
            self._is_up = is_up
            self._on_link(is_up, self._port.speed_mbps() if is_up else None)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
