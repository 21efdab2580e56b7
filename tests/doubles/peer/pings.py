# SPDX-License-Identifier: BSD-2-Clause
"""The host's pings to groups, which its helper asks for: RFC 4391 §4."""

from __future__ import annotations

import ipaddress
from functools import partial
from typing import Final

from ipoibu.conform.mgid import group_hwaddr
from ipoibu.conform.packet import Names
from tests.doubles.peer.host import Host
from tests.doubles.peer.ipv4 import Ipv4Part
from tests.doubles.peer.ipv6 import icmpv6

GROUPS: Final = {
    "ping_long4": "238.129.7.9",
    "ping_long6": "ff12::1:2:3:4:5",
    "ping_wide6": "ff0e::7709",
}


class PingPart:
    """Sends echo requests to groups."""

    def __init__(self, host: Host, ipv4: Ipv4Part) -> None:
        self._host = host
        self._ipv4 = ipv4
        for name, group in GROUPS.items():
            host.acts[name] = partial(self._ping, group)

    def _ping(self, group: str, names: Names) -> None:
        host = self._host
        if ":" in group:
            packet = icmpv6(host.ipv6[0], group, b"\x80\0\0\0\0\1\0\1", 1)
            host.send_frame(self._hwaddr(group), 0x86DD, packet)
        else:
            message = b"\x08\0\xf7\xfd\0\1\0\1"
            host.send_frame(self._hwaddr(group), 0x0800, self._ipv4.pack(group, 1, message, 1))

    def _hwaddr(self, group: str) -> bytes:
        host = self._host
        hwaddr = group_hwaddr(group, host.wire.params)
        low = int(ipaddress.ip_address(group))
        if ":" not in group and host.deviates("maps 23 bits of an IPv4 group"):
            hwaddr = hwaddr[:-4] + (low & 0x7FFFFF).to_bytes(4, "big")
        if ":" in group and host.deviates("maps 32 bits of an IPv6 group"):
            hwaddr = hwaddr[:-10] + (low & 0xFFFFFFFF).to_bytes(10, "big")
        if ":" in group and host.deviates("the group's scope in its GID"):
            scope = low >> 112 & 15
            hwaddr = hwaddr[:5] + bytes((0x10 | scope,)) + hwaddr[6:]
        return hwaddr
