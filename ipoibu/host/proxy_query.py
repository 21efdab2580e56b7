# SPDX-License-Identifier: BSD-2-Clause
"""Asks the kernel whether a host is behind another interface, for the answers of a proxy."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from ipoibu.base.addr import IpAddress
from ipoibu.host.namespace import HERE, Namespace
from ipoibu.host.netsocket import NetlinkSocket
from ipoibu.host.route_message import RTN_LOCAL, RTN_UNICAST, route_prefix_bits, route_type
from ipoibu.host.route_query import (
    RTA_DST,
    RTA_IIF,
    RTA_OIF,
    RTA_SRC,
    find_route,
    interfaces_of,
)
from ipoibu.proto.neigh.proxy_networks import ProxyRoute


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
        for data, offset, leaves_by in self._find(target, flow):
            if self._is_elsewhere(data, offset, leaves_by):
                return "specific" if route_prefix_bits(data, offset) else "default"
        return None

    def is_behind(self, target: IpAddress) -> bool:
        """Return whether our own packets to `target` leave by another interface."""
        return self.obstacle(target) is None

    def obstacle(self, target: IpAddress) -> str | None:
        """Return why our own packets to `target` leave by no other interface; None if they do."""
        flow = [(RTA_DST, target.packed)]
        if self.vrf is not None:
            flow.append((RTA_OIF, struct.pack("=I", self.vrf)))
        for data, offset, leaves_by in self._find(target, flow):
            if route_type(data, offset) == RTN_LOCAL:
                return "it is an address of this host"
            if self._index in leaves_by:
                return "its route leads to the link"
            if self._is_elsewhere(data, offset, leaves_by):
                return None
        return "it has no route"

    def _find(
        self, target: IpAddress, flow: list[tuple[int, bytes]]
    ) -> Iterator[tuple[bytes, int, set[int]]]:
        """Yield the kernel's answer, its offset and the interfaces of its hops."""
        family = socket.AF_INET if target.version == 4 else socket.AF_INET6
        for data, offset in find_route(self._socket, family, 0, flow):
            yield data, offset, interfaces_of(self._socket, data, offset)

    def _is_elsewhere(self, data: bytes, offset: int, leaves_by: set[int]) -> bool:
        is_elsewhere = bool(leaves_by) and self._index not in leaves_by
        return route_type(data, offset) == RTN_UNICAST and is_elsewhere
