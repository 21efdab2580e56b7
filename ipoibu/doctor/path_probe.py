# SPDX-License-Identifier: BSD-2-Clause
"""How long a UDP datagram to another host may be, and whether a port there refuses it: by probing.

A datagram to a UDP port where nothing listens comes back as an ICMP error, which shows that it has arrived.
Routers answer a datagram that is too long by an ICMP error with their MTU; where a firewall drops those, only
the arrival of shorter ones shows the MTU.
"""

from __future__ import annotations

import errno
import select
import socket
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.closing import Closing

CLOSED_PORT: Final = 33434  # where traceroute begins: nothing listens there
WAIT_S: Final = 1.2  # Linux sends an ICMP error a second to one host, after a burst
TRIES: Final = 2
_TRIES_KNOWN: Final = 8  # each router on the way may have a smaller MTU than the one before
_UDP_LEN: Final = 8
_IP_LEN: Final = {4: 20, 6: 40}
_SMALLEST: Final = {4: 576, 6: 1280}  # bytes, RFC 791 and RFC 8200: every way carries them
_MTUS: Final = (1000, 1200, 1280, 1320, 1380, 1400, 1420, 1450, 1480, 1492, 1500, 4200, 8900, 9000)
# <linux/in.h>, <linux/in6.h>: never fragment, and heed what routers say
_MTU_DISCOVER: Final = {4: (socket.IPPROTO_IP, 10), 6: (socket.IPPROTO_IPV6, 23)}
_MTU: Final = {4: (socket.IPPROTO_IP, 14), 6: (socket.IPPROTO_IPV6, 24)}
_PMTUDISC_DO: Final = 2


@dataclass(frozen=True, slots=True)
class PathMtu:
    """The MTU of the way in bytes; `is_proved`: datagrams of this length arrived."""

    mtu_bytes: int
    is_proved: bool


class PathProbe(Closing):
    """Sends datagrams to one port of a host; `scope` is the interface of a link-local address. `OSError`."""

    def __init__(self, host: IpAddress, scope: int, port: int) -> None:
        self._version = host.version
        family = socket.AF_INET if host.version == 4 else socket.AF_INET6
        self._sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._sock.setsockopt(*_MTU_DISCOVER[host.version], _PMTUDISC_DO)
            self._sock.connect((str(host), port) + ((0, scope) if host.version == 6 else ()))
        except BaseException:
            self._sock.close()
            raise

    def close(self) -> None:
        self._sock.close()

    @property
    def known_mtu_bytes(self) -> int:
        """The MTU of the way as the kernel knows it: the net device's, or what a router said."""
        return self._sock.getsockopt(*_MTU[self._version])

    def refuses(self, mtu_bytes: int) -> bool:
        """Send a datagram that fills this MTU; return whether the host says that nothing listens there."""
        room = bytes(max(0, mtu_bytes - _IP_LEN[self._version] - _UDP_LEN))
        try:
            self._sock.send(room)
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:  # the answer to the datagram before
                return True
            if error.errno == errno.EMSGSIZE:
                return False
            raise
        select.select([self._sock], [], [], WAIT_S)
        return self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


def path_mtu(host: IpAddress, scope: int) -> PathMtu:
    """Find the MTU of the way to the host, in 15 s where firewalls drop ICMP errors. `OSError`: no way."""
    with PathProbe(host, scope, CLOSED_PORT) as probe:
        for _ in range(_TRIES_KNOWN):
            known = probe.known_mtu_bytes
            if any(probe.refuses(known) for _ in range(TRIES)):
                return PathMtu(known, is_proved=True)
            if probe.known_mtu_bytes == known:
                break
        sizes = [_SMALLEST[host.version], *(it for it in _MTUS if it > _SMALLEST[host.version])]
        if not any(probe.refuses(sizes[0]) for _ in range(TRIES)):
            return PathMtu(known, is_proved=False)
        arrived, lost = 0, len([it for it in sizes if it < known])
        while lost - arrived > 1:
            middle = (arrived + lost) // 2
            if any(probe.refuses(sizes[middle]) for _ in range(TRIES)):
                arrived = middle
            else:
                lost = middle
        return PathMtu(sizes[arrived], is_proved=True)
