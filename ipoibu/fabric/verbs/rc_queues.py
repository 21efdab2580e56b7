# SPDX-License-Identifier: BSD-2-Clause
"""Connections of an RDMA device: the queues that all connections of an interface share, and their queue
pairs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.addr import Qpn
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import RcAttributes
from ipoibu.base.limits import CONNECTED_FRAMES
from ipoibu.fabric.base import RcQueuePair
from ipoibu.fabric.verbs.objects import ConnectedObjects, VerbsDevice

if TYPE_CHECKING:
    from ipoibu._verbs import VerbsFabric

SEND_DEPTH: Final = 128  # of one connection; the pump posts at most 64 messages at a time
SENDS_MAX: Final = 4096  # of all connections: completions that the queue holds
INLINE_BYTES: Final = 128  # a TCP acknowledgement


class RcMaker:
    """Creates the RC queue pairs of an interface on `objects`, all alike. They send short messages
    inline, unless the device refuses inline sends."""

    def __init__(
        self,
        device: VerbsDevice,
        objects: ConnectedObjects,
        send_depth: int,
        inline_bytes: int,
        recv_depth: int = 0,
    ) -> None:
        self._device, self._objects = device, objects
        self._send_depth, self._recv_depth = send_depth, recv_depth
        self._inline_bytes = inline_bytes

    def create(self) -> Any:
        """Create a queue pair in RESET, or raise `LinkError`."""
        return self._device.create_rc(
            self._objects, self._send_depth, self._inline_bytes, self._recv_depth
        )

    @contextmanager
    def pattern(self) -> Iterator[Any]:
        """Create the first queue pair, for the C side to read its layout, and destroy it."""
        try:
            qp = self.create()
        except LinkError:
            self._inline_bytes = 0
            qp = self.create()
        try:
            yield qp
        finally:
            self._device.destroy(qp)


class VerbsConnections:
    """The shared queues of one fabric, on which it makes the queue pairs of its connections.

    `LinkError`: the device has no RC with a shared receive queue, or no room for it.
    """

    def __init__(
        self, device: VerbsDevice, native: Any, fabric: VerbsFabric, *, port: int, pkey_index: int
    ) -> None:
        limits = device.limits()
        if limits.max_srq == 0:
            raise LinkError(
                f"{device.name}: connected mode needs shared receive queues; it has none"
            )
        self._device, self._module, self._fabric = device, native, fabric
        self._port, self._pkey_index = port, pkey_index
        self._objects = device.create_connected(
            min(CONNECTED_FRAMES, limits.max_srq_wr, limits.max_cqe), min(SENDS_MAX, limits.max_cqe)
        )
        self._maker = RcMaker(
            device, self._objects, min(SEND_DEPTH, limits.max_qp_wr), INLINE_BYTES
        )
        try:
            with self._maker.pattern() as pattern:
                fabric.connect(pattern, cmd_fd=device.cmd_fd, loses_receives=limits.loses_receives)
        except BaseException:
            self._objects.close()
            raise

    def open(self, sgid_index: int) -> VerbsRc:
        """Open a queue pair in INIT that sends from the GID at this index."""
        qp = self._maker.create()
        try:
            self._device.raise_rc(qp, self._port, self._pkey_index)
            native = self._module.VerbsConnection(self._fabric, qp, cmd_fd=self._device.cmd_fd)
        except BaseException as error:
            self._device.destroy(qp)
            if isinstance(error, OSError):
                raise LinkError(f"{self._device.name}: connection: {error.strerror}") from error
            raise
        return VerbsRc(self._device, qp, native, port=self._port, sgid_index=sgid_index)

    def close(self) -> None:
        """Destroy the shared queues: after the last connection, before the fabric's completion queues."""
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

    @property
    def retries(self) -> None:
        return None

    def program(self, attributes: RcAttributes) -> None:
        self._native.program(attributes.receive_psn, attributes.path_mtu_bytes)
        self._device.program_rc(self._qp, attributes, self._port, self._sgid_index)

    def stop(self) -> None:
        if self._qp is not None:
            self._device.fail(self._qp)

    def close(self) -> None:
        """Destroy the queue pair, which the pump has released. Safe to repeat."""
        if self._qp is not None:
            self._device.destroy(self._qp)
            self._native.end()
            self._qp = None
