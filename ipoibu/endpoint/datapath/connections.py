# SPDX-License-Identifier: BSD-2-Clause
"""The connections of an interface in datagram mode: none, but those by which its fabric carries datagrams.

`rc_shell.py` has those of connected mode, and `DataPath.connect` chooses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ipoibu import _core
from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.fabric.base import Fabric
from ipoibu.proto.effects import Publish

if TYPE_CHECKING:
    from ipoibu.fabric.cm.service import CmService
    from ipoibu.proto.rc.connection import RcConfig


class Connections:
    """Every method runs on the loop's thread; in datagram mode most have nothing to do."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    # ---- life

    def open(self) -> None:
        """The link is up: accept connections, and make some."""

    def down(self) -> None:
        """The link is down: end every connection."""

    def rename(self, hwaddr: HwAddr) -> None:
        """Our hardware address changed: end every connection, and listen at the new address.

        `LinkError` if the CM cannot listen there: then there are no connections until the next call.
        """

    def move(self, cm: Callable[[], CmService], config: Callable[[], RcConfig]) -> None:
        """Go on at another hardware address, perhaps of another port, as `rename` does."""

    def close(self) -> None:
        """Disconnect the peers while the pump still runs."""

    def release(self) -> None:
        """Destroy the queue pairs, after the pump has stopped."""

    # ---- inputs

    def note_published(self, publish: Publish) -> None:
        """Note that the pump has an entry for a next hop, perhaps of a host that accepts connections."""

    def withdrawn(self, next_hop: IpAddress) -> None:
        """Note that the pump has no entry for a next hop any more."""

    def forget(self, hwaddr: HwAddr) -> None:
        """End the connections with a host, whose address has no flags. If a packet still goes to it, another
        connection may follow."""

    def event(self, event: _core.Event) -> None:
        """Take one of the pump's events of connections."""

    # ---- status

    @property
    def port_counts(self) -> Counter[str]:
        """Return the CM's counters, which cover all interfaces of the port."""
        return Counter()

    def snapshot(self) -> list[dict[str, Any]]:
        """Return every connection, for `ipoibu conn`; see `Endpoint.connections`."""
        return self._fabric.peers()
