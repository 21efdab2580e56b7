# SPDX-License-Identifier: BSD-2-Clause
"""The options of an administrator about the guests behind an interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from ipoibu.base.addr import IpAddress, Mac
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import ETHERNET_STATIC_MAX, GUEST_QUEUE_PAIRS, GUEST_QUEUE_PAIRS_MAX

StaticBindings = Mapping[Mac, frozenset[IpAddress]]


@dataclass(frozen=True)
class EthernetConfig:
    """`static` has the addresses that an administrator binds to guests (`--guest`). At most `queue_pairs`
    guests have a hardware address of their own towards the link, where the device can and in datagram mode;
    the others share the interface's. `vlan` is the guests' VLAN, if the TAP is a parent's."""

    static: StaticBindings = field(default_factory=dict)
    queue_pairs: int = GUEST_QUEUE_PAIRS
    vlan: int | None = None

    @classmethod
    def bound(
        cls,
        guests: Iterable[tuple[Mac, Iterable[IpAddress]]],
        queue_pairs: int = GUEST_QUEUE_PAIRS,
    ) -> Self:
        """Return a configuration of pairs, of which several may have the same MAC."""
        static: dict[Mac, frozenset[IpAddress]] = {}
        for mac, addresses in guests:
            static[mac] = static.get(mac, frozenset()) | frozenset(addresses)
        return cls(static, queue_pairs)

    def __post_init__(self) -> None:
        if not 0 <= self.queue_pairs <= GUEST_QUEUE_PAIRS_MAX:
            raise UsageError(
                f"{self.queue_pairs} queue pairs for guests: choose 0 to {GUEST_QUEUE_PAIRS_MAX}"
            )
        owners: dict[IpAddress, Mac] = {}
        for mac, ips in self.static.items():
            if not mac.is_host:
                raise UsageError(f"{mac} is not the MAC of one guest")
            for address in ips:
                if not _is_unicast(address):
                    raise UsageError(f"{address} is not an address that a guest can have")
                if address in owners:
                    raise UsageError(f"{address} is bound to {owners[address]} and to {mac}")
                owners[address] = mac
        if len(owners) > ETHERNET_STATIC_MAX:
            raise UsageError(
                f"{len(owners)} bound addresses are too many: at most {ETHERNET_STATIC_MAX}"
            )


def _is_unicast(address: IpAddress) -> bool:
    return not (
        address.is_multicast
        or address.is_unspecified
        or address.is_loopback
        or address.packed == b"\xff" * 4
    )
