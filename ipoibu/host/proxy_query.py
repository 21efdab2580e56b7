# SPDX-License-Identifier: BSD-2-Clause
"""Asks the kernel whether a host is behind another interface, for the answers of a proxy."""

from __future__ import annotations

import socket
import struct

from ipoibu.addr import IpAddress
from ipoibu.host.namespace import HERE, Namespace
from ipoibu.host.netsocket import NetlinkSocket
from ipoibu.host.route_message import (
    RTN_UNICAST,
    output_interfaces,
    route_prefix_bits,
    route_type,
)
from ipoibu.host.route_query import RTA_DST, RTA_IIF, RTA_OIF, RTA_SRC, find_route
from ipoibu.proto.proxied import ProxyRoute


class ProxyQuery:
    """Asks about requests that came in by the interface `index`.

    Any one thread may call `ask` and `is_behind`, and any other `close`.
    """

    def __init__(self, index: int, namespace: Namespace = HERE) -> None:
        self.vrf: int | None = None
        """The index of the VRF that the interface is in; only `is_behind` needs it."""
        self._index = index
        self._socket = NetlinkSocket(namespace)

    def close(self) -> None:
        self._socket.close()

    def ask(self, sender: IpAddress, target: IpAddress) -> ProxyRoute | None:
        """Return the route of packets of `sender` to `target` that come in; an `AskRouteBehind`.

        In IPv4 the kernel has no such route while the interface does not forward, or if it would refuse
        packets of `sender` (rp_filter).
        """
        flow = [(RTA_DST, target.packed), (RTA_IIF, struct.pack("=I", self._index))]
        if not sender.is_unspecified:
            flow.append((RTA_SRC, sender.packed))
        return self._find(target, flow)

    def is_behind(self, target: IpAddress) -> bool:
        """Return whether our own packets to `target` leave by another interface."""
        flow = [(RTA_DST, target.packed)]
        if self.vrf is not None:
            flow.append((RTA_OIF, struct.pack("=I", self.vrf)))
        return self._find(target, flow) is not None

    def _find(self, target: IpAddress, flow: list[tuple[int, bytes]]) -> ProxyRoute | None:
        family = socket.AF_INET if target.version == 4 else socket.AF_INET6
        for data, offset in find_route(self._socket, family, 0, flow):
            leaves_by = output_interfaces(data, offset)
            is_elsewhere = bool(leaves_by) and self._index not in leaves_by
            if route_type(data, offset) == RTN_UNICAST and is_elsewhere:
                return "specific" if route_prefix_bits(data, offset) else "default"
        return None
