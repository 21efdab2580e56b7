# SPDX-License-Identifier: BSD-2-Clause
"""The link of a port for a program that sends datagrams itself: its parameters, groups and paths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipoibu.base.addr import MULTICAST_QPN, Gid, PKey, Qpn
from ipoibu.base.errors import UsageError
from ipoibu.base.ib import Destination, PartitionParams
from ipoibu.fabric.base import Fabric, Port
from ipoibu.fabric.link import joined_params
from ipoibu.proto.sa.records import path_from_record, path_to_group
from ipoibu.wire.mgid import broadcast

if TYPE_CHECKING:
    from ipoibu.fabric.sa.client import SaClient


class RawLink:
    """A link that nobody administers. One thread uses it; it has nothing to close."""

    def __init__(self, params: PartitionParams) -> None:
        self.params: Final = params

    @property
    def broadcast(self) -> Gid:
        return broadcast(self.params.pkey, self.params.scope)

    def destination(self, gid: Gid, qpn: int) -> Destination:
        """Return the address vector of a queue pair, or of a group; `LinkError`: nobody knows a path."""
        return self.params.destination(gid, Qpn(MULTICAST_QPN if gid.is_multicast else qpn))

    def join(self, mgid: Gid, fabric: Fabric) -> None:
        """Receive a group's datagrams on the fabric, and become its member; `LinkError`."""
        fabric.attach(mgid)

    def leave(self, mgid: Gid, fabric: Fabric) -> None:
        """Undo `join`."""
        fabric.detach(mgid)


class SaRawLink(RawLink):
    """A link with a subnet administrator (SA), which every question waits for. The port is a member of the
    broadcast group, and of each group that we joined or sent to, until the port closes."""

    def __init__(self, params: PartitionParams, sa: SaClient) -> None:
        super().__init__(params)
        self._sa = sa
        self._paths: dict[Gid, Destination] = {}

    def destination(self, gid: Gid, qpn: int) -> Destination:
        if gid not in self._paths:
            self._paths[gid] = self._path_to_group(gid) if gid.is_multicast else self._path_to(gid)
        return replace(self._paths[gid], qpn=Qpn(MULTICAST_QPN if gid.is_multicast else qpn))

    def _path_to(self, gid: Gid) -> Destination:
        record = self._sa.submit(lambda: self._sa.path(gid, self.params.pkey)).result()
        return path_from_record(record, Qpn(0)).destination

    def _path_to_group(self, mgid: Gid) -> Destination:
        if mgid == self.broadcast:  # we are a member already
            found = self._sa.submit(lambda: self._sa.group(mgid))
        else:
            found = self._sa.submit(lambda: self._sa.join_to_send(mgid, self.params))
        return path_to_group(found.result()).destination

    def join(self, mgid: Gid, fabric: Fabric) -> None:
        if mgid != self.broadcast:
            joined = self._sa.submit(lambda: self._sa.join(mgid, params=self.params))
            self._paths[mgid] = path_to_group(joined.result()).destination
        fabric.attach(mgid, self.destination(mgid, MULTICAST_QPN).dlid)

    def leave(self, mgid: Gid, fabric: Fabric) -> None:
        fabric.detach(mgid)
        if mgid != self.broadcast:
            self._paths.pop(mgid, None)
            self._sa.submit(lambda: self._sa.leave(mgid)).result()


def open_raw_link(
    port: Port,
    *,
    pkey: PKey,
    qkey: int | None = None,
    mtu_bytes: int | None = None,
    partitions: Path | None = None,
) -> RawLink:
    """Learn the link's parameters, by joining it where there is an SA. `mtu_bytes` is the IP MTU, and
    `partitions` a partitions.conf. `UsageError`, `LinkError`, `NotPermitted`."""
    if port.capabilities.mesh:
        raise UsageError(f"{port.info.device}: this device has no datagrams")
    params = joined_params(port, pkey=pkey, qkey=qkey, mtu_bytes=mtu_bytes, partitions=partitions)
    return RawLink(params) if port.sa is None else SaRawLink(params, port.sa)
