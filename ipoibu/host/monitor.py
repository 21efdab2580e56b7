# SPDX-License-Identifier: BSD-2-Clause
"""Detection of possible changes of an interface's link, addresses or routes."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Final

from ipoibu.host.netsocket import RECEIVE_BYTES

# linux/rtnetlink.h
RTMGRP_LINK: Final = 0x1
RTMGRP_IPV4_IFADDR: Final = 0x10
RTMGRP_IPV4_ROUTE: Final = 0x40
RTMGRP_IPV6_IFADDR: Final = 0x100
RTMGRP_IPV6_ROUTE: Final = 0x400
MONITOR_GROUPS: Final = (
    RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE
)


class Monitor:
    """Change notices of links, addresses and routes: hints, never the state itself.

    The kernel drops notices when the socket is full, and IPv4 routes vanish without one when their
    interface goes down or their address is removed. So a notice only means "list again". When a host
    begins or ceases to be a router, the anycast routes of its subnets (RFC 4291 §2.6.1) change.
    """

    def __init__(self, index: int) -> None:
        self._needle = struct.pack("=I", index)
        self._socket = socket.socket(
            socket.AF_NETLINK,
            socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
            socket.NETLINK_ROUTE,
        )
        try:
            self._socket.bind((0, MONITOR_GROUPS))
        except BaseException:
            self._socket.close()
            raise
        self.overruns = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def changed(self) -> bool:
        """Read all waiting notices; True if one may concern the interface, or the kernel dropped
        some."""
        relevant = False
        while True:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                return relevant
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.overruns += 1
                relevant = True
                continue
            relevant = relevant or self._concerns(data)

    def _concerns(self, data: bytes) -> bool:
        # The index stands in one of several places (header, RTA_OIF, each next hop of a multipath
        # route), always 4-byte aligned. A match elsewhere costs one needless listing, no more.
        at = data.find(self._needle)
        while at >= 0:
            if at % 4 == 0:
                return True
            at = data.find(self._needle, at + 1)
        return False
