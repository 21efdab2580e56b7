# SPDX-License-Identifier: BSD-2-Clause
"""Connections of an InfiniBand port by the kernel's rdma_cm: we can connect, but peers cannot.

rdma_cm connects to any service ID of a port (AF_IB), and puts no header in front of the private data,
so that we can connect to Linux's and the RFC's service IDs (C7). It listens on service IDs of its own
port spaces only. All others belong to ib_cm, which user space cannot use. Our hardware address then
shows that we accept no connections, and peers send us datagrams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from ipoibu.base.addr import Gid, PKey
from ipoibu.fabric.cm.librdmacm import PORT_SPACE_IB, Address, CmId, PortAddress, SocketAddress
from ipoibu.fabric.cm.rdma_cm import RcTimeouts, RdmaCm
from ipoibu.proto.rc.events import Connect
from ipoibu.wire.cm_private import ServiceForm


class IbRdmaCm(RdmaCm):
    """A `CmService` for one InfiniBand port; `gid` returns the port's present GID. Errors as of `RdmaCm`."""

    forms: ClassVar = (ServiceForm.LINUX, ServiceForm.RFC)
    accepts: ClassVar = False

    def __init__(self, device: str, gid: Callable[[], Gid], timeouts: RcTimeouts) -> None:
        self._gid = gid
        super().__init__(device, lambda: SocketAddress(gid().ip), timeouts)

    def _create(self) -> CmId:
        return self._channel.create(PORT_SPACE_IB)

    def _addresses(self, request: Connect) -> tuple[Address, Address]:
        ours = PortAddress(self._gid(), request.pkey)
        return ours, PortAddress(request.destination.gid, request.pkey, request.service_id)

    def _listen(self, services: Mapping[int, PKey]) -> None:
        """Do nothing: rdma_cm does not listen on these service IDs."""
