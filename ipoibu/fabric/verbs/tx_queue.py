# SPDX-License-Identifier: BSD-2-Clause
"""What a further pump sends by on an RDMA device: a UD queue pair of its own, in the same domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipoibu.fabric.verbs.objects import VerbsDevice

RECV_DEPTH = 1  # the least that every device takes; none is ever posted


class VerbsTxQueue:
    """A queue pair that only sends. `make` is VerbsFabric with all but the queue pair; `fabric` is what it
    made. `LinkError`, or an `OSError` of `make`: then nothing is left of it.
    """

    def __init__(
        self, device: VerbsDevice, make: Callable[[Any], Any], send_depth: int, inline_bytes: int
    ) -> None:
        self._objects = device.create_ud(send_depth, RECV_DEPTH, inline_bytes)
        try:
            self.fabric = make(self._objects.qp)
        except BaseException:
            self._objects.close_queue_pair()
            self._objects.close_rest()
            raise

    @property
    def native(self) -> object:
        capsule: object = self.fabric.native
        return capsule

    def close(self) -> None:
        """Before the fabric that it belongs to."""
        self._objects.close_queue_pair()
        self.fabric.close()
        self._objects.close_rest()
