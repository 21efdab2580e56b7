# SPDX-License-Identifier: BSD-2-Clause
"""What the sockets of an endpoint share: its addresses, MTUs and ports."""

from __future__ import annotations

import errno
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ipoibu.aio.address import LIMITED_BROADCAST, Flow, SocketAddress, error
from ipoibu.aio.ends import Ends, OnDatagrams
from ipoibu.aio.path_mtu import PathMtus
from ipoibu.aio.ports import Ports
from ipoibu.base.addr import IpAddress, IpInterface
from ipoibu.base.limits import AIO_LOCAL_MAX

if TYPE_CHECKING:
    from ipoibu.endpoint.api.endpoint import Endpoint
    from ipoibu.proto.machine.transition import Transition

Targets = tuple[tuple[OnDatagrams, SocketAddress], ...]


class Network:
    """The network as the sockets of one endpoint see it. `schedule` runs a function soon."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.counts: Counter[str] = Counter()
        self.ports = Ports()
        self.path_mtus = PathMtus()
        self.schedule: Callable[[Callable[[], None]], None] = lambda function: function()
        self._flows: dict[bytes, Targets] = {}
        self._local: deque[tuple[bytes, bytes]] = deque()
        self._interfaces: tuple[IpInterface, ...] = ()
        self._own: dict[IpAddress, IpInterface] = {}
        self._broadcasts: frozenset[IpAddress] = frozenset()
        self._is_stale = True
        self._numbers = random.SystemRandom()

    def _note(self, transition: Transition) -> None:
        """Run on the engine's thread."""
        if transition.topic.value == "addr":
            self._is_stale = True

    def _refresh(self) -> None:
        if not self._is_stale:
            return
        self._is_stale = False
        self._interfaces = tuple(self.endpoint.addresses())
        self._own = {it.ip: it for it in self._interfaces}
        self._broadcasts = frozenset(
            [LIMITED_BROADCAST]
            + [
                it.network.broadcast_address
                for it in self._interfaces
                if it.version == 4 and it.network.prefixlen < 31
            ]
        )
        self.forget_flows()
        for each in self.ports:
            each.on_change()

    def join(self, group: IpAddress) -> None:
        self.endpoint.join(group)

    def leave(self, group: IpAddress) -> None:
        if self.endpoint.is_open:
            self.endpoint.leave(group)

    def is_own(self, address: IpAddress) -> bool:
        self._refresh()
        return address in self._own

    def is_broadcast(self, address: IpAddress) -> bool:
        self._refresh()
        return address in self._broadcasts

    def is_receivable(self, address: IpAddress) -> bool:
        """Return whether a socket may have this address."""
        return address.is_multicast or self.is_own(address) or self.is_broadcast(address)

    def source_for(self, destination: IpAddress) -> IpAddress:
        """Return our address that shares the longest prefix with the destination, of the same scope if there
        is one (RFC 6724 §5, rules 2 and 8). ENETUNREACH: there is none of its version."""
        self._refresh()
        ours = [it for it in self._interfaces if it.version == destination.version]
        if not ours:
            raise error(errno.ENETUNREACH, destination)
        bits = 32 if destination.version == 4 else 128
        is_local = destination.is_link_local or (
            destination.version == 6
            and destination.is_multicast
            and destination.packed[1] & 0xF <= 2
        )

        def rank(interface: IpInterface) -> tuple[bool, int]:
            shared = bits - (int(interface.ip) ^ int(destination)).bit_length()
            return (interface.ip.is_link_local == is_local, shared)

        return max(ours, key=rank).ip

    def mtu_to(self, destination: IpAddress) -> int:
        """Return the longest packet in bytes that gets there whole, as far as we know."""
        if destination.is_multicast or self.is_broadcast(destination):
            return self.endpoint.datagram_mtu
        return self.path_mtus.get(destination, self.endpoint.mtu)

    def identification(self) -> int:
        """Return a number for the fragments of one packet, which a stranger cannot guess (RFC 7739 §5.3)."""
        return self._numbers.getrandbits(32)

    def forget_flows(self) -> None:
        """Look for the sockets of each flow again."""
        self._flows.clear()

    def drop(self, socket: Ends) -> None:
        self.ports.remove(socket, socket.local.port)
        self.forget_flows()

    def loop_back(self, flow: Flow, payload: bytes) -> None:
        """Deliver a datagram of ours to our own sockets, soon."""
        if len(self._local) >= AIO_LOCAL_MAX:
            self.counts["local_full"] += 1
            return
        self._local.append((flow.pack(), payload))
        if len(self._local) == 1:
            self.schedule(self.deliver_local)

    def deliver_local(self) -> None:
        """Deliver what is under way to ourselves; a host does."""
        raise NotImplementedError
