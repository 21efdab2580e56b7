# SPDX-License-Identifier: BSD-2-Clause
"""The half of rdma_cm's event channel that a reader sees: events wait in order, and a descriptor says so."""

from __future__ import annotations

import os
from collections import deque

from ipoibu.fabric.cm.librdmacm import CmEvent


class EventChannel:
    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.events: deque[CmEvent] = deque()

    def fileno(self) -> int:
        return self.fd

    def event(self) -> CmEvent | None:
        """Return the next event, if there is one."""
        if self.events:
            return self.events.popleft()
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return None
        return self.events.popleft() if self.events else None

    def add(self, event: CmEvent) -> None:
        self.events.append(event)
        os.eventfd_write(self.fd, 1)
