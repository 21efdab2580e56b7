# SPDX-License-Identifier: BSD-2-Clause
"""The GID of an IP group on a link (RFC 4391 §4), from the figure of the RFC."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from ipoibu.conform.link import MULTICAST_QPN, LinkParams

CACHED: Final = 1024  # groups of which the GID is at hand


@lru_cache(CACHED)
def mgid(group: str, link: LinkParams) -> bytes:
    """Return the 16 bytes for an IP multicast address, or for 255.255.255.255."""
    address = ipaddress.ip_address(group)
    number = int(address)
    if address.version == 4:
        low = number if group == "255.255.255.255" else number & 0x0FFFFFFF
        signature = 0x401B
    else:
        low = number & (1 << 80) - 1
        signature = 0x601B
    head = bytes((0xFF, 0x10 | link.scope)) + signature.to_bytes(2, "big")
    return head + (link.pkey | 0x8000).to_bytes(2, "big") + low.to_bytes(10, "big")


def group_hwaddr(group: str, link: LinkParams) -> bytes:
    """Return the 20 bytes of the hardware address to which datagrams of an IP group go."""
    return MULTICAST_QPN.to_bytes(4, "big") + mgid(group, link)


@lru_cache(CACHED)
def solicited_node(ip: str) -> str:
    """Return the solicited-node group of an IPv6 address (RFC 4291 §2.7.1)."""
    low = int(ipaddress.IPv6Address(ip)) & 0xFFFFFF
    return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address("ff02::1:ff00:0")) | low))
