# SPDX-License-Identifier: BSD-2-Clause
"""Follows the peers of a mesh, or of a link without multicast."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.endpoint.interface_contract import InterfaceContract

if TYPE_CHECKING:
    from ipoibu.wire.mesh import Locator


class PeerWatch:
    """Hears of the peers of one interface, and hands them over to its next data path. On other links there
    are none. `forget` ends the connections with a host that is no peer any more."""

    def __init__(self, interface: InterfaceContract, forget: Callable[[HwAddr], None]) -> None:
        self._interface = interface
        self._forget = forget
        self._met: Mapping[Locator, HwAddr] = {}  # those of a data path that a heavy flush ends

    def listen(self) -> None:
        """Hear of the peers of the data path that the interface has now."""
        self._interface.fabric.listen(self.note_peer, self.note_end)

    def set_peers(self, peers: Sequence[str]) -> None:
        """Look for these peers instead, also after a heavy flush; `UsageError` on a link that has none."""
        interface = self._interface
        interface.fabric.set_peers(peers)
        config = interface.config
        assert config.mesh is not None, "the link has peers"
        interface.config = replace(config, mesh=replace(config.mesh, peers=tuple(peers)))

    def keep(self) -> None:
        """Keep the peers of a data path that ends."""
        self._met = self._interface.fabric.met()

    def meet_again(self) -> None:
        """Have the new data path meet the peers that were kept."""
        met, self._met = self._met, {}
        self._interface.fabric.meet_again(met)

    def note_peer(self, hwaddr: HwAddr, addresses: tuple[IpAddress, ...]) -> None:
        """Take the addresses that a peer announces; any thread may call it."""
        interface = self._interface

        def learn() -> None:
            # The next queue pair has no entries of this one; its peers announce themselves again.
            if not interface.is_severed:
                now = interface.loop.time()
                interface.perform(interface.engine.note_learned(now, hwaddr, addresses))

        self._post(learn)

    def note_end(self, hwaddr: HwAddr) -> None:
        """Forget a host that is no peer any more; any thread may call it."""
        self._post(lambda: self._forget(hwaddr))

    def _post(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the interface ends
            self._interface.loop.call_soon_threadsafe(work)
