# SPDX-License-Identifier: BSD-2-Clause
"""Routes as values: next hops, prefixes, and changes of the routes of an interface."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from ipoibu.base.addr import IpAddress, IpNetwork
from ipoibu.base.limits import REROUTED_PREFIXES_MAX

RouteKind = Literal["unicast", "broadcast", "unreachable", "ask"]

# The fields, besides the destination, by which flows differ where we ask the kernel about each flow: a
# set of bits (enum ipu_route_field).
FIELD_SOURCE: Final = 1
FIELD_TOS: Final = 2
FIELD_PORTS: Final = 4

_MAPPED: Final = bytes(10) + b"\xff\xff"
_MAPPED_BITS: Final = 96


class NextHop(NamedTuple):
    """A neighbour that takes the packets of a route; with `via` None it is the destination itself."""

    via: IpAddress | None
    weight: int = 1


class Target(NamedTuple):
    """The end of a route. A unicast route has one next hop or more, the other kinds have none.

    A route of kind "ask" asks the kernel about each flow; flows differ in `fields` (FIELD_...).
    """

    kind: RouteKind
    hops: tuple[NextHop, ...] = ()
    fields: int = 0


class RouteChange(NamedTuple):
    """The route of `prefix` leads to `target` now; None: the route is gone.

    A prefix is one byte of length and the 16 bytes of `key_of`; the length of an IPv4 prefix counts
    96 bits more.
    """

    prefix: bytes
    target: Target | None


class Prefixes:
    """A set of prefixes, at most `cap`: a set with more of them covers every address."""

    def __init__(self, cap: int = REROUTED_PREFIXES_MAX) -> None:
        self._cap = cap
        self._by_bits: dict[int, set[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, prefix: bytes) -> None:
        if self._count > self._cap:
            return
        bits = prefix[0]
        same_bits = self._by_bits.setdefault(bits, set())
        self._count -= len(same_bits)
        same_bits.add(_first(prefix[1:], bits))
        self._count += len(same_bits)

    def add_host(self, address: IpAddress) -> None:
        """Add the prefix that covers this address alone."""
        self.add(bytes((128,)) + key_of(address))

    def covers(self, address: IpAddress) -> bool:
        least = _MAPPED_BITS if address.version == 4 else 0  # ::/0 does not match IPv4
        key = key_of(address)
        return self._count > self._cap or any(
            bits >= least and _first(key, bits) in prefixes
            for bits, prefixes in self._by_bits.items()
        )


def _first(key: bytes, bits: int) -> int:
    return int.from_bytes(key) >> (128 - bits)


# Asks the kernel for the route of an IP packet; None: it has none over the interface.
AskRoute = Callable[[bytes], Target | None]


def key_of(address: IpAddress) -> bytes:
    """Return the 16-byte form that the C tables use: IPv4 as ::ffff:a.b.c.d."""
    return _MAPPED + address.packed if address.version == 4 else address.packed


def address_of(key: bytes) -> IpAddress:
    """The inverse of `key_of`."""
    if key.startswith(_MAPPED):
        return ipaddress.IPv4Address(key[12:])
    return ipaddress.IPv6Address(key)


def prefix_of(network: IpNetwork) -> bytes:
    bits = network.prefixlen + (_MAPPED_BITS if network.version == 4 else 0)
    return bytes((bits,)) + key_of(network.network_address)
