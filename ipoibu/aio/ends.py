# SPDX-License-Identifier: BSD-2-Clause
"""The two ends of a socket, its groups, and who hears what comes."""

from __future__ import annotations

import socket
from collections.abc import Callable

from ipoibu.aio.address import WILDCARDS, Flow, Place, SocketAddress, is_family, shown
from ipoibu.aio.groups import Groups

OnDatagrams = Callable[[list[bytes], SocketAddress], None]
OnError = Callable[[OSError], None]
OnLost = Callable[[Exception], None]


class Ends:
    """The part of a socket by which it is found.

    `family` is AF_INET or AF_INET6; one of IPv6 on the wildcard address takes IPv4 as well, unless `v6only`.
    `on_change` hears that an address, a group, an option or a path MTU has changed, the others hear
    datagrams, errors and the end of the endpoint.
    """

    def __init__(self, family: int, groups: Groups, *, reuse_port: bool, v6only: bool) -> None:
        self.family = family
        self.reuse_port = reuse_port
        self._v6only = v6only
        self.groups = groups
        self.local = Place(WILDCARDS[family], 0)
        self.remote: Place | None = None
        self.dont_fragment = False
        self.on_change: Callable[[], None] = lambda: None
        self.on_datagrams: OnDatagrams = lambda payloads, address: None
        self.on_error: OnError = lambda problem: None
        self.on_lost: OnLost = lambda problem: None

    @property
    def is_dual(self) -> bool:
        """Return whether the socket is of IPv6, and takes IPv4 as well."""
        is_open = not self._v6only and (self.local.ip.is_unspecified or self.local.ip.version == 4)
        return self.family == socket.AF_INET6 and is_open

    @property
    def sockname(self) -> SocketAddress:
        return shown(self.local, self.family)

    @property
    def peername(self) -> SocketAddress | None:
        return None if self.remote is None else shown(self.remote, self.family)

    def overlaps(self, other: Ends) -> bool:
        """Return whether a datagram could be for both sockets."""
        ours, theirs = self.local.ip, other.local.ip
        if ours == theirs:
            return True
        if ours.version == theirs.version:
            return ours.is_unspecified or theirs.is_unspecified
        return (self.is_dual and ours.is_unspecified) or (other.is_dual and theirs.is_unspecified)

    def score(self, flow: Flow) -> int:
        """Return how many ends of the flow the socket names; -1: it does not take the flow."""
        if not is_family(self.family, flow.destination, self.is_dual):
            return -1
        local = self.local.ip
        if not local.is_unspecified and local != flow.destination.ip:
            return -1
        if self.remote is None:
            return 0 if local.is_unspecified else 1
        return 2 if self.remote == flow.source else -1

    def hears(self, flow: Flow) -> bool:
        """Return whether the socket takes a datagram to a group or to all hosts."""
        if self.score(flow) < 0:
            return False
        group = flow.destination.ip
        return not group.is_multicast or self.groups.admits(group, flow.source.ip)

    def has_sent_to(self, place: Place) -> bool:
        """Return whether an error about a datagram to this place may be true."""
        return self.remote == place
