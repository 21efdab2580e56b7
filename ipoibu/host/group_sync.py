# SPDX-License-Identifier: BSD-2-Clause
"""Group sync: copies the multicast groups that the kernel receives on an interface into an endpoint.

The kernel's list is the truth about the groups of its sockets. IGMP and MLD reports, which the endpoint
sees on the TUN, are not: the kernel sends none for 224.0.0.x under net.ipv4.igmp_link_local_mcast_reports=0,
and reports get lost. Since Linux 6.14 the kernel sends a notice of each change; older kernels send none,
so the group sync lists the groups every second there. A packet socket changes the all-multicast mode
without a notice, so it lists the groups now and then on every kernel.

A multicast router forwards packets of groups that its own sockets need not have joined. While it uses the
interface, the groups of its multicast routes count, too: a new sender may be on any of its interfaces.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import KERNEL_GROUPS_LIST_S, KERNEL_GROUPS_POLL_S, ROUTED_GROUPS_MAX
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.host.address_message import read_igmp_table
from ipoibu.host.monitor import RTMGRP_LINK, Monitor, Notice
from ipoibu.host.netlink import RTM_DELMULTICAST, RTM_NEWLINK, RTM_NEWMULTICAST, Netlink
from ipoibu.host.route_message import attributes

# linux/rtnetlink.h
_RTNLGRP_IPV4_MROUTE: Final = 6
_RTNLGRP_IPV6_MROUTE: Final = 10
_RTNLGRP_IPV4_NETCONF: Final = 24  # a multicast router begins or ends to use the interface
_RTNLGRP_IPV6_NETCONF: Final = 25
_RTNLGRP_IPV4_MCADDR: Final = 37
_RTNLGRP_IPV6_MCADDR: Final = 38
_NOTICES: Final = (
    _RTNLGRP_IPV4_NETCONF,
    _RTNLGRP_IPV6_NETCONF,
    _RTNLGRP_IPV4_MCADDR,
    _RTNLGRP_IPV6_MCADDR,
)
# linux/netconf.h, behind one byte of struct netconfmsg, padded
_RTM_NETCONF: Final = (80, 81)
_FIRST_NETCONF: Final = 16 + 4
_NETCONFA_IFINDEX: Final = 1
_OF_ONE_INTERFACE: Final = (RTM_NEWMULTICAST, RTM_DELMULTICAST, RTM_NEWLINK)
_IGMP_TABLE: Final = "/proc/thread-self/net/igmp"
_PIECE_BYTES: Final = 1 << 16

_log = logging.getLogger(__name__)


class GroupSync:
    """Keeps the groups of `stack` equal to those of the kernel's interface `index`.

    The caller closes `netlink`. Call `read_notices` when `fileno` is readable, and `refresh` if that returns
    True, at the start, and at least every `list_s` seconds.
    """

    def __init__(self, index: int, stack: EndpointContract, netlink: Netlink) -> None:
        self._index = index
        self._stack = stack
        self._netlink = netlink
        self._lists_ipv4 = True  # by netlink
        self._receives_all = False
        self._hears_routes = False
        self._routes: set[IpAddress] = set()  # the groups of multicast routes that we receive
        self._warned = False
        self._monitor = Monitor(RTMGRP_LINK, _NOTICES, netlink.namespace)
        self._overruns = 0
        has_notices = _RTNLGRP_IPV4_MCADDR not in self._monitor.unknown
        self.list_s = KERNEL_GROUPS_LIST_S if has_notices else KERNEL_GROUPS_POLL_S

    def close(self) -> None:
        self._monitor.close()

    def fileno(self) -> int:
        return self._monitor.fileno()

    def read_notices(self) -> bool:
        """Read the waiting notices; return whether the caller has to call `refresh`."""
        relevant = False
        for notice in self._monitor.notices():
            relevant |= self._may_concern(notice)
        if self._monitor.overruns != self._overruns:
            self._overruns = self._monitor.overruns
            relevant = True
        return relevant

    def _may_concern(self, notice: Notice) -> bool:
        if notice.kind in _OF_ONE_INTERFACE:
            return notice.interface == self._index
        return notice.kind not in _RTM_NETCONF or _router_of(notice) in (self._index, None)

    def refresh(self) -> None:
        """Publish the kernel's groups, and whether a program wants all groups of the link."""
        link = self._netlink.link(self._index)
        is_router = link is not None and link.receives_all
        self._routes = self._routed(link.name) if link is not None and is_router else set()
        self._stack.memberships_changed(frozenset(self._ipv4() | self._ipv6() | self._routes))
        if link is not None and link.receives_all != self._receives_all:
            self._receives_all = link.receives_all
            self._stack.allmulticast_changed(link.receives_all)

    def withdraw(self) -> None:
        """Publish that there are no groups, and that no program wants all."""
        self._stack.memberships_changed(frozenset())
        if self._receives_all:
            self._receives_all = False
            self._stack.allmulticast_changed(False)

    def _routed(self, name: str) -> set[IpAddress]:
        """Return the groups of multicast routes; of too many those that were there first, since every host
        can ask a multicast router for further ones."""
        if not self._hears_routes:  # hosts that are no multicast routers have no such routes
            self._hears_routes = True
            self._monitor.listen(_RTNLGRP_IPV4_MROUTE, _RTNLGRP_IPV6_MROUTE)
        groups = self._netlink.routed_groups()
        are_too_many = len(groups) > ROUTED_GROUPS_MAX
        if are_too_many and not self._warned:
            _log.warning(
                "%s: multicast routes have %d groups: it receives %d of them",
                name,
                len(groups),
                ROUTED_GROUPS_MAX,
            )
        self._warned = are_too_many
        if not are_too_many:
            return groups
        kept = self._routes & groups
        room = ROUTED_GROUPS_MAX - len(kept)
        return kept | set(sorted(groups - kept, key=str)[:room]) if room else kept

    def _ipv6(self) -> set[IpAddress]:
        return self._netlink.groups(self._index, socket.AF_INET6) or set()

    def _ipv4(self) -> set[IpAddress]:
        if self._lists_ipv4:
            groups = self._netlink.groups(self._index, socket.AF_INET)
            if groups is not None:
                return groups
            self._lists_ipv4 = False
        table = self._netlink.namespace.open(_IGMP_TABLE, os.O_RDONLY)
        try:
            return read_igmp_table(self._read(table).splitlines(), self._index)
        finally:
            os.close(table)

    @staticmethod
    def _read(descriptor: int) -> str:
        text = b""
        while piece := os.pread(descriptor, _PIECE_BYTES, len(text)):
            text += piece
        return text.decode()


def _router_of(notice: Notice) -> int | None:
    """Return the interface of a notice of a multicast router, or None for the notice of all interfaces."""
    (length,) = struct.unpack_from("=I", notice.data, notice.offset)
    begin, end = notice.offset + _FIRST_NETCONF, notice.offset + length
    for number, value in attributes(notice.data, begin, end):
        if number == _NETCONFA_IFINDEX and len(value) == 4:
            index: int = struct.unpack("=i", value)[0]
            return index if index > 0 else None
    return None
