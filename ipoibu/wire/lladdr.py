# SPDX-License-Identifier: BSD-2-Clause
"""A peer's hardware address in ARP and in ND options. RFC 4391 §9.1.1."""

from __future__ import annotations

from typing import Final

from ipoibu.base.addr import HWADDR_LEN, MULTICAST_QPN, HwAddr
from ipoibu.base.errors import BadFrame
from ipoibu.wire import Octets

REASONS: Final = frozenset({"lladdr_length", "lladdr_not_unicast"})


def parse_untrusted(raw: Octets) -> HwAddr:
    """Read 20 bytes that must name one host: all unicast to it goes to this queue pair (A4).

    With a group's address, answers would become multicast; with the all-zero address, they would be
    lost. The function keeps the flags octet as received: no value of it is an error (A2).
    """
    if len(raw) != HWADDR_LEN:
        raise BadFrame("lladdr_length")
    hwaddr = HwAddr.unpack(bytes(raw))
    if hwaddr.gid.is_multicast or not any(hwaddr.gid.raw) or hwaddr.qpn in (0, MULTICAST_QPN):
        raise BadFrame("lladdr_not_unicast")
    return hwaddr
