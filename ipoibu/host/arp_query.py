# SPDX-License-Identifier: BSD-2-Clause
"""Asks the kernel for the routes by which it decides about an ARP request."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address

from ipoibu.host.namespace import HERE, Namespace
from ipoibu.host.netsocket import NetlinkSocket
from ipoibu.host.route_message import RTN_LOCAL, RTN_UNICAST, output_interface, route_type
from ipoibu.host.route_query import RTA_DST, RTA_IIF, RTA_OIF, RTA_SRC, find_route
from ipoibu.proto.neigh.host_addresses import Delivery


class ArpQuery:
    """Asks about ARP requests that came in by the interface `index`.

    Any one thread may call `ask`, and any other `close`. The attributes say what else counts than routes:
    the sysctls arp_filter (the host answers only if its packets to the asking host leave by the interface),
    proxy_arp and proxy_arp_pvlan, and the index of the VRF that the interface is in.
    """

    def __init__(self, index: int, namespace: Namespace = HERE) -> None:
        self.is_filter = False
        self.is_proxy = False  # for hosts behind other interfaces
        self.is_pvlan = False  # for other hosts on the link, which do not hear each other
        self.vrf: int | None = None
        self._index = index
        self._socket = NetlinkSocket(namespace)

    def close(self) -> None:
        self._socket.close()

    def ask(self, sender: IPv4Address, target: IPv4Address) -> Delivery | None:
        """Return what the kernel does with packets of `sender` to `target`; an `AskArp`.

        The kernel has no route for the 0.0.0.0 of a probe: it looks only whether `target` is local.
        """
        if sender.is_unspecified:
            return "local" if is_local(self._socket, target, self.vrf) else None
        flow = [(RTA_DST, target.packed), (RTA_SRC, sender.packed)]
        flow.append((RTA_IIF, struct.pack("=I", self._index)))
        for data, offset in find_route(self._socket, socket.AF_INET, 0, flow):
            match route_type(data, offset):
                case kind if kind == RTN_LOCAL:
                    return None if self._filters(sender, target) else "local"
                case kind if kind == RTN_UNICAST:
                    leaves_by = output_interface(data, offset)
                    if leaves_by == self._index:
                        is_answered = self.is_pvlan and sender != target
                    else:
                        is_answered = self.is_proxy and leaves_by != 0
                    return "elsewhere" if is_answered else None
        return None

    def _filters(self, sender: IPv4Address, target: IPv4Address) -> bool:
        """Return whether arp_filter forbids the answer."""
        if not self.is_filter:
            return False
        flow = [(RTA_DST, sender.packed), (RTA_SRC, target.packed), *_within(self.vrf)]
        for data, offset in find_route(self._socket, socket.AF_INET, 0, flow):
            return output_interface(data, offset) != self._index
        return True


def is_local(kernel: NetlinkSocket, ip: IPv4Address, vrf: int | None) -> bool:
    """Return whether `ip` is an address of the host, or of that VRF of the host."""
    flow = [(RTA_DST, ip.packed), *_within(vrf)]
    answers = find_route(kernel, socket.AF_INET, 0, flow)
    return any(route_type(data, offset) == RTN_LOCAL for data, offset in answers)


def _within(vrf: int | None) -> list[tuple[int, bytes]]:
    return [] if vrf is None else [(RTA_OIF, struct.pack("=I", vrf))]
