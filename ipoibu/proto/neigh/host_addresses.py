# SPDX-License-Identifier: BSD-2-Clause
"""The IPv4 addresses of the host's other interfaces, in ARP.

An address belongs to the host, not to an interface: unless arp_ignore says otherwise we answer requests
for every address of the host, and unless arp_announce says otherwise we ask from the address that the
waiting packet comes from. So a host whose only address is on the loopback interface (an unnumbered one)
talks to its neighbours. The values are those of Linux, Documentation/networking/ip-sysctl.rst.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Set
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final, Literal, Self

from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import HOST_ADDRESSES_MAX
from ipoibu.proto.context import EngineContext, is_host
from ipoibu.proto.neigh.dad import Addresses

# What the kernel does with a packet that comes in by the interface: it takes it itself, or forwards it to
# where a proxy answers for.
Delivery = Literal["local", "elsewhere"]

# Asks the kernel for the delivery of packets from the first address (0.0.0.0 in a probe) to the second one;
# None: neither of both, or the host does not answer such ARP requests.
AskArp = Callable[[IPv4Address, IPv4Address], Delivery | None]


class Ignore(enum.IntEnum):
    """arp_ignore: the requests that a host does not answer."""

    NOTHING = 0  # the host answers for each of its addresses
    OTHERS = 1  # requests for addresses of other interfaces
    # Requests for addresses of other interfaces, and requests from another subnet.
    OTHER_SUBNETS = 2
    HOST_SCOPE = 3  # requests for addresses of scope host, which the caller leaves out
    ALL = 8

    @classmethod
    def of(cls, value: int) -> Self:
        """The meaning of a value; those that Linux reserves ignore nothing."""
        return cls(value) if value in cls._value2member_map_ else cls(0)


@dataclass(frozen=True, slots=True)
class ArpPolicy:
    """The sysctls arp_ignore and arp_announce; `is_proxy` is proxy_arp or proxy_arp_pvlan while the
    interface forwards. With `by_routes` addresses do not say all: the kernel decides about each request."""

    ignore: Ignore = Ignore.NOTHING
    announce: int = 0
    is_proxy: bool = False
    by_routes: bool = False

    @property
    def asks_kernel(self) -> bool:
        return self.is_proxy or self.by_routes


DEFAULT_ARP_POLICY: Final = ArpPolicy()
ALL_IPV4: Final = IPv4Address(0)  # as an own address: the pump passes all ARP requests up


class HostAddresses:
    """Decides which ARP requests we answer, and from which address we ask."""

    def __init__(self, context: EngineContext, addresses: Addresses) -> None:
        self._context = context
        self._addresses = addresses
        self._others: frozenset[IpAddress] = frozenset()
        self._claimed: frozenset[IpAddress] = frozenset()
        self._policy = DEFAULT_ARP_POLICY

    def __contains__(self, ip: IpAddress) -> bool:
        """Return whether another interface of our host has `ip`, and ours has not."""
        return ip in self._others and ip not in self._addresses

    def is_ours(self, ip: IpAddress) -> bool:
        """Return whether `ip` is an address of our host."""
        return self._addresses.is_ours(ip) or ip in self

    def change(self, now: float, others: Set[IPv4Address], policy: ArpPolicy) -> None:
        """Take all addresses of the host's other interfaces; the lowest ones where there are too many."""
        usable = sorted(ip for ip in others if is_host(ip))
        if len(usable) > HOST_ADDRESSES_MAX:
            text = (
                f"this host has {len(usable)} other addresses: we answer for {HOST_ADDRESSES_MAX}"
            )
            self._context.warn("address_table_full", now, text)
        if policy.asks_kernel and not self._policy.asks_kernel:
            self._context.own(ALL_IPV4)
        elif self._policy.asks_kernel and not policy.asks_kernel:
            self._context.disown(ALL_IPV4)
        self._others, self._policy = frozenset(usable[:HOST_ADDRESSES_MAX]), policy
        answers = policy.ignore in (Ignore.NOTHING, Ignore.HOST_SCOPE)
        before, self._claimed = self._claimed, self._others if answers else frozenset()
        for ip in sorted(before - self._claimed, key=str):
            self._context.disown(ip)
        for ip in sorted(self._claimed - before, key=str):
            self._context.own(ip)

    def answers(self, sender: IpAddress, target: IpAddress) -> bool:
        """Return whether we answer the request of `sender`, which is 0.0.0.0 in a probe."""
        match self._policy.ignore:
            case Ignore.ALL:
                return False
            case Ignore.OTHERS:
                return self._addresses.is_ours(target)
            case Ignore.OTHER_SUBNETS:
                is_near = sender.is_unspecified or self._addresses.shares_subnet(target, sender)
                return self._addresses.is_ours(target) and is_near
            case _:
                return self.is_ours(target)

    def asks_kernel(self, sender: IpAddress, target: IpAddress) -> bool:
        """Return whether the kernel decides about this request (`AskArp`): about each, or as a proxy about
        those for other hosts."""
        if self._addresses.is_directed_broadcast(target) or not is_host(target):
            return False
        if self._policy.by_routes:
            return True
        is_probe = sender.is_unspecified  # which a proxy does not answer
        return self._policy.is_proxy and not is_probe and not self.answers(sender, target)

    def answers_by(self, delivery: Delivery | None, sender: IpAddress, target: IpAddress) -> bool:
        """Return whether we answer, after the kernel has said what it does with packets to `target`."""
        match delivery:
            case "local":
                return self._policy.ignore is Ignore.NOTHING or self.answers(sender, target)
            case "elsewhere":
                return self._policy.is_proxy
            case None:
                return False

    def source_for(self, target: IpAddress, preferred: IpAddress | None) -> IpAddress | None:
        """Return the address to ask from; `preferred` is the source of the packet that waits."""
        announce = self._policy.announce
        is_wanted = announce == 0 or (announce == 1 and self._share_subnet(target, preferred))
        if preferred in self._others and is_wanted:
            return preferred
        source = self._addresses.source_for(target, preferred if is_wanted else None)
        return source if source is not None else min(self._others, default=None)

    def _share_subnet(self, target: IpAddress, preferred: IpAddress | None) -> bool:
        return preferred is not None and any(
            target in network and preferred in network for network in self._addresses.networks()
        )
