# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's addresses and multicast memberships: netlink messages and /proc/net/igmp."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Container, Iterable
from ipaddress import IPv4Address, ip_interface
from typing import Final

from ipoibu.base.addr import IpAddress, IpInterface
from ipoibu.host.route_message import attribute, attributes, number_of, read_ip

# linux/if_addr.h
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_IFA_BROADCAST: Final = 4
_IFA_ANYCAST: Final = 5
_IFA_CACHEINFO: Final = 6
_IFA_MULTICAST: Final = 7
_IFA_FLAGS: Final = 8
_NDA_DST: Final = 1  # linux/neighbour.h
NTF_PROXY: Final = 8
_NUD_KNOWN: Final = 0x9E  # reachable, stale, delay, probe, permanent
_LENGTH: Final = struct.Struct("=I")
_HEADER: Final = struct.Struct("=BBBBI")  # struct ifaddrmsg
_CACHE_INFO: Final = struct.Struct("=IIII")  # preferred and valid lifetime, two stamps
_NEIGHBOUR: Final = struct.Struct("=BxxxiHBB")  # struct ndmsg


def request(family: int, index: int) -> bytes:
    """The body of a request for the addresses or groups of the interface `index`; 0 is every interface."""
    return _HEADER.pack(family, 0, 0, 0, index)


def address_body(
    index: int,
    address: IpInterface,
    *,
    broadcast: IPv4Address | None = None,
    flags: int = 0,
    lifetimes_s: tuple[int, int] | None = None,
) -> bytes:
    """Return the body of a message about one of our addresses; `lifetimes_s` are the preferred and the valid
    one."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    body = _HEADER.pack(family, address.network.prefixlen, flags, 0, index)
    body += attribute(_IFA_LOCAL, address.ip.packed) + attribute(_IFA_ADDRESS, address.ip.packed)
    if broadcast is not None:
        body += attribute(_IFA_BROADCAST, broadcast.packed)
    if lifetimes_s is not None:
        body += attribute(_IFA_CACHEINFO, _CACHE_INFO.pack(*lifetimes_s, 0, 0))
    return body


def read_interface(data: bytes, offset: int) -> tuple[int, IpInterface, int]:
    """Return the interface, the address with its prefix length, and the IFA_F_* bits of the message at
    `offset`."""
    (length,) = _LENGTH.unpack_from(data, offset)
    _, prefix_length, flags, _, index = _HEADER.unpack_from(data, offset + 16)
    found = dict(attributes(data, offset + 16 + _HEADER.size, offset + length))
    # For a point-to-point address IFA_ADDRESS is the peer's address, and IFA_LOCAL ours.
    ip = read_ip(found.get(_IFA_LOCAL) or found[_IFA_ADDRESS])
    return index, ip_interface(f"{ip}/{prefix_length}"), number_of(found.get(_IFA_FLAGS)) or flags


def read_group(data: bytes, offset: int) -> tuple[int, IpAddress | None]:
    """Return the interface and the group, or the anycast address, of the message at `offset`."""
    index = _HEADER.unpack_from(data, offset + 16)[4]
    return index, _ip_in(data, offset, _HEADER, (_IFA_MULTICAST, _IFA_ANYCAST))


def read_address(data: bytes, offset: int) -> tuple[int, int, IPv4Address | None]:
    """Return the interface, the scope and the IPv4 address of the message at `offset`."""
    _, _, _, scope, index = _HEADER.unpack_from(data, offset + 16)
    ip = _ip_in(data, offset, _HEADER, (_IFA_LOCAL,))
    return index, scope, ip if isinstance(ip, IPv4Address) else None


def proxy_request(family: int) -> bytes:
    """The body of a request for the proxy entries of all interfaces."""
    return _NEIGHBOUR.pack(family, 0, 0, NTF_PROXY, 0)


def read_proxy(data: bytes, offset: int) -> tuple[int, IpAddress | None]:
    """Return the interface and the address of the proxy entry at `offset`; None for another entry."""
    _, index, _, flags, _ = _NEIGHBOUR.unpack_from(data, offset + 16)
    is_proxy = flags & NTF_PROXY
    return index, _ip_in(data, offset, _NEIGHBOUR, (_NDA_DST,)) if is_proxy else None


def neighbour_request(family: int) -> bytes:
    """The body of a request for the neighbours on all interfaces."""
    return _NEIGHBOUR.pack(family, 0, 0, 0, 0)


def read_neighbour(data: bytes, offset: int) -> tuple[int, IpAddress | None]:
    """Return the interface and the address of the neighbour at `offset`; None for one that has not answered,
    and for a group."""
    _, index, state, flags, _ = _NEIGHBOUR.unpack_from(data, offset + 16)
    is_known = state & _NUD_KNOWN and not flags & NTF_PROXY
    return index, _ip_in(data, offset, _NEIGHBOUR, (_NDA_DST,)) if is_known else None


def _ip_in(
    data: bytes, offset: int, header: struct.Struct, numbers: Container[int]
) -> IpAddress | None:
    """Return the address in the first attribute with one of these numbers, behind `header`."""
    (length,) = _LENGTH.unpack_from(data, offset)
    for number, value in attributes(data, offset + 16 + header.size, offset + length):
        if number in numbers:
            return read_ip(value)
    return None


def read_igmp_table(lines: Iterable[str], index: int) -> set[IpAddress]:
    """Return the groups of the interface `index` in /proc/net/igmp.

    A line with an interface precedes the lines with its groups, which begin with a tab. The kernel
    prints the four bytes of a group as a number of the machine.
    """
    groups: set[IpAddress] = set()
    is_ours = False
    for line in lines:
        words = line.split()
        if not line.startswith("\t"):
            is_ours = words[:1] == [str(index)]
        elif is_ours and words:
            groups.add(IPv4Address(int(words[0], 16).to_bytes(4, sys.byteorder)))
    return groups
