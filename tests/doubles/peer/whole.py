# SPDX-License-Identifier: BSD-2-Clause
"""The host with all its parts."""

from __future__ import annotations

from ipoibu.conform.helper import Helper
from ipoibu.conform.packet import Names
from ipoibu.conform.peer import Peer
from tests.doubles.peer.addresses import AddressPart
from tests.doubles.peer.arp import ArpPart
from tests.doubles.peer.cm import CmPart
from tests.doubles.peer.conflicts import ConflictPart
from tests.doubles.peer.dhcp import DhcpPart
from tests.doubles.peer.groups import GroupsPart
from tests.doubles.peer.host import Host
from tests.doubles.peer.ipv4 import Ipv4Part
from tests.doubles.peer.ipv6 import Ipv6Part
from tests.doubles.peer.nd import NdPart
from tests.doubles.peer.pings import PingPart
from tests.doubles.peer.wire import Wire


class WholeHost(Host):
    def __init__(self, wire: Wire, deviation: str | None = None) -> None:
        super().__init__(wire, deviation)
        self.arp = ArpPart(self)
        self.ip = Ipv4Part(self)
        self.conflicts = ConflictPart(self, self.arp)
        self.dhcp = DhcpPart(self, self.ip)
        self.pings = PingPart(self, self.ip)
        self.nd = NdPart(self)
        self.ip6 = Ipv6Part(self)
        self.addresses = AddressPart(self)
        self.memberships = GroupsPart(self, self.ip, self.ip6)
        self.cm = CmPart(self)

    def helper(self) -> Helper:
        return _Helper(self)


class _Helper(Helper):
    """Acts on the host in memory, by the names of `ipoibu.conform.helper.ACTS`."""

    def __init__(self, host: WholeHost) -> None:
        super().__init__([], "ib0")
        self._host = host

    def act(self, what: str, names: Names) -> None:
        self._host.acts[what](names)


def peer_of(host: Host) -> Peer:
    link_local, wide = host.ipv6
    return Peer(host.hwaddr, host.flags, host.ipv4, link_local, wide)
