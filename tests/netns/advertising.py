# SPDX-License-Identifier: BSD-2-Clause
"""A host that advertises itself as a default router, without a daemon."""

from __future__ import annotations

import socket
import struct

from ipoibu.lab.host import Host


def advertise_router(host: Host, flags: int) -> None:
    """A router advertisement with a lifetime of half an hour and these flags, from the host's ib0."""
    advertisement = struct.pack(">BBHBBHII", 134, 0, 0, 64, flags, 1800, 0, 0)
    index = host.interface_index()
    with host.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as raw:
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        raw.sendto(advertisement, ("ff02::1", 0, 0, index))
