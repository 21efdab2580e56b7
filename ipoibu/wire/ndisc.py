# SPDX-License-Identifier: BSD-2-Clause
"""Neighbour discovery messages, RFC 4861 §4 and RFC 4391 §9.3 (N1-N4).

These functions read a message from a complete IPv6 packet and pack it into one, because half of the
rules of validity concern the IPv6 header. `lladdr` is the address in the link-layer option that the
message defines: the source's address in solicitations and router advertisements, the target's in
the other two.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from typing import Final

from ipoibu.base.addr import HwAddr
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets, ip, ndopt
from ipoibu.wire.mgid import solicited_node
from ipoibu.wire.ndopt import LinkLayer, Option

REASONS: Final = (
    ip.REASONS
    | ndopt.REASONS
    | {
        "nd_not_icmpv6",
        "nd_fragment",
        "nd_short",
        "nd_type",
        "nd_hop_limit",
        "nd_checksum",
        "nd_code",
        "nd_source",
        "nd_destination",
        "nd_target",
    }
)

ALL_NODES: Final = IPv6Address("ff02::1")
ALL_ROUTERS: Final = IPv6Address("ff02::2")

_HOP_LIMIT: Final = 255  # RFC 4861 §11.2: a host off the link cannot send it
_ROUTER: Final = 0x80
_SOLICITED: Final = 0x40
_OVERRIDE: Final = 0x20
_LINK_LAYER: Final = frozenset(LinkLayer)


class Kind(enum.IntEnum):
    """The ICMPv6 types of neighbour discovery."""

    ROUTER_SOLICITATION = 133
    ROUTER_ADVERTISEMENT = 134
    NEIGHBOUR_SOLICITATION = 135
    NEIGHBOUR_ADVERTISEMENT = 136
    REDIRECT = 137


@dataclass(frozen=True, slots=True)
class RouterSolicitation:
    """Ask the routers for advertisements."""

    source: IPv6Address
    destination: IPv6Address
    lladdr: HwAddr | None = None
    options: tuple[Option, ...] = ()

    def pack(self) -> bytes:
        return _pack(self, Kind.ROUTER_SOLICITATION, bytes(4))


@dataclass(frozen=True, slots=True)
class RouterAdvertisement:
    """A router's advertisement; `flags` as on the wire (RFC 4861 §4.2), prefixes in `options`."""

    source: IPv6Address
    destination: IPv6Address
    lladdr: HwAddr | None = None
    options: tuple[Option, ...] = ()
    hop_limit: int = 0
    flags: int = 0
    lifetime_s: int = 0
    reachable_ms: int = 0
    retransmit_ms: int = 0

    def pack(self) -> bytes:
        fixed = _ADVERTISED.pack(
            self.hop_limit, self.flags, self.lifetime_s, self.reachable_ms, self.retransmit_ms
        )
        return _pack(self, Kind.ROUTER_ADVERTISEMENT, fixed)


@dataclass(frozen=True, slots=True)
class NeighbourSolicitation:
    """A request for the owner of `target`: without `lladdr` in duplicate address detection, else
    with it (N3)."""

    source: IPv6Address
    destination: IPv6Address
    target: IPv6Address
    lladdr: HwAddr | None = None
    options: tuple[Option, ...] = ()

    def pack(self) -> bytes:
        return _pack(self, Kind.NEIGHBOUR_SOLICITATION, bytes(4) + self.target.packed)

    def answer(self, lladdr: HwAddr, router: bool = False) -> NeighbourAdvertisement:
        """Return the advertisement of the host `lladdr`, which owns `target`; RFC 4861 §7.2.4 (N4)."""
        solicited = not self.source.is_unspecified
        return NeighbourAdvertisement(
            source=self.target,
            destination=self.source if solicited else ALL_NODES,
            target=self.target,
            lladdr=lladdr,
            router=router,
            solicited=solicited,
            override=True,
        )


@dataclass(frozen=True, slots=True)
class NeighbourAdvertisement:
    """`target` has the hardware address `lladdr`; None: the address has not changed."""

    source: IPv6Address
    destination: IPv6Address
    target: IPv6Address
    lladdr: HwAddr | None = None
    options: tuple[Option, ...] = ()
    router: bool = False
    solicited: bool = False
    override: bool = False

    def pack(self) -> bytes:
        flags = self.router * _ROUTER | self.solicited * _SOLICITED | self.override * _OVERRIDE
        fixed = bytes((flags, 0, 0, 0)) + self.target.packed
        return _pack(self, Kind.NEIGHBOUR_ADVERTISEMENT, fixed)


@dataclass(frozen=True, slots=True)
class Redirect:
    """A better next hop for `redirected` is `target`, with the hardware address `lladdr`."""

    source: IPv6Address
    destination: IPv6Address
    target: IPv6Address
    redirected: IPv6Address
    lladdr: HwAddr | None = None
    options: tuple[Option, ...] = ()

    def pack(self) -> bytes:
        fixed = bytes(4) + self.target.packed + self.redirected.packed
        return _pack(self, Kind.REDIRECT, fixed)


Message = (
    RouterSolicitation
    | RouterAdvertisement
    | NeighbourSolicitation
    | NeighbourAdvertisement
    | Redirect
)

_ADVERTISED: Final = struct.Struct("!BBHII")
_LAYOUT: Final = {  # type: (where the options begin, which is the least length (N2); whose address)
    Kind.ROUTER_SOLICITATION: (8, LinkLayer.SOURCE),
    Kind.ROUTER_ADVERTISEMENT: (16, LinkLayer.SOURCE),
    Kind.NEIGHBOUR_SOLICITATION: (24, LinkLayer.SOURCE),
    Kind.NEIGHBOUR_ADVERTISEMENT: (24, LinkLayer.TARGET),
    Kind.REDIRECT: (40, LinkLayer.TARGET),
}


@dataclass(frozen=True, slots=True)
class _Opened:
    """A packet that passed the checks common to all five messages."""

    header: ip.Ipv6
    extensions: bytes
    kind: Kind
    fixed: bytes  # from the ICMPv6 type up to the options
    options: tuple[Option, ...]


def parse_untrusted(packet: Octets) -> Message:
    """Read a whole IPv6 packet and check all of N2.

    A link-layer option of a kind that the message does not define (a target's in a solicitation)
    stays among `options`, where readers ignore it (RFC 4861 §4.6).
    """
    return _message_untrusted(_open_untrusted(packet))


def strip_untrusted(
    packet: Octets, without: Collection[Option] = ()
) -> tuple[bytes, HwAddr | None]:
    """Return the packet without its link-layer options and those of `without`, with lengths and checksum
    corrected, and the address.

    The local stack gets RS, RA and redirects this way: a TUN has no link-layer address, and Linux ignores
    the prefixes of a router advertisement whose option does not fit its device. The checks are those of
    `parse_untrusted`; extension headers and other options stay as they are.
    """
    opened = _open_untrusted(packet)
    hwaddr = _message_untrusted(opened).lladdr
    kept = b"".join(
        option.pack()
        for option in opened.options
        if option.type not in _LINK_LAYER and option not in without
    )
    return _seal(opened.header, opened.extensions, opened.fixed + kept), hwaddr


@dataclass(frozen=True, slots=True)
class Relinked:
    """A message on its way to a link of another kind.

    `message` has no link-layer option; `address` is the body of the one that it came with, and
    `is_source` says that this is the address of the sender, not of the target.
    """

    message: Message
    address: bytes | None
    is_source: bool
    _opened: _Opened
    _others: tuple[Option, ...]

    def pack(self, address: bytes | None) -> bytes:
        """Return the packet with the link-layer option `address`, a body of 8n - 2 bytes, or without."""
        opened, options = self._opened, self._others
        if address is not None:
            options = (Option(_LAYOUT[opened.kind][1], address), *options)
        body = b"".join(option.pack() for option in options)
        return _seal(opened.header, opened.extensions, opened.fixed + body)


def relinked_untrusted(packet: Octets) -> Relinked:
    """Read a packet of a link whose addresses have any length, with the checks of `parse_untrusted`.

    A link-layer option of a kind that the message does not define is lost: readers would ignore it.
    """
    opened = _open_untrusted(packet)
    kind = _LAYOUT[opened.kind][1]
    address = next((it.body for it in opened.options if it.type == kind), None)
    others = tuple(it for it in opened.options if it.type not in _LINK_LAYER)
    message = _message_untrusted(replace(opened, options=others))
    is_probe = opened.header.source.is_unspecified and kind is LinkLayer.SOURCE
    if is_probe and address is not None:
        raise BadFrame("nd_source")
    return Relinked(message, address, kind is LinkLayer.SOURCE, opened, others)


def _open_untrusted(packet: Octets) -> _Opened:
    """Make the checks that RFC 4861 §6.1, §7.1 and §8.1 have in common (N2)."""
    header = ip.parse_untrusted(packet)
    if isinstance(header, ip.Ipv4):
        raise BadFrame("nd_not_icmpv6")
    upper = header.upper_untrusted()
    data = upper.payload
    if upper.protocol != ip.ICMPV6:
        raise BadFrame("nd_not_icmpv6")
    if upper.is_fragment:  # RFC 6980 §5
        raise BadFrame("nd_fragment")
    if len(data) < 8:
        raise BadFrame("nd_short")
    try:
        kind = Kind(data[0])
    except ValueError:
        raise BadFrame("nd_type") from None
    if header.hop_limit != _HOP_LIMIT:
        raise BadFrame("nd_hop_limit")
    if ip.transport_checksum(header.source, header.destination, ip.ICMPV6, data):
        raise BadFrame("nd_checksum")
    if data[1]:
        raise BadFrame("nd_code")
    start = _LAYOUT[kind][0]
    if len(data) < start:
        raise BadFrame("nd_short")
    options = ndopt.parse_untrusted(data[start:])
    return _Opened(header, header.payload[: upper.offset_bytes], kind, data[:start], options)


def _message_untrusted(opened: _Opened) -> Message:
    lladdr, options = ndopt.split_untrusted(_LAYOUT[opened.kind][1], opened.options)
    source, destination, fixed = opened.header.source, opened.header.destination, opened.fixed
    match opened.kind:
        case Kind.ROUTER_SOLICITATION:
            if source.is_unspecified and lladdr:
                raise BadFrame("nd_source")
            return RouterSolicitation(source, destination, lladdr, options)
        case Kind.ROUTER_ADVERTISEMENT:
            if not source.is_link_local:
                raise BadFrame("nd_source")
            advertised = _ADVERTISED.unpack_from(fixed, 4)
            return RouterAdvertisement(source, destination, lladdr, options, *advertised)
        case Kind.NEIGHBOUR_SOLICITATION:
            target = _target_untrusted(fixed)
            if source.is_unspecified and lladdr:
                raise BadFrame("nd_source")
            # RFC 4861 §7.1.1; `solicited_node` maps the solicited-node groups alone to themselves
            if source.is_unspecified and destination != solicited_node(destination):
                raise BadFrame("nd_destination")
            return NeighbourSolicitation(source, destination, target, lladdr, options)
        case Kind.NEIGHBOUR_ADVERTISEMENT:
            target, flags = _target_untrusted(fixed), fixed[4]
            if destination.is_multicast and flags & _SOLICITED:
                raise BadFrame("nd_destination")
            flags_set = (bool(flags & bit) for bit in (_ROUTER, _SOLICITED, _OVERRIDE))
            return NeighbourAdvertisement(source, destination, target, lladdr, options, *flags_set)
        case Kind.REDIRECT:
            target, redirected = _target_untrusted(fixed), IPv6Address(fixed[24:40])
            if not source.is_link_local:
                raise BadFrame("nd_source")
            # RFC 4861 §8.1: the target is a router's link-local address or the destination itself
            if redirected.is_multicast or not (target.is_link_local or target == redirected):
                raise BadFrame("nd_target")
            return Redirect(source, destination, target, redirected, lladdr, options)


def _target_untrusted(fixed: bytes) -> IPv6Address:
    target = IPv6Address(fixed[8:24])
    if target.is_multicast:
        raise BadFrame("nd_target")
    return target


def _pack(message: Message, kind: Kind, fixed: bytes) -> bytes:
    """Return the packet; `fixed` is the part between the checksum and the options."""
    options = message.options
    if message.lladdr is not None:
        options = (ndopt.link_layer(_LAYOUT[kind][1], message.lladdr), *options)
    header = ip.Ipv6(message.source, message.destination, ip.ICMPV6, b"", _HOP_LIMIT)
    body = b"".join(option.pack() for option in options)
    return _seal(header, b"", bytes((kind, 0, 0, 0)) + fixed + body)


def _seal(header: ip.Ipv6, extensions: bytes, message: bytes) -> bytes:
    """Return the packet with `message`, and a new checksum."""
    unsealed = message[:2] + bytes(2) + message[4:]
    check = ip.transport_checksum(header.source, header.destination, ip.ICMPV6, unsealed)
    sealed = message[:2] + check.to_bytes(2, "big") + message[4:]
    return replace(header, payload=extensions + sealed).pack()
