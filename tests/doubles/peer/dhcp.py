# SPDX-License-Identifier: BSD-2-Clause
"""The host's DHCP client, which asks once: RFC 4390."""

from __future__ import annotations

import struct
from typing import Final

from ipoibu.conform.packet import Names
from tests.doubles.peer.host import Host
from tests.doubles.peer.ipv4 import Ipv4Part

_HEAD: Final = struct.Struct("!BBBBIHH16s16s192s")


class DhcpPart:
    """Sends a DISCOVER when the helper says so."""

    def __init__(self, host: Host, ipv4: Ipv4Part) -> None:
        self._host = host
        self._ipv4 = ipv4
        host.acts["dhcp"] = self._discover

    def _discover(self, names: Names) -> None:
        host = self._host
        kind, length = 32, 0
        hwaddr = bytes(16)
        if host.deviates("DHCP of an Ethernet"):
            kind, length = 1, 6
        if host.deviates("DHCP with the end of its hardware address"):
            hwaddr = host.hwaddr[-16:]
        flags = 0 if host.deviates("DHCP wants its answer by unicast") else 0x8000
        head = _HEAD.pack(1, kind, length, 0, 0x1234, 0, flags, bytes(16), hwaddr, bytes(192))
        identifier = b"\x3d\x09\xff" + host.hwaddr[-8:]
        if host.deviates("DHCP without a client identifier"):
            identifier = b""
        message = head + b"\x63\x82\x53\x63" + b"\x35\1\1" + identifier + b"\xff"
        datagram = struct.pack("!HHHH", 68, 67, 8 + len(message), 0) + message
        packet = self._ipv4.pack("255.255.255.255", 17, datagram)
        host.send_group("255.255.255.255", 0x0800, packet)
