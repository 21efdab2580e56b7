# SPDX-License-Identifier: BSD-2-Clause
"""Asks the kernel for the route of one flow (RTM_GETROUTE), where policy rules or a VRF decide."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ipoibu.base.errors import IpoibuError
from ipoibu.base.limits import ROUTE_SOURCES_MAX
from ipoibu.base.route import NextHop, Target
from ipoibu.host.namespace import HERE, Namespace
from ipoibu.host.netsocket import NetlinkSocket
from ipoibu.host.route_message import (
    RTN_LOCAL,
    RouteReader,
    members_of,
    nexthop_number,
    output_interface,
    output_interfaces,
    read_nexthop,
    route_type,
)

RTM_GETROUTE: Final = 26
RTM_GETNEXTHOP: Final = 106
RTM_F_FIB_MATCH: Final = 0x2000
RTA_DST: Final = 1
RTA_SRC: Final = 2
RTA_IIF: Final = 3
RTA_OIF: Final = 4
_RTA_MARK: Final = 16
_NHA_ID: Final = 1
_RTA_IP_PROTO: Final = 27
_RTA_SPORT: Final = 28
_RTA_DPORT: Final = 29
_WITH_PORTS: Final = (6, 17)  # the kernel takes ports of TCP and UDP

_Attributes = list[tuple[int, bytes]]


class RouteQuery:
    """Asks the kernel about flows over the interface `index`.

    Any one thread may call `ask`, and any other `close`.

    A frame does not contain its firewall mark. So the query tries without a mark first, then with
    `marks`, those of the rules, and takes the first answer that leads over the interface; then it asks
    as a socket does that is bound to the interface.
    """

    def __init__(self, index: int, namespace: Namespace = HERE) -> None:
        self.marks: Sequence[int] = ()
        self.nexthops: Mapping[int, tuple[NextHop, ...]] = {}
        self._index = index
        self._reader = RouteReader(index)
        self._socket = NetlinkSocket(namespace)
        self._sources: dict[bytes, _Attributes] = {}

    def close(self) -> None:
        self._socket.close()

    def forget(self) -> None:
        """Forget all sources and entries, because the kernel's routes or rules changed."""
        self._sources = {}
        reader = RouteReader(self._index)
        reader.nexthops = self.nexthops
        self._reader = reader

    def ask(self, packet: bytes) -> Target | None:
        """Return the route of the packet's flow over the interface; None if the kernel has none."""
        family, tos, attributes = _selectors(packet)
        source = packet[12:16] if family == socket.AF_INET else packet[8:24]
        attributes = attributes + self._source(family, source)
        index = [(RTA_OIF, struct.pack("=I", self._index))]
        tries = [attributes + _mark(mark) for mark in (0, *self.marks)]
        if not any(number == RTA_IIF for number, _ in attributes):
            tries.append(attributes + index)
        for tried in tries:
            for data, offset in self._exchange(family, tos, tried):
                found = self._reader.read(data, offset)
                if found is not None and found[1].is_ours:
                    return Target(found[1].kind, found[1].hops)
        return None

    def _source(self, family: int, source: bytes) -> _Attributes:
        """Return the attributes of a source: our own address, or a host whose packets we forward.

        The kernel looks up the route of a forwarded packet by the interface that the packet came in
        by, so the query names the interface that leads back to the source.
        """
        sources = self._sources
        known = sources.get(source)
        if known is None:
            if len(sources) >= ROUTE_SOURCES_MAX:
                sources.clear()
            known = sources[source] = self._find_source(family, source)
        return known

    def _find_source(self, family: int, source: bytes) -> _Attributes:
        if not any(source):
            return []
        for data, offset in self._exchange(family, 0, [(RTA_DST, source)]):
            if route_type(data, offset) == RTN_LOCAL:
                break
            came_in = output_interface(data, offset) or min(
                interfaces_of(self._socket, data, offset), default=0
            )
            return [(RTA_SRC, source), (RTA_IIF, struct.pack("=I", came_in))]
        return [(RTA_SRC, source)]

    def _exchange(
        self, family: int, tos: int, attributes: _Attributes
    ) -> Iterator[tuple[bytes, int]]:
        return find_route(self._socket, family, tos, attributes)


def find_route(
    kernel: NetlinkSocket, family: int, tos: int, attributes: _Attributes
) -> Iterator[tuple[bytes, int]]:
    """Yield the kernel's answer, with its offset: one message, or none if the kernel refuses."""
    bits = 32 if family == socket.AF_INET else 128
    has_source = any(number == RTA_SRC for number, _ in attributes)
    body = struct.pack(
        "=BBBBBBBBI", family, bits, bits * has_source, tos, 0, 0, 0, 0, RTM_F_FIB_MATCH
    )
    for number, value in attributes:
        body += struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)
    try:
        yield from kernel.exchange(RTM_GETROUTE, 0, body, "asking for a route")
    except (IpoibuError, OSError):
        return


def interfaces_of(kernel: NetlinkSocket, data: bytes, offset: int) -> set[int]:
    """Return the interfaces of all hops of a route message, also where it names a nexthop object alone."""
    found = output_interfaces(data, offset)
    number = nexthop_number(data, offset)
    if found or not number:
        return found
    _, interface, group = _nexthop(kernel, number)
    members = [_nexthop(kernel, member)[1] for member in members_of(group)]
    return {interface, *members} - {0}


def _nexthop(kernel: NetlinkSocket, number: int) -> tuple[int, int, bytes]:
    """Return the number, interface and group of a nexthop object; zeros if it is gone."""
    body = bytes(8) + struct.pack("=HHI", 8, _NHA_ID, number)
    try:
        for data, offset in kernel.exchange(RTM_GETNEXTHOP, 0, body, "asking for a next hop"):
            found, interface, _, group = read_nexthop(data, offset)
            return found, interface, group
    except (IpoibuError, OSError):
        pass
    return 0, 0, b""


def _mark(mark: int) -> _Attributes:
    return [(_RTA_MARK, struct.pack("=I", mark))] if mark else []


def _selectors(packet: bytes) -> tuple[int, int, _Attributes]:
    """Return the family, type of service, destination, protocol and ports of a packet whose headers the
    pump has checked."""
    if packet[0] >> 4 == 4:
        family, tos, destination, protocol = socket.AF_INET, packet[1], packet[16:20], packet[9]
        header = (packet[0] & 15) * 4
        is_fragment = bool(struct.unpack_from(">H", packet, 6)[0] & 0x3FFF)
    else:
        tos = (packet[0] << 4 | packet[1] >> 4) & 0xFF
        family, destination, protocol, header = socket.AF_INET6, packet[24:40], packet[6], 40
        is_fragment = protocol == socket.IPPROTO_FRAGMENT
    attributes = [(RTA_DST, destination)]
    if protocol in _WITH_PORTS and not is_fragment and len(packet) >= header + 4:
        attributes.append((_RTA_IP_PROTO, bytes((protocol,))))
        attributes.append((_RTA_SPORT, packet[header : header + 2]))
        attributes.append((_RTA_DPORT, packet[header + 2 : header + 4]))
    return family, tos & 0xFC, attributes
