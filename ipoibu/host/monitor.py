# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's notices of changes of links, addresses, groups, routes, rules and nexthop objects."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ipoibu.base.limits import NOTICE_BUFFER_BYTES
from ipoibu.host import receive_buffer
from ipoibu.host.namespace import HERE, Namespace
from ipoibu.host.netsocket import RECEIVE_BYTES, SOL_NETLINK, split

# linux/rtnetlink.h
RTMGRP_LINK: Final = 0x1
RTMGRP_IPV4_IFADDR: Final = 0x10
RTMGRP_IPV4_ROUTE: Final = 0x40
RTMGRP_IPV6_IFADDR: Final = 0x100
RTMGRP_IPV6_ROUTE: Final = 0x400
RTMGRP_IPV4_RULE: Final = 0x80
RTMGRP_IPV6_RULE: Final = 1 << 18
RTMGRP_NEXTHOP: Final = 1 << 31
MONITOR_GROUPS: Final = (
    RTMGRP_LINK
    | RTMGRP_IPV4_IFADDR
    | RTMGRP_IPV4_ROUTE
    | RTMGRP_IPV4_RULE
    | RTMGRP_IPV6_IFADDR
    | RTMGRP_IPV6_ROUTE
    | RTMGRP_IPV6_RULE
    | RTMGRP_NEXTHOP
)
RTNLGRP_IPV4_ROUTE: Final = 7  # the numbers of two of these groups
RTNLGRP_IPV6_ROUTE: Final = 11
NETLINK_ADD_MEMBERSHIP: Final = 1  # linux/netlink.h
NETLINK_LISTEN_ALL_NSID: Final = 8
_INDEX_AT: Final = 20  # ifi_index and ifa_index: behind 16 bytes of nlmsghdr and 4 further bytes
_FLAGS_AT: Final = 24  # ifi_flags


class Notice(NamedTuple):
    """One message: `kind` is its RTM_*, `flags` its NLM_F_*; it is at `offset` of `data`."""

    kind: int
    flags: int
    data: bytes
    offset: int

    @property
    def interface(self) -> int:
        """The index of the interface in a notice of a link, an address or a multicast group."""
        return int(struct.unpack_from("=I", self.data, self.offset + _INDEX_AT)[0])

    @property
    def link_flags(self) -> int:
        """The IFF_* of the interface in a notice of a link."""
        return int(struct.unpack_from("=I", self.data, self.offset + _FLAGS_AT)[0])


class Monitor:
    """A socket to which the kernel sends its notices. `overruns` counts how often notices got lost.

    `mask` has a bit for each wanted kind of notices (RTMGRP_*), `numbers` the RTNLGRP_* of kinds that old
    kernels may lack; those that this kernel lacks are `unknown`.
    """

    def __init__(
        self,
        mask: int = MONITOR_GROUPS,
        numbers: Sequence[int] = (),
        namespace: Namespace = HERE,
    ) -> None:
        self._socket, self._number = namespace.notice_socket()
        self._socket.setblocking(False)
        try:
            receive_buffer.enlarge(self._socket, NOTICE_BUFFER_BYTES)
            self._socket.bind((0, mask))
            self.unknown = frozenset(number for number in numbers if not self._add(number))
        except BaseException:
            self._socket.close()
            raise
        self.overruns = 0

    def _add(self, number: int) -> bool:
        try:
            self._socket.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, number)
        except OSError:
            return False
        return True

    def listen(self, *numbers: int) -> None:
        """Take the notices of further groups (RTNLGRP_*) from now on."""
        for number in numbers:
            self._add(number)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def notices(self, most: int = 1 << 30) -> Iterator[Notice]:
        """Yield the waiting notices, from at most `most` datagrams; after an overrun none."""
        for _ in range(most):
            data = self._receive()
            if data is None:
                return
            for offset, kind, flags, _ in split(data):
                yield Notice(kind, flags, data, offset)

    def _receive(self) -> bytes | None:
        """Return the next datagram, if there is one; an empty one instead of another namespace's.

        After an overrun the kernel drops further notices without another error until the socket is empty:
        discard all waiting notices, because the caller has to list everything again.
        """
        overruns = self.overruns
        while True:
            try:
                data, is_ours = self._receive_next()
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.overruns += 1
                continue
            if self.overruns == overruns:
                return data if is_ours else b""

    def _receive_next(self) -> tuple[bytes, bool]:
        """Return the next datagram, and whether it is of our namespace."""
        if self._number is None:
            return self._socket.recv(RECEIVE_BYTES), True
        data, ancillary, _, _ = self._socket.recvmsg(RECEIVE_BYTES, socket.CMSG_SPACE(4))
        marks = [
            struct.unpack_from("=i", mark)[0]
            for level, kind, mark in ancillary
            if (level, kind) == (SOL_NETLINK, NETLINK_LISTEN_ALL_NSID)
        ]
        return data, marks == [self._number]
