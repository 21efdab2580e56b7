# SPDX-License-Identifier: BSD-2-Clause
"""Pings of the link layer: ask a host by ARP or neighbour discovery, and report each answer.

A ping leaves the neighbour's entry as it is; its answer confirms the entry as any answer does.
"""

from __future__ import annotations

from collections import Counter

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.proto.context import EngineContext, is_host
from ipoibu.proto.inputs import EnginePart, engine_input
from ipoibu.proto.neigh.dad import Addresses
from ipoibu.proto.neigh.neighbours import Neighbours
from ipoibu.proto.paths import State as PathState
from ipoibu.wire.mgid import solicited_node


class Pings(EnginePart):
    """The pings under way; an `Answered` effect follows each answer to one of them."""

    def __init__(
        self, context: EngineContext, neighbours: Neighbours, addresses: Addresses
    ) -> None:
        self._context = context
        self._neighbours = neighbours
        self._addresses = addresses
        self._asked: Counter[IpAddress] = Counter()
        neighbours.is_pinged = self._asked.__contains__

    @engine_input
    def ask(self, now: float, ip: IpAddress, hwaddr: HwAddr | None = None) -> None:
        """Ask all hosts for `ip`, or the host `hwaddr` alone: `Answered` follows each answer until `end`,
        which each call needs."""
        self._asked[ip] += 1
        self._neighbours.solicit(now, ip, hwaddr)

    def end(self, ip: IpAddress) -> None:
        self._asked -= Counter((ip,))

    def obstacle(self, ip: IpAddress) -> str | None:
        """Return why we cannot ask for `ip`; None if we can."""
        if ip in self._addresses:
            return "the address belongs to this interface"
        if not is_host(ip) or self._addresses.is_directed_broadcast(ip):
            return "no single host can have this address"
        if ip.version == 6 and not self._context.config.carries_ipv6:
            return "the link's MTU is too small for IPv6"
        if self._addresses.source_for(ip, None) is None:
            return f"the interface has no IPv{ip.version} address to ask from"
        return None

    def silence(self, ip: IpAddress, hwaddr: HwAddr | None) -> str:
        """Return why no answer has come, as far as we can see."""
        gid = hwaddr.gid if hwaddr is not None else None
        if gid is None and ip.version == 6:
            gid = self._context.mgid(solicited_node(ip))
        state = self._context.paths.state(gid) if gid is not None else None
        if state in (PathState.BACKOFF, PathState.ASKED):
            verb = "refuses" if state is PathState.BACKOFF else "has not given"
            return f"the subnet administrator {verb} the path to {gid}"
        if not self._addresses.shares_network(ip):
            return "no answer, and the address is in no network of this interface"
        return "no answer"
