# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's route messages, decoded quickly (a table may have 100 000 routes), and the form of attributes.

Libraries that decode every attribute need 30 times as long, and ten times the memory.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from ipoibu.base.addr import IpAddress, IpNetwork
from ipoibu.base.limits import ROUTE_KNOWN_MAX
from ipoibu.base.route import FIELD_SOURCE, FIELD_TOS, NextHop, RouteKind

# linux/rtnetlink.h
RTN_UNICAST: Final = 1
RTN_LOCAL: Final = 2
RTN_BROADCAST: Final = 3
RTN_ANYCAST: Final = 4
RT_TABLE_DEFAULT: Final = 253
RT_TABLE_MAIN: Final = 254
RT_TABLE_LOCAL: Final = 255
_RT_SCOPE_UNIVERSE: Final = 0
_RT_SCOPE_LINK: Final = 253
RTM_F_CLONED: Final = 0x200
RTNH_F_DEAD: Final = 1
_RTA_DST: Final = 1
_LOOPBACK: Final = b"\x7f"
_RTA_SRC: Final = 2
RTA_OIF: Final = 4
_RTA_GATEWAY: Final = 5
_RTA_PRIORITY: Final = 6
_RTA_PREFSRC: Final = 7
_RTA_MULTIPATH: Final = 9
_RTA_TABLE: Final = 15
_RTA_VIA: Final = 18
_RTA_PREF: Final = 20
_RTA_NH_ID: Final = 30
_NHA_ID: Final = 1
_NHA_GROUP: Final = 2
_NHA_OIF: Final = 5
_NHA_GATEWAY: Final = 6
_TYPE_MASK: Final = 0x3FFF

_AF_INET: Final = 2
_AF_INET6: Final = 10
FAMILIES_MULTICAST: Final = (128, 129)  # RTNL_FAMILY_IPMR, RTNL_FAMILY_IP6MR
_FAMILIES: Final = {4: _AF_INET, 6: _AF_INET6}
_MAPPED: Final = bytes(10) + b"\xff\xff"
_KINDS: Final[dict[int, RouteKind]] = {RTN_UNICAST: "unicast", RTN_BROADCAST: "broadcast"}
# The kernel's own routes, and those by redirect and by router advertisement, never join a multipath route.
_KERNELS_OWN: Final = (1, 2, 9)  # RTPROT_REDIRECT, RTPROT_KERNEL, RTPROT_RA
_PREFERENCES: Final = {1: 1, 3: -1}  # RFC 4191 §2.1: 1 is high, 3 is low, everything else medium

_LENGTH: Final = struct.Struct("=I")
_HEADER: Final = struct.Struct("=BBBBBBBBI")  # struct rtmsg
_ATTRIBUTE: Final = struct.Struct("=HH")
_NUMBER: Final = struct.Struct("=I")
_FAMILY: Final = struct.Struct("=H")
_HOP: Final = struct.Struct("=HBBI")  # struct rtnexthop
_FIRST_ATTRIBUTE: Final = 16 + _HEADER.size
_FIRST_NEXTHOP_ATTRIBUTE: Final = 16 + 8  # struct nhmsg
# struct nexthop_grp: number, weight, high byte of the weight.
_MEMBER: Final = struct.Struct("=IBBH")


# family, RTN_*, TOS, table, protocol, whether the route is dead, whether it is removed
_Head = tuple[int, int, int, int, int, bool, bool]


class RouteEntry(NamedTuple):
    """A route of the kernel over one interface, without its prefix.

    `preference` is that of RFC 4191: 1 high, 0 medium, -1 low. `source` is the address that the
    kernel gives to packets; without that address the route vanishes, without a notice. In IPv6
    `source` is the prefix of the sources that the route is for. IPv6 entries with `spreads` and the
    same metric form one multipath route.
    """

    family: int
    kind: RouteKind
    hops: tuple[NextHop, ...]
    table: int
    metric: int
    tos: int = 0
    preference: int = 0
    source: bytes = b""
    spreads: bool = False
    asks: int | None = None  # FIELD_...: the route selects packets by more than their destination
    is_ours: bool = True  # False: it leads over other interfaces only


class RouteReader:
    """Decodes the route messages of the interface `index`; equal entries are one object."""

    def __init__(self, index: int) -> None:
        self.nexthops: Mapping[int, tuple[NextHop, ...]] = {}
        """The kernel's nexthop objects, with their hops over the interface."""
        self._index = index
        self._output = _NUMBER.pack(index)
        self._known: dict[tuple[_Head, tuple[tuple[int, bytes], ...]], RouteEntry] = {}

    def read(
        self, data: bytes, offset: int, *, removed: bool = False
    ) -> tuple[bytes, RouteEntry] | None:
        """Return the prefix and the entry of the message at `offset`; None for a route of no interest.

        The kernel does not use a dead hop, but names it when the route is `removed`.
        """
        (length,) = _LENGTH.unpack_from(data, offset)
        family, bits, source_bits, tos, table, protocol, _, kind, flags = _HEADER.unpack_from(
            data, offset + 16
        )
        if kind not in _KINDS or flags & RTM_F_CLONED or family not in (_AF_INET, _AF_INET6):
            return None
        destination, output = b"", self._output
        used: list[tuple[int, bytes]] = [(0, bytes((source_bits,)))] if source_bits else []
        for number, value in attributes(data, offset + _FIRST_ATTRIBUTE, offset + length):
            if number == _RTA_DST:
                destination = value
            elif number in _USED:
                used.append((number, value))
                if number == RTA_OIF:
                    output = value
                elif number in _SEVERAL:
                    output = self._output
        if output != self._output:  # the hosts of another link can invent many gateways
            used = [each for each in used if each[0] not in _GATEWAYS]
        is_dead = not removed and bool(flags & RTNH_F_DEAD)
        entry = self._shared((family, kind, tos, table, protocol, is_dead, removed), tuple(used))
        if family == _AF_INET:
            return bytes((bits + 96,)) + _MAPPED + (destination or bytes(4)), entry
        return bytes((bits,)) + (destination or bytes(16)), entry

    def _shared(self, head: _Head, used: tuple[tuple[int, bytes], ...]) -> RouteEntry:
        entry = self._known.get((head, used))
        if entry is None:
            if len(self._known) >= ROUTE_KNOWN_MAX:
                self._known.clear()
            entry = self._known[head, used] = self._entry(head, dict(used))
        return entry

    def _entry(self, head: _Head, values: dict[int, bytes]) -> RouteEntry:
        family, kind, tos, table, protocol, is_dead, removed = head
        several = values.get(_RTA_MULTIPATH)
        hops: tuple[NextHop, ...] = ()
        if _RTA_NH_ID in values:
            hops = self.nexthops.get(number_of(values[_RTA_NH_ID]), ())
        elif several:
            hops = tuple(self._several(several, keep_dead=removed))
        elif not is_dead and number_of(values.get(RTA_OIF)) == self._index:
            hops = (NextHop(_gateway(values)),)
        has_gateway = any(hop.via is not None for hop in hops)
        return RouteEntry(
            family=family,
            kind=_KINDS[kind],
            hops=hops if kind == RTN_UNICAST else (),
            table=number_of(values.get(_RTA_TABLE)) or table,
            metric=number_of(values.get(_RTA_PRIORITY)),
            tos=tos,
            preference=_PREFERENCES.get(int.from_bytes(values.get(_RTA_PREF, b"")), 0),
            source=(
                values.get(_RTA_PREFSRC, b"")
                if family == _AF_INET
                else values.get(_RTA_SRC, b"") + values.get(0, b"")
            ),
            spreads=bool(several) or (has_gateway and protocol not in _KERNELS_OWN),
            asks=_asks(values, tos, number_of(values.get(_RTA_TABLE)) or table),
            is_ours=bool(hops),
        )

    def _several(self, data: bytes, *, keep_dead: bool) -> Iterator[NextHop]:
        offset = 0
        while offset + _HOP.size <= len(data):
            length, flags, weight, index = _HOP.unpack_from(data, offset)
            if length < _HOP.size:
                return
            if index == self._index and (keep_dead or not flags & RTNH_F_DEAD):
                values = dict(attributes(data, offset + _HOP.size, offset + length))
                yield NextHop(_gateway(values), weight + 1)
            offset += (length + 3) & ~3


_GATEWAYS: Final = (_RTA_GATEWAY, _RTA_VIA)
_SEVERAL: Final = (_RTA_MULTIPATH, _RTA_NH_ID)
_USED: Final = frozenset(
    (
        _RTA_SRC,
        RTA_OIF,
        _RTA_GATEWAY,
        _RTA_PRIORITY,
        _RTA_PREFSRC,
        _RTA_MULTIPATH,
        _RTA_TABLE,
        _RTA_VIA,
        _RTA_PREF,
        _RTA_NH_ID,
    )
)


def _asks(values: Mapping[int, bytes], tos: int, table: int) -> int | None:
    fields = FIELD_TOS if tos else 0
    fields |= FIELD_SOURCE if 0 in values else 0
    return fields if fields or table == RT_TABLE_DEFAULT else None


def read_nexthop(data: bytes, offset: int) -> tuple[int, int, bytes, bytes]:
    """Return the number, interface, gateway and group of a nexthop object."""
    (length,) = _LENGTH.unpack_from(data, offset)
    values = dict(attributes(data, offset + _FIRST_NEXTHOP_ATTRIBUTE, offset + length))
    return (
        number_of(values.get(_NHA_ID)),
        number_of(values.get(_NHA_OIF)),
        values.get(_NHA_GATEWAY, b""),
        values.get(_NHA_GROUP, b""),
    )


def members_of(group: bytes) -> list[int]:
    """Return the numbers of the nexthop objects of a group."""
    return [number for number, _, _, _ in _MEMBER.iter_unpack(_whole_members(group))]


def hops_by_number(
    listed: Iterable[tuple[int, int, bytes, bytes]], index: int
) -> dict[int, tuple[NextHop, ...]]:
    """Return the hops over the interface `index` of each nexthop object and each group of such objects."""
    hops: dict[int, tuple[NextHop, ...]] = {}
    groups: list[tuple[int, bytes]] = []
    for number, interface, gateway, group in listed:
        if group:
            groups.append((number, group))
        elif interface == index:
            hops[number] = (NextHop(read_ip(gateway)),)
    for number, group in groups:
        hops[number] = tuple(
            hop._replace(weight=(high << 8 | low) + 1)
            for member, low, high, _ in _MEMBER.iter_unpack(_whole_members(group))
            for hop in hops.get(member, ())
        )
    return hops


def _whole_members(group: bytes) -> bytes:
    return group[: len(group) - len(group) % _MEMBER.size]


def route_type(data: bytes, offset: int) -> int:
    """Return the RTN_* of a route message."""
    return data[offset + 16 + 7]


def is_local_network(data: bytes, offset: int) -> bool:
    """Return whether the route at `offset` makes the host take the IPv4 packets to a whole network of table
    local, other than 127.0.0.0/8."""
    family, bits, _, _, table, _, _, kind, _ = _HEADER.unpack_from(data, offset + 16)
    if family != _AF_INET or table != RT_TABLE_LOCAL or kind != RTN_LOCAL or bits == 32:
        return False
    (length,) = _LENGTH.unpack_from(data, offset)
    found = dict(attributes(data, offset + _FIRST_ATTRIBUTE, offset + length))
    return found.get(_RTA_DST, b"")[:1] != _LOOPBACK


def output_interface(data: bytes, offset: int) -> int:
    """Return the interface of a route message, of the first hop if there are several; 0 for none."""
    (length,) = _LENGTH.unpack_from(data, offset)
    for number, value in attributes(data, offset + _FIRST_ATTRIBUTE, offset + length):
        if number == RTA_OIF:
            return number_of(value)
        if number == _RTA_MULTIPATH and len(value) >= _HOP.size:
            return int(_HOP.unpack_from(value)[3])
    return 0


def has_router(data: bytes, offset: int) -> bool:
    """Return whether the only hop of a route message is a router."""
    (length,) = _LENGTH.unpack_from(data, offset)
    found = attributes(data, offset + _FIRST_ATTRIBUTE, offset + length)
    return any(number in _GATEWAYS for number, _ in found)


def output_interfaces(data: bytes, offset: int) -> set[int]:
    """Return the interfaces of all hops of a route message."""
    (length,) = _LENGTH.unpack_from(data, offset)
    found: set[int] = set()
    for number, value in attributes(data, offset + _FIRST_ATTRIBUTE, offset + length):
        if number == RTA_OIF:
            found.add(number_of(value))
        elif number == _RTA_MULTIPATH:
            found |= set(_hop_interfaces(value))
    return found - {0}


def _hop_interfaces(data: bytes) -> Iterator[int]:
    offset = 0
    while offset + _HOP.size <= len(data):
        length, _, _, index = _HOP.unpack_from(data, offset)
        if length < _HOP.size:
            return
        yield index
        offset += (length + 3) & ~3


def route_prefix_bits(data: bytes, offset: int) -> int:
    """Return the prefix length of a route message; 0 is a default route."""
    return data[offset + 16 + 1]


def nexthop_number(data: bytes, offset: int) -> int:
    """Return the nexthop object of a route message; 0 if the route has hops of its own.

    Under net.ipv4.nexthop_compat_mode=0 the kernel names the hops of such a route by that number alone.
    """
    (length,) = _LENGTH.unpack_from(data, offset)
    for number, value in attributes(data, offset + _FIRST_ATTRIBUTE, offset + length):
        if number == _RTA_NH_ID:
            return number_of(value)
    return 0


def unicast_network(data: bytes, offset: int) -> IpNetwork | None:
    """Return the destination of a unicast route; None for another kind of route."""
    family, bits, _, _, _, _, _, kind, flags = _HEADER.unpack_from(data, offset + 16)
    if family not in (_AF_INET, _AF_INET6) or kind != RTN_UNICAST or flags & RTM_F_CLONED:
        return None
    (length,) = _LENGTH.unpack_from(data, offset)
    found = dict(attributes(data, offset + _FIRST_ATTRIBUTE, offset + length))
    raw = found.get(_RTA_DST, bytes(4 if family == _AF_INET else 16))
    return ipaddress.ip_network((raw, bits), strict=False)


def routed_group(data: bytes, offset: int) -> IpAddress | None:
    """Return the group of a multicast route; None for another route."""
    if data[offset + 16] not in FAMILIES_MULTICAST:
        return None
    (length,) = _LENGTH.unpack_from(data, offset)
    found = dict(attributes(data, offset + _FIRST_ATTRIBUTE, offset + length))
    return read_ip(found.get(_RTA_DST, b""))


def ipv6_host_of(data: bytes, offset: int) -> IpAddress | None:
    """Return the destination of a unicast route to one IPv6 host alone; None for another route."""
    family, bits, _, _, _, _, _, kind, flags = _HEADER.unpack_from(data, offset + 16)
    if (family, bits, kind) != (_AF_INET6, 128, RTN_UNICAST) or flags & RTM_F_CLONED:
        return None
    (length,) = _LENGTH.unpack_from(data, offset)
    found = dict(attributes(data, offset + _FIRST_ATTRIBUTE, offset + length))
    return read_ip(found.get(_RTA_DST, b""))


def route_head(family: int, table: int = 0) -> bytes:
    """Return the head of a question for routes of a family."""
    return _HEADER.pack(family, 0, 0, 0, table, 0, 0, 0, 0)


def route_body(
    index: int,
    network: IpNetwork,
    via: IpAddress | None,
    protocol: int,
    *,
    flags: int = 0,
    metric: int | None = None,
) -> bytes:
    """Return the body of a message about a route of the main table."""
    scope = _RT_SCOPE_LINK if via is None and network.version == 4 else _RT_SCOPE_UNIVERSE
    head = (_FAMILIES[network.version], network.prefixlen, 0, 0, RT_TABLE_MAIN)
    body = _HEADER.pack(*head, protocol, scope, RTN_UNICAST, flags) + u32(RTA_OIF, index)
    if network.prefixlen:
        body += attribute(_RTA_DST, network.network_address.packed)
    if via is not None:
        if via.version == network.version:
            body += attribute(_RTA_GATEWAY, via.packed)
        else:  # struct rtvia
            body += attribute(_RTA_VIA, _FAMILY.pack(_FAMILIES[via.version]), via.packed)
    return body if metric is None else body + u32(_RTA_PRIORITY, metric)


def attribute(number: int, *parts: bytes) -> bytes:
    """Return an attribute; nested ones are parts of it."""
    value = b"".join(parts)
    size = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(size, number) + value + bytes(-size % 4)


def u32(number: int, value: int) -> bytes:
    """Return an attribute that is a number."""
    return attribute(number, _NUMBER.pack(value))


def attributes(data: bytes, at: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the type and the value of each attribute."""
    while at + 4 <= end:
        size, number = _ATTRIBUTE.unpack_from(data, at)
        if size < 4:
            return
        yield number & _TYPE_MASK, data[at + 4 : at + size]
        at += (size + 3) & ~3


def number_of(value: bytes | None) -> int:
    """Return a 32-bit attribute; 0 where it is missing or of another size."""
    return int(_NUMBER.unpack(value)[0]) if value and len(value) == _NUMBER.size else 0


def _gateway(values: dict[int, bytes]) -> IpAddress | None:
    gateway = values.get(_RTA_GATEWAY, b"")
    if not gateway and _RTA_VIA in values:
        gateway = values[_RTA_VIA][2:]  # struct rtvia: the family, then the address
    return read_ip(gateway)


def read_ip(raw: bytes) -> IpAddress | None:
    """Return the address of 4 or 16 bytes; None for any other number of bytes."""
    if len(raw) == 4:
        return ipaddress.IPv4Address(raw)
    if len(raw) == 16:
        return ipaddress.IPv6Address(raw)
    return None
