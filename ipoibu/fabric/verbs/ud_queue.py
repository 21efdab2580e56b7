# SPDX-License-Identifier: BSD-2-Clause
"""A UD queue pair of an RDMA device, with its completion queues and the C object that works on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ipoibu.fabric.verbs.objects import Limits, VerbsDevice

SEND_DEPTH: Final = 512  # work requests; the pump has 256 frames to send
RECV_DEPTH: Final = 1024  # as many as the pump has frames to receive
NO_RECEIVES: Final = 1  # the least depth that every device accepts; a TX queue posts none
INLINE_BYTES: Final = 128  # an ARP or ND frame, a TCP acknowledgement


class UdQueue:
    """The queue pair that receives, or that of a TX queue; `fabric` is its VerbsFabric.

    `make` is VerbsFabric with every argument but the queue pair. If it raises an `OSError`, or the
    device a `LinkError`, nothing stays open.
    """

    def __init__(
        self, device: VerbsDevice, limits: Limits, make: Callable[[Any], Any], recv_depth: int
    ) -> None:
        self._objects = device.create_ud(
            min(SEND_DEPTH, limits.max_qp_wr, limits.max_cqe),
            min(recv_depth, limits.max_qp_wr, limits.max_cqe),
            INLINE_BYTES,
        )
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
        """Destroy the queue pair first, because the device must not write to the C object's memory any
        more."""
        self._objects.close_queue_pair()
        self.fabric.close()
        self._objects.close_rest()
