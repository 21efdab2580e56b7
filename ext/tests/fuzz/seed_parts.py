# SPDX-License-Identifier: BSD-2-Clause
"""What the seeds of several fuzzers are made of."""

from __future__ import annotations

import struct
from typing import Any

from scapy.compat import raw
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet

IPV4, IPV6, ARP = b"\x08\x00\0\0", b"\x86\xdd\0\0", b"\x08\x06\0\0"
NO_VNET = bytes(16)


def sized(data: bytes) -> bytes:
    return struct.pack("<H", len(data)) + data


def ip(version: int, upper: Packet, **fields: Any) -> bytes:
    header: Packet = (
        IP(src="10.0.0.9", dst="10.0.0.1", flags="DF", **fields)
        if version == 4
        else IPv6(src="fd00::9", dst="fd00::1", **fields)
    )
    return raw(header / upper)
