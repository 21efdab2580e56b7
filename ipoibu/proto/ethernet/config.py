# SPDX-License-Identifier: BSD-2-Clause
"""What an administrator says about the guests behind an interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from ipoibu.addr import IpAddress, Mac
from ipoibu.errors import UsageError
from ipoibu.limits import ETHERNET_STATIC_MAX

StaticBindings = Mapping[Mac, frozenset[IpAddress]]


@dataclass(frozen=True)
class EthernetConfig:
    """`static` has the addresses that an administrator binds to guests (`--guest`)."""

    static: StaticBindings = field(default_factory=dict)

    @classmethod
    def bound(cls, guests: Iterable[tuple[Mac, Iterable[IpAddress]]]) -> Self:
        """Return a configuration of pairs, of which several may have the same MAC."""
        static: dict[Mac, frozenset[IpAddress]] = {}
        for mac, addresses in guests:
            static[mac] = static.get(mac, frozenset()) | frozenset(addresses)
        return cls(static)

    def __post_init__(self) -> None:
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
