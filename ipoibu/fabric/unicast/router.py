# SPDX-License-Identifier: BSD-2-Clause
"""Asks the kernel how it reaches an address of the network below (RTM_GETROUTE)."""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import IpAddress

_RTM_GETROUTE: Final = 26
_RTM_NEWROUTE: Final = 24
_NLM_F_REQUEST: Final = 1
_RTA_DST: Final = 1
_RTA_OIF: Final = 4
_RTA_GATEWAY: Final = 5
_RTA_PREFSRC: Final = 7
_RTA_VIA: Final = 18  # a gateway of the other IP version: its family, then its address
_RTN_LOCAL: Final = 2
_HEADER: Final = struct.Struct("=IHHII")
_ROUTE: Final = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_ANSWER_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Route:
    """The way to one address: the index of the net device, the first router unless the host is on a network
    of ours, and the address that our packets come from. `is_local`: the address is our own."""

    index: int = 0
    router: IpAddress | None = None
    source: IpAddress | None = None
    is_local: bool = False


def route_to(ip: IpAddress, over: int = 0) -> Route | None:
    """Return the kernel's route, for packets over the net device with the index `over` unless that is 0; None
    without one. It does not wait: the kernel answers within the call. `OSError`."""
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    body = _ROUTE.pack(family, ip.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    body += _ATTRIBUTE.pack(_ATTRIBUTE.size + len(ip.packed), _RTA_DST) + ip.packed
    if over:
        body += _ATTRIBUTE.pack(_ATTRIBUTE.size + 4, _RTA_OIF) + struct.pack("=I", over)
    header = _HEADER.pack(_HEADER.size + len(body), _RTM_GETROUTE, _NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(header + body)
        answer = kernel.recv(_ANSWER_BYTES)
    length, kind, *_ = _HEADER.unpack_from(answer)
    if kind != _RTM_NEWROUTE:
        return None
    index, router, source = 0, None, None
    is_local = _ROUTE.unpack_from(answer, _HEADER.size)[7] == _RTN_LOCAL
    at = _HEADER.size + _ROUTE.size
    while at + _ATTRIBUTE.size <= length:
        size, name = _ATTRIBUTE.unpack_from(answer, at)
        value = answer[at + _ATTRIBUTE.size : at + size]
        if name == _RTA_OIF:
            (index,) = struct.unpack("=I", value)
        elif name == _RTA_GATEWAY:
            router = ipaddress.ip_address(value)
        elif name == _RTA_VIA:
            router = ipaddress.ip_address(value[2:])
        elif name == _RTA_PREFSRC:
            source = ipaddress.ip_address(value)
        at += size + 3 & ~3
    return Route(index, router, source, is_local)


def router_to(ip: IpAddress) -> IpAddress | None:
    """Return the first router on the way to `ip`; None for a host on a network of ours, and for one
    without a route. `OSError`."""
    route = route_to(ip)
    return route.router if route is not None else None
