# SPDX-License-Identifier: BSD-2-Clause
"""A fabric whose peers another object knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.fabric.base import Fabric, PeerDirectory

if TYPE_CHECKING:
    from ipoibu.wire.mesh import Locator


class PeeredFabric(Fabric):
    """Asks `_directory` about the peers; a subclass sets it."""

    _directory: PeerDirectory

    def announce(self, addresses: Iterable[IpAddress]) -> None:
        self._directory.announce(addresses)

    def listen(
        self,
        learned: Callable[[HwAddr, tuple[IpAddress, ...]], None],
        gone: Callable[[HwAddr], None],
    ) -> None:
        self._directory.listen(learned, gone)

    def set_peers(self, peers: Sequence[str]) -> None:
        self._directory.set_peers(peers)

    def peers(self) -> list[dict[str, Any]]:
        return self._directory.peers()

    def met(self) -> Mapping[Locator, HwAddr]:
        return self._directory.met()

    def meet_again(self, met: Mapping[Locator, HwAddr]) -> None:
        self._directory.meet_again(met)
