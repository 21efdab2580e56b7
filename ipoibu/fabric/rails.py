# SPDX-License-Identifier: BSD-2-Clause
"""The datagrams of several devices under one interface: docs/use/rails.md. The C side is ext/rails."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, Self

from ipoibu._core import RailsLink
from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, Qpn
from ipoibu.base.device_name import device_text
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import Destination, PartitionParams
from ipoibu.base.limits import RAIL_PEERS_MAX
from ipoibu.fabric.base import Fabric, RcQueuePair
from ipoibu.fabric.faults import FaultSpec, FaultyUd
from ipoibu.fabric.plain import (
    GuestlessFabric,
    OneQueueFabric,
    PeerlessFabric,
    SilentFabric,
)
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.proto.rail_policy import Reach
from ipoibu.wire.mgid import broadcast

_log: Final = logging.getLogger(__name__)


class RailsFabric(SilentFabric, OneQueueFabric, GuestlessFabric, PeerlessFabric):
    """A queue pair on every rail whose device is there; all of them are in the groups.

    `ports` are those of the rails, None for an absent device. A rail that refuses a queue pair has none.
    """

    def __init__(
        self, link: RailsLink, ports: Sequence[SharedPort | None], fabrics: Sequence[Fabric | None]
    ) -> None:
        """`open` calls this."""
        self.ports: Final = tuple(ports)
        self._link = link
        self._fabrics = tuple(fabrics)
        self._missing: dict[tuple[int, Gid], int] = {}  # groups that rails are not in yet: MLIDs
        self._active = 0
        self._followed: object = None

    @classmethod
    def open(
        cls,
        ports: Sequence[SharedPort | None],
        active: int,
        up: int,
        params: PartitionParams,
        *,
        is_spreading: bool,
        is_connected: bool = False,
        faults: FaultSpec | None = None,
    ) -> Self:
        """Make a queue pair on every port; `LinkError` if the active one refuses.

        `up` has a bit for each rail that carries traffic. With `is_spreading`, flows to hosts that do the
        same go by all of them. With `is_connected` the active rail makes connections. `faults` spoil what
        each rail sends.
        """
        with ExitStack() as undo:
            fabrics: list[Fabric | None] = []
            for index, port in enumerate(ports):
                fabric = _open(port, index == active, params, is_connected)
                if fabric is not None:
                    undo.callback(fabric.close)
                if fabric is not None and faults is not None:
                    fabric = FaultyUd(fabric, faults)
                fabrics.append(fabric)
            try:
                link = RailsLink(
                    list(fabrics),
                    up=up,
                    active=active,
                    peers_max=RAIL_PEERS_MAX if is_spreading else 0,
                    broadcast=_broadcast(params),
                )
            except OSError as error:
                raise LinkError(f"rails: {os.strerror(error.errno or 0)}") from error
            made = cls(link, ports, fabrics)
            made.follow(active, up)
            undo.pop_all()
            return made

    def has(self, rail: int) -> bool:
        """Return whether the rail has a queue pair."""
        return self._fabrics[rail] is not None

    def follow(self, active: int, up: int) -> None:
        """Carry the traffic of groups and of hosts with one rail by the `active` rail, which has a queue
        pair; spread flows over the rails of `up`."""
        gids = tuple(port.info.gid if port is not None else None for port in self.ports)
        if self._followed == (active, up, gids):
            return
        self._followed = (active, up, gids)
        self._active = active
        self._link.set(up, active)
        for (rail, mgid), mlid in list(self._missing.items()):
            self._attach(rail, mgid, mlid)

    def usable(self) -> dict[HwAddr, int]:
        """Return the hosts with several rails, with a bit for each of ours by which flows go there."""
        return {
            HwAddr(Qpn(qpn), Gid(gid)): usable for gid, qpn, usable, _ in self._link.peers() if qpn
        }

    def reach(self) -> set[Reach]:
        """Return by which rails we reach the hosts with several rails."""
        return {Reach(usable, reached) for _, _, usable, reached in self._link.peers()}

    def traffic(self, rail: int) -> dict[str, int]:
        """Return the packets and bytes of one rail since its queue pair was made."""
        return self._link.traffic(rail)

    def open_connection(self) -> RcQueuePair:
        """Open a connection's queue pair on the active rail."""
        connection = self._present(self._active).open_connection()
        self._link.assign(connection.native, self._active)
        return connection

    @property
    def qpn(self) -> Qpn:
        """The number of the active rail's queue pair."""
        return self._present(self._active).qpn

    @property
    def native(self) -> object:
        return self._link.native

    @property
    def is_stale(self) -> bool:
        """True if that holds for the queue pair of any rail."""
        return any(fabric is not None and fabric.is_stale for fabric in self._fabrics)

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        """Have every rail join the group; `LinkError` if the active one cannot, the others try again when
        something changes."""
        self._present(self._active).attach(mgid, mlid)
        for rail in range(len(self._fabrics)):
            if rail != self._active:
                self._attach(rail, mgid, mlid)

    def _attach(self, rail: int, mgid: Gid, mlid: int) -> None:
        fabric = self._fabrics[rail]
        if fabric is None:
            return
        try:
            fabric.attach(mgid, mlid)
            self._missing.pop((rail, mgid), None)
        except LinkError as error:
            _log.info("rail %d: %s", rail, error)
            self._missing[rail, mgid] = mlid

    def detach(self, mgid: Gid) -> None:
        for rail, fabric in enumerate(self._fabrics):
            self._missing.pop((rail, mgid), None)
            if fabric is not None:
                fabric.detach(mgid)

    def counters(self) -> dict[str, int]:
        """The sums over the rails, and the wrapper's own."""
        total: Counter[str] = Counter()
        for fabric in self._fabrics:
            if fabric is not None:
                total.update(fabric.counters())
        return dict(total) | {f"rails_{name}": n for name, n in self._link.counters().items()}

    def drop_sources(self) -> dict[str, Gid]:
        found: dict[str, Gid] = {}
        for fabric in self._fabrics:
            if fabric is not None:
                found |= fabric.drop_sources()
        return found

    def close(self) -> None:
        for fabric in self._fabrics:
            if fabric is not None:
                fabric.close()

    def _present(self, rail: int) -> Fabric:
        fabric = self._fabrics[rail]
        assert fabric is not None, "a rail without a queue pair does not become active"
        return fabric


def _open(
    port: SharedPort | None, is_active: bool, params: PartitionParams, is_connected: bool
) -> Fabric | None:
    if port is None:
        return None
    try:
        return port.open_connected(params) if is_connected else port.open_ud(params)
    except LinkError as error:
        if is_active:
            raise
        place = device_text(port.info.device, port.info.port)
        _log.warning("%s: the rail has no queue pair: %s", place, error)
        return None


def _broadcast(params: PartitionParams) -> Destination:
    return params.destination(broadcast(params.pkey, params.scope), Qpn(MULTICAST_QPN))
