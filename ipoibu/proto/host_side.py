# SPDX-License-Identifier: BSD-2-Clause
"""The host side of the engine: all that depends on the kind of frames that the packet device has.

`IpHost` serves a device of IP packets, with one host behind it; `EthernetHost` a TAP with guests. The engine
makes one of them, and does not ask again which it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.proto.context import FrameSource
from ipoibu.proto.effects import Effect

Receive = Callable[[float, FrameSource, bytes], None]


class HostSide(ABC):
    """Emits effects to the engine's context. A bad packet ends in a counter, and raises nothing."""

    receive_arp_untrusted: Receive
    """Take an ARP message of the link; `BadFrame` for an invalid one."""
    receive_nd_untrusted: Receive
    """Take a message of neighbour discovery; `BadFrame` for an invalid one."""

    # -- the link --------------------------------------------------------------------------------

    @abstractmethod
    def link_up(self, now: float) -> None:
        """The link is up, perhaps with another hardware address."""

    @abstractmethod
    def link_down(self) -> None: ...

    @abstractmethod
    def note_renewed(self) -> None:
        """The interface has another queue pair, and others for the guests."""

    # -- packets ---------------------------------------------------------------------------------

    @abstractmethod
    def miss(self, now: float, next_hop: IpAddress, packet: bytes) -> None:
        """The pump has no entry for `next_hop`, the next hop of `packet`."""

    @abstractmethod
    def host_packet(self, now: float, packet: bytes) -> None:
        """Take a packet that the pump does not send by itself."""

    @abstractmethod
    def dhcp_reply(self, now: float, packet: bytes) -> None:
        """Take a reply of DHCP or DHCPv6 of the link."""

    @abstractmethod
    def too_big(self, now: float, next_hop: IpAddress, packet: bytes, mtu_bytes: int) -> None:
        """The pump dropped `packet`, which is larger than the `mtu_bytes` of `next_hop` (C13)."""

    # -- next hops, which are no groups ----------------------------------------------------------

    @abstractmethod
    def note_used(self, now: float, next_hop: IpAddress) -> None:
        """The pump sent by a NOTIFY entry, for the first time since the engine published it."""

    @abstractmethod
    def note_neigh_refused(self, now: float, next_hop: IpAddress, error: int) -> None:
        """The pump did not take an entry, for the reason `error` (errno)."""

    @abstractmethod
    def pin(self, now: float, ip: IpAddress, hwaddr: HwAddr, replaces: bool) -> None:
        """Set a permanent neighbour; `UsageError` for an impossible one, or if there is one already and we
        may not replace it."""

    # -- what another pump needs -----------------------------------------------------------------

    @property
    @abstractmethod
    def watches_dhcp(self) -> bool:
        """Return whether the pump has to pass DHCP replies up (`WatchDhcp`)."""

    @abstractmethod
    def pump_entries(self) -> Sequence[Effect]:
        """Return what a pump has to know beside neighbours and groups."""
