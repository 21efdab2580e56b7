# SPDX-License-Identifier: BSD-2-Clause
"""Whether a net device has lost its carrier, before the kernel says so everywhere.

A device whose carrier goes has IFF_RUNNING still, until the kernel's link watch looks at it: at once, or up
to a second later if it has looked at any device within the last one (a container starts, another cable is
pulled). Messages of netlink come then, too. Only a question to the driver has its answer sooner, and it
waits for the lock of all net devices, which others hold for up to 0.2 s on a busy machine.
"""

from __future__ import annotations

import socket
from concurrent.futures import Future, ThreadPoolExecutor

from ipoibu.base.limits import SOFT_CARRIER_LOOK_S
from ipoibu.fabric.link_speed import has_carrier


class CarrierCheck:
    """Asks the driver on a thread of its own, for a port that is looked at so often that it matters: a rail.

    One thread calls it.
    """

    def __init__(self) -> None:
        self._control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._executor = ThreadPoolExecutor(1, "carrier")
        self._asked: Future[bool] | None = None
        self._is_lost = False
        self._looked_at_s: float | None = None

    def is_lost(self, now: float, netdev: str, *, is_running: bool) -> bool:
        """Return the last answer, and ask again, about the device of this name. What a device without
        IFF_RUNNING had before it came back says nothing."""
        looked_at_s, self._looked_at_s = self._looked_at_s, now
        if not is_running:
            self._asked, self._is_lost = None, False
            return False
        if self._asked is not None and self._asked.done():
            self._is_lost, self._asked = not self._asked.result(), None
        is_often = looked_at_s is not None and now - looked_at_s <= SOFT_CARRIER_LOOK_S
        if self._asked is None and (is_often or self._is_lost):
            self._asked = self._executor.submit(has_carrier, self._control, netdev)
        return self._is_lost

    def close(self) -> None:
        """Wait for the question under way."""
        self._executor.shutdown(cancel_futures=True)
        self._control.close()
