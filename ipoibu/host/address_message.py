# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's addresses and multicast memberships: netlink messages and /proc/net/igmp."""

from __future__ import annotations

import struct
import sys
from collections.abc import Container, Iterable
from ipaddress import IPv4Address
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.host.route_message import attributes, read_ip

# linux/if_addr.h
_IFA_LOCAL: Final = 2
_IFA_ANYCAST: Final = 5
_IFA_MULTICAST: Final = 7
_NDA_DST: Final = 1  # linux/neighbour.h
NTF_PROXY: Final = 8
_NUD_KNOWN: Final = 0x9E  # reachable, stale, delay, probe, permanent
_LENGTH: Final = struct.Struct("=I")
_HEADER: Final = struct.Struct("=BBBBI")  # struct ifaddrmsg
_NEIGHBOUR: Final = struct.Struct("=BxxxiHBB")  # struct ndmsg


def request(family: int, index: int) -> bytes:
    """The body of a request for the addresses or groups of the interface `index`; 0 is every interface."""
    return _HEADER.pack(family, 0, 0, 0, index)


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
