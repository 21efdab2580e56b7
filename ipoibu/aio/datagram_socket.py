# SPDX-License-Identifier: BSD-2-Clause
"""A UDP socket on an endpoint: its two ends, its options, and the headers of what it sends."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Final

from ipoibu.aio.address import (
    Flow,
    Place,
    SocketAddress,
    error,
    place_of,
)
from ipoibu.aio.ends import Ends
from ipoibu.aio.groups import Groups
from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import AIO_DESTINATIONS_MAX, IP_PACKET_MAX_BYTES
from ipoibu.wire import fragment, ip, udp

if TYPE_CHECKING:
    from ipoibu.aio.network import Network

_MAX_BYTES: Final = {
    4: IP_PACKET_MAX_BYTES - 20 - udp.HEADER_BYTES,  # 65507
    6: IP_PACKET_MAX_BYTES - udp.HEADER_BYTES,  # 65527
}


class Way:
    """How datagrams of a socket get to one destination. `headers` are empty where more is to do than to put
    them in front: for our own addresses, groups, and all hosts. `room` counts bytes of payload."""

    __slots__ = ("destination", "headers", "mtu_bytes", "room", "source")

    def __init__(self, source: Place, destination: Place, headers: bytes, mtu_bytes: int) -> None:
        self.source = source
        self.destination = destination
        self.headers = headers
        self.mtu_bytes = mtu_bytes
        self.room = mtu_bytes - (28 if destination.ip.version == 4 else 48)


class Socket(Ends):
    """One socket, whose owner sets the functions of `Ends`, and calls `note_change` after it has changed
    an option or the groups."""

    def __init__(
        self,
        host: Network,
        family: int,
        *,
        reuse_port: bool = False,
        broadcast: bool = False,
        v6only: bool = False,
    ) -> None:
        groups = Groups(host.join, host.leave)
        super().__init__(family, groups, reuse_port=reuse_port, v6only=v6only)
        self._host = host
        self.on_change = self.note_change
        self.broadcast = broadcast
        self.hop_limit = 64
        self.multicast_hops = 1
        self.multicast_loop = True
        self.tos = 0
        self._ways: dict[SocketAddress, Way] = {}
        self._sent_to: set[Place] = set()  # the destinations of these ways
        self._remote_way: Way | None = None

    # -- the two ends ----------------------------------------------------------------------------

    def bind(self, place: Place) -> None:
        """Take this place; EADDRNOTAVAIL for an address that is not the endpoint's, EADDRINUSE."""
        if not (place.ip.is_unspecified or self._host.is_receivable(place.ip)):
            raise error(errno.EADDRNOTAVAIL, place.ip)
        self.local = place
        port = self._host.ports.add(self, place.port)
        self.local = Place(place.ip, port)

    def connect(self, place: Place) -> None:
        """Send to this place, and receive from nobody else. A wildcard address becomes our own one."""
        way = self._find_way(place)
        self.remote = place
        if self.local.ip.is_unspecified:
            self.local = Place(way.source.ip, self.local.port)
        self._remote_way = way
        self._host.forget_flows()

    def close(self) -> None:
        """Free the port, and leave the groups. Safe to repeat."""
        self._host.drop(self)
        self.groups.leave_all()

    def note_change(self) -> None:
        """Forget what was ready: an option, a group, an address or a path MTU has changed."""
        self._forget_ways()
        self._host.forget_flows()
        if self.remote is not None:
            self._remote_way = None

    # -- sending ---------------------------------------------------------------------------------

    def way_to(self, address: SocketAddress | None) -> Way:
        """Return the way to a destination; of a connected socket, to its peer.

        `OSError` as by the kernel's sockets: EDESTADDRREQ, EINVAL (port 0), EACCES (all hosts, without
        `broadcast`), ENETUNREACH (no address of ours fits).
        """
        if address is None:
            if self._remote_way is None:
                if self.remote is None:
                    raise error(errno.EDESTADDRREQ)
                self._remote_way = self._find_way(self.remote)
            return self._remote_way
        way = self._ways.get(address)
        if way is None:
            way = self._find_way(place_of(address, self.family))
            if len(self._ways) >= AIO_DESTINATIONS_MAX:
                self._forget_ways()
            self._ways[address] = way
            self._sent_to.add(way.destination)
        return way

    def send(self, payload: bytes | bytearray, address: SocketAddress | None = None) -> bool:
        """Queue a datagram; return False if the queue is full. EMSGSIZE, or an error of `way_to`."""
        way = self.way_to(address)
        if way.headers and len(payload) <= way.room:
            return self._host.endpoint.packet_queue.send_datagrams(way.headers, (payload,)) == 1
        return self._send_otherwise(way, bytes(payload))

    def send_batch(
        self,
        payloads: Sequence[bytes | bytearray | memoryview],
        address: SocketAddress | None = None,
    ) -> int:
        """Queue datagrams to one destination, in order; return how many fitted, counted from the first."""
        way = self.way_to(address)
        if way.headers and (not payloads or max(map(len, payloads)) <= way.room):
            return self._host.endpoint.packet_queue.send_datagrams(way.headers, payloads)
        for done, payload in enumerate(payloads):
            if not self.send(bytes(payload), address):
                return done
        return len(payloads)

    def has_sent_to(self, place: Place) -> bool:
        """Return whether an error about a datagram to this place may be true."""
        return super().has_sent_to(place) or place in self._sent_to

    def _forget_ways(self) -> None:
        self._ways.clear()
        self._sent_to.clear()

    def _find_way(self, to: Place) -> Way:
        host = self._host
        if not to.port or to.ip.is_unspecified:
            raise error(errno.EINVAL, f"{to.ip} port {to.port}")
        is_all = host.is_broadcast(to.ip)
        if is_all and not self.broadcast:
            raise error(errno.EACCES, to.ip)
        bound = self.local.ip
        if bound.is_unspecified or bound.is_multicast or host.is_broadcast(bound):
            if to.ip.version == 4 and self.family == socket.AF_INET6 and not self.is_dual:
                raise error(errno.ENETUNREACH, to.ip)
            bound = host.source_for(to.ip)
        if bound.version != to.ip.version:
            raise error(errno.ENETUNREACH, to.ip)
        source = Place(bound, self.local.port)
        is_plain = not is_all and not to.ip.is_multicast and not host.is_own(to.ip)
        headers = self._packet(source, to, b"").pack() if is_plain else b""
        return Way(source, to, headers, host.mtu_to(to.ip))

    def _packet(self, source: Place, to: Place, payload: bytes) -> ip.Packet:
        segment = udp.Datagram(source.ip, source.port, to.ip, to.port, payload).pack()
        hops = self.multicast_hops if to.ip.is_multicast else self.hop_limit
        if isinstance(source.ip, IPv4Address) and isinstance(to.ip, IPv4Address):
            return ip.Ipv4(
                source.ip, to.ip, udp.PROTOCOL, segment, hops, self.tos, dont_fragment=True
            )
        assert isinstance(source.ip, IPv6Address)
        assert isinstance(to.ip, IPv6Address)
        return ip.Ipv6(source.ip, to.ip, udp.PROTOCOL, segment, hops, self.tos)

    def _send_otherwise(self, way: Way, payload: bytes) -> bool:
        """Send a datagram that has to be cut, or that is for ourselves, a group or all hosts."""
        host, to = self._host, way.destination.ip
        if len(payload) > _MAX_BYTES[to.version]:
            raise error(errno.EMSGSIZE)
        is_own, is_group = host.is_own(to), to.is_multicast
        if not is_own and len(payload) > way.room and self.dont_fragment:
            raise error(errno.EMSGSIZE)
        loops = is_own or host.is_broadcast(to) or (is_group and self.multicast_loop)
        leaves = not is_own and not (is_group and self.multicast_hops == 0)
        if leaves:
            packet = self._packet(way.source, way.destination, payload)
            if len(payload) <= way.room:
                packets = [packet.pack()]
            else:
                number = host.identification()
                packets = fragment.split(packet, way.mtu_bytes, number)
            if host.endpoint.packet_queue.send(packets) < len(packets):
                return False
        if loops:
            host.loop_back(Flow(way.source, way.destination), payload)
        return True


def family_of(address: IpAddress) -> int:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6
