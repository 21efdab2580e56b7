# SPDX-License-Identifier: BSD-2-Clause
"""A link without multicast, over any fabric of datagrams: docs/use/unicast.md."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Final, Self

from ipoibu._core import UnicastLink
from ipoibu.base.addr import Gid, HwAddr
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.base.limits import UNICAST_CONTACTS_MAX, UNICAST_PEERS_MAX
from ipoibu.fabric.base import Fabric, MeshOptions, PeersUnderlay
from ipoibu.fabric.mesh.peer_list import PeerSource
from ipoibu.fabric.plain import GuestlessFabric, OneQueueFabric
from ipoibu.fabric.unicast.reception import Receptions
from ipoibu.fabric.unicast.rendezvous import Rendezvous
from ipoibu.fabric.wrapper import FabricWrapper
from ipoibu.proto.mesh.mesh import MeshConfig
from ipoibu.wire.mesh import Greeting
from ipoibu.wire.mgid import broadcast

_NO_WINDOW: Final = 1  # a greeting names a window; datagrams need none


class UnicastFabric(OneQueueFabric, GuestlessFabric, FabricWrapper):
    """The inner fabric, with multicast by copies to the peers in a group."""

    def __init__(
        self, inner: Fabric, link: UnicastLink, rendezvous: Rendezvous, undo: ExitStack
    ) -> None:
        super().__init__(inner)
        self._link = link
        self._rendezvous = self._directory = rendezvous
        self._undo = undo

    @classmethod
    def open(
        cls,
        inner: Fabric,
        info: PortInfo,
        params: PartitionParams,
        options: MeshOptions,
        receptions: Receptions,
        *,
        mtu_bytes: int,
        takes_connections: bool = False,
        underlay: PeersUnderlay | None = None,
    ) -> Self:
        """Listen for peers, and look for those that `options` name; `LinkError`, `UsageError`.

        The `underlay` that chooses the GID of the port follows the peers.

        `mtu_bytes` is the longest IP packet of the link; a host with another one is refused.

        `close` closes the inner fabric, too; after an error the caller closes it.
        """
        ours = Greeting(
            HwAddr(inner.qpn, info.gid),
            mtu_bytes,
            _NO_WINDOW,
            params.pkey,
            options.listen_port,
            takes_connections,
        )
        config = MeshConfig(ours, UNICAST_PEERS_MAX, UNICAST_CONTACTS_MAX)
        place = f"{info.device}/{info.port}"
        with ExitStack() as undo:
            try:
                link = UnicastLink(
                    inner,
                    broadcast=broadcast(params.pkey, params.scope).raw,
                    peers_max=UNICAST_PEERS_MAX,
                    hop_limit=params.hop_limit,
                )
            except OSError as error:
                text = os.strerror(error.errno or 0)
                raise LinkError(f"{place}: peers: {text}") from error
            rendezvous = Rendezvous(info, link, config, options.key)
            undo.callback(rendezvous.close)
            undo.callback(receptions.enter(options.listen_port, options.key, place, rendezvous))
            source = PeerSource(options, rendezvous.seeds)
            undo.callback(source.close)
            rendezvous.follow(source)
            if underlay is not None:
                undo.callback(underlay.enter(rendezvous))
            source.start()
            return cls(inner, link, rendezvous, undo.pop_all())

    @property
    def native(self) -> object:
        return self._link.native

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        """Ask the peers to send us the group's messages."""
        self._rendezvous.note_joined(mgid)

    def detach(self, mgid: Gid) -> None:
        self._rendezvous.note_left(mgid)

    def admits(self, hwaddr: HwAddr) -> bool:
        return self._link.is_peer(hwaddr.gid.raw, hwaddr.qpn)

    def counters(self) -> dict[str, int]:
        own = {f"unicast_{name}": n for name, n in self._link.counters().items()}
        return self._inner.counters() | own | self._rendezvous.counters()

    def close(self) -> None:
        """Disconnect from every peer, and close the inner fabric. Safe to repeat."""
        self._undo.close()
        super().close()
