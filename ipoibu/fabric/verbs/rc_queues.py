# SPDX-License-Identifier: BSD-2-Clause
"""Connections of an RDMA device: the queues that all of an interface's share, and the queue pair of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ipoibu.addr import Qpn
from ipoibu.errors import LinkError
from ipoibu.fabric.base import RcQueuePair
from ipoibu.fabric.verbs.objects import ConnectedObjects, VerbsDevice
from ipoibu.ib import RcAttributes
from ipoibu.limits import CONNECTED_FRAMES

if TYPE_CHECKING:
    from ipoibu._verbs import VerbsFabric

SEND_DEPTH: Final = 128  # of one connection; the pump has 64 messages under way at most
SENDS_MAX: Final = 4096  # of all connections: completions that may wait
INLINE_BYTES: Final = 128  # a TCP acknowledgement


class VerbsConnections:
    """The shared queues of one fabric, and what its queue pairs are made with.

    `LinkError`: the device has no RC with a shared receive queue, or no room for it.
    """

    def __init__(self, device: VerbsDevice, native: Any, fabric: VerbsFabric, *, port: int) -> None:
        limits = device.limits()
        if limits.max_srq == 0:
            raise LinkError(
                f"{device.name}: connected mode needs shared receive queues; it has none"
            )
        self._device, self._module, self._fabric, self._port = device, native, fabric, port
        self._depth = min(SEND_DEPTH, limits.max_qp_wr)
        self._objects: ConnectedObjects = device.create_connected(
            min(CONNECTED_FRAMES, limits.max_srq_wr, limits.max_cqe), min(SENDS_MAX, limits.max_cqe)
        )
        try:
            self._inline_bytes = INLINE_BYTES
            try:
                pattern = self._create()
            except LinkError:
                self._inline_bytes = 0
                pattern = self._create()
            try:
                fabric.connect(pattern, cmd_fd=device.cmd_fd)
            finally:
                device.destroy(pattern)
        except BaseException:
            self._objects.close()
            raise

    def _create(self) -> Any:
        return self._device.create_rc(self._objects, self._depth, self._inline_bytes)

    def open(self, pkey_index: int, sgid_index: int) -> VerbsRc:
        """A queue pair in INIT, whose packets will come from this GID."""
        qp = self._create()
        try:
            self._device.raise_rc(qp, self._port, pkey_index)
            native = self._module.VerbsConnection(self._fabric, qp, cmd_fd=self._device.cmd_fd)
        except BaseException as error:
            self._device.destroy(qp)
            if isinstance(error, OSError):
                raise LinkError(f"{self._device.name}: connection: {error.strerror}") from error
            raise
        return VerbsRc(self._device, qp, native, port=self._port, sgid_index=sgid_index)

    def close(self) -> None:
        """After the last connection, and before the fabric's completion queues."""
        self._objects.close()


class VerbsRc(RcQueuePair):
    """An RC queue pair of a port."""

    def __init__(
        self, device: VerbsDevice, qp: Any, native: Any, *, port: int, sgid_index: int
    ) -> None:
        self._device, self._qp, self._native = device, qp, native
        self._port, self._sgid_index = port, sgid_index

    @property
    def qpn(self) -> Qpn:
        return Qpn(self._native.qpn)

    @property
    def native(self) -> object:
        capsule: object = self._native.native
        return capsule

    def program(self, attributes: RcAttributes) -> None:
        self._device.program_rc(self._qp, attributes, self._port, self._sgid_index)

    def stop(self) -> None:
        if self._qp is not None:
            self._device.fail(self._qp)

    def close(self) -> None:
        """Destroy the queue pair; the pump has let go of it. Safe to repeat."""
        if self._qp is not None:
            self._device.destroy(self._qp)
            self._qp = None
