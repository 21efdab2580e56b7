# SPDX-License-Identifier: BSD-2-Clause
"""The options and groups of a socket, for whoever owns one."""

from __future__ import annotations

from ipoibu.aio.datagram_socket import Socket
from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import UsageError
from ipoibu.endpoint.api.arguments import address_of, group_of


class SocketCalls:
    """The part of a transport and of a blocking socket that sets options.

    Errors are those of the kernel's options: `OSError` with EADDRINUSE (joined already), EADDRNOTAVAIL (not
    joined, or a source that is not listed), EINVAL (the group has a filter of the other kind), ENOBUFS (256
    groups, or 64 sources). `join` and `leave` wait for the endpoint's engine, about a tenth of a
    millisecond.
    """

    _socket: Socket

    def configure(
        self,
        *,
        hop_limit: int | None = None,
        multicast_hops: int | None = None,
        multicast_loop: bool | None = None,
        tos: int | None = None,
        dont_fragment: bool | None = None,
        broadcast: bool | None = None,
    ) -> None:
        """Change options; None leaves one as it is.

        `hop_limit` is 1 to 255 and begins with 64, `multicast_hops` 0 to 255 and 1. `tos` is the type of
        service or traffic class, 0 to 255. `multicast_loop`: our own sockets hear what this one sends to
        their groups, which is so in the beginning. `dont_fragment`: a datagram that is longer than the
        path's MTU is EMSGSIZE, and the socket hears when the MTU is smaller than we knew; without it we cut
        the datagram. `broadcast`: the socket may send to all hosts.
        """
        socket = self._socket
        if hop_limit is not None:
            socket.hop_limit = _octet(hop_limit, "hop_limit", 1)
        if multicast_hops is not None:
            socket.multicast_hops = _octet(multicast_hops, "multicast_hops", 0)
        if multicast_loop is not None:
            socket.multicast_loop = multicast_loop
        if tos is not None:
            socket.tos = _octet(tos, "tos", 0)
        if dont_fragment is not None:
            socket.dont_fragment = dont_fragment
        if broadcast is not None:
            socket.broadcast = broadcast
        socket.note_change()

    def join(self, group: IpAddress | str, source: IpAddress | str | None = None) -> None:
        """Receive a multicast group, from one more `source` or from all hosts (RFC 3678)."""
        self._socket.groups.join(group_of(group), _source(source))
        self._socket.note_change()

    def leave(self, group: IpAddress | str, source: IpAddress | str | None = None) -> None:
        """Receive the group no longer, or no longer from this source."""
        self._socket.groups.leave(group_of(group), _source(source))
        self._socket.note_change()

    def block(self, group: IpAddress | str, source: IpAddress | str) -> None:
        """Refuse this source of a group that was joined for all hosts."""
        self._socket.groups.block(group_of(group), address_of(source))
        self._socket.note_change()

    def unblock(self, group: IpAddress | str, source: IpAddress | str) -> None:
        """Receive from a blocked source again."""
        self._socket.groups.unblock(group_of(group), address_of(source))
        self._socket.note_change()


def _source(source: IpAddress | str | None) -> IpAddress | None:
    return None if source is None else address_of(source)


def _octet(value: int, name: str, least: int) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{name} is a number, not {value!r}")
    if not least <= value <= 255:
        raise UsageError(f"{name} {value}: expected {least} to 255")
    return value
