# SPDX-License-Identifier: BSD-2-Clause
"""A TCP connection to one host of a unicast link, which never blocks and reads whole frames."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import secrets
import select
import socket
from typing import Final, Self

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import LinkError
from ipoibu.base.limits import UNICAST_SILENCE_S, UNICAST_UNSENT_MAX
from ipoibu.fabric.mesh.peer_key import PeerKey
from ipoibu.wire.mesh import Locator
from ipoibu.wire.mesh_key import NONCE_LEN, Denial, KeyExchange
from ipoibu.wire.mesh_stream import FrameKind, FrameReader, frame

ROOM: Final = select.EPOLLIN | select.EPOLLOUT
_READ_BYTES: Final = 65536
_PROBES: Final = 3
_PASSING: Final = (errno.EAGAIN, errno.EINTR, errno.EINPROGRESS)


class Stream:
    """One connection, for one thread at a time. An `OSError` of a method ends the connection.

    With a key, both sides send `put_nonce` before other frames; then every frame has a tag.
    """

    def __init__(
        self,
        sock: socket.socket,
        key: PeerKey | None,
        *,
        is_ours: bool,
        place: IpAddress | Locator | None = None,
    ) -> None:
        """`is_ours`: we dial, and the connection is not made yet. `place`: the other host, for the log; by
        default the address from which it connects."""
        self._sock = sock
        self._is_connected = not is_ours
        self._exchange: KeyExchange | None = None
        if key is not None:
            nonce = secrets.token_bytes(NONCE_LEN)
            self._exchange = KeyExchange(key.secret, nonce, is_ours=is_ours)
        self.place = place or self.source
        self._reader = FrameReader(self._exchange)
        self._unsent = bytearray()
        # The kernel detects that the other host is gone: by probes, or by data without an answer.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, UNICAST_SILENCE_S // 2),
            (socket.TCP_KEEPINTVL, UNICAST_SILENCE_S // (2 * _PROBES)),
            (socket.TCP_KEEPCNT, _PROBES),
            (socket.TCP_USER_TIMEOUT, 1000 * UNICAST_SILENCE_S),
            (socket.TCP_NODELAY, 1),
        ):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)

    @classmethod
    def dial(cls, locator: Locator, scope: int, key: PeerKey | None) -> Self:
        """Begin to connect; the stream becomes writable when the attempt has succeeded or failed."""
        is_v6 = locator.ip.version == 6
        family = socket.AF_INET6 if is_v6 else socket.AF_INET
        target = (str(locator.ip), locator.port) + ((0, scope) if is_v6 else ())
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            error = sock.connect_ex(target)
            if error not in (0, errno.EINPROGRESS):
                raise OSError(error, os.strerror(error))
            return cls(sock, key, is_ours=True, place=locator)
        except BaseException:
            sock.close()
            raise

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def has_key(self) -> bool:
        return self._exchange is not None

    @property
    def source(self) -> IpAddress:
        """The address of the other host, without scope."""
        return unmapped(str(self._sock.getpeername()[0]))

    @property
    def awaits_room(self) -> bool:
        """Return whether the owner has to call `writable` when the stream becomes writable."""
        return not self._is_connected or bool(self._unsent)

    def writable(self) -> bool:
        """Send the waiting bytes; return whether the connection has just been established."""
        is_new = not self._is_connected
        if is_new:
            error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._is_connected = True
        self._send()
        return is_new

    def put(self, kind: FrameKind, body: bytes) -> None:
        """Send a frame, now or when there is room."""
        seal = self._exchange.seal if self._exchange is not None else None
        self._unsent += frame(kind, body, seal)
        if len(self._unsent) > UNICAST_UNSENT_MAX:
            raise OSError(errno.ENOBUFS, "the peer does not read")
        if self._is_connected:
            self._send()

    def put_nonce(self) -> None:
        assert self._exchange is not None, "has_key"
        self.put(FrameKind.NONCE, self._exchange.ours)

    def deny(self, denial: Denial) -> None:
        """Send the other host the reason why we end the stream, if the stream takes it."""
        with contextlib.suppress(OSError):  # the host is gone
            self.put(FrameKind.DENIAL, bytes((denial,)))

    def take_untrusted(self) -> list[tuple[FrameKind, bytes]] | None:
        """Return the frames that have arrived; None at the end of the stream. `BadFrame` for garbage."""
        try:
            data = self._sock.recv(_READ_BYTES)
        except OSError as error:
            if error.errno in _PASSING:
                return []
            raise
        return list(self._reader.frames_untrusted(data)) if data else None

    def close(self) -> None:
        self._sock.close()

    def _send(self) -> None:
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except OSError as error:
                if error.errno in _PASSING:
                    return
                raise
            del self._unsent[:sent]


def unmapped(text: str) -> IpAddress:
    """Read an address as a socket for both families shows it."""
    ip = ipaddress.ip_address(text.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return mapped or ip


def listener(port: int, place: str) -> socket.socket:
    """Listen on a TCP port for both families, or for IPv4 where the kernel has no IPv6; `LinkError`."""
    with contextlib.ExitStack() as undo:
        try:
            if socket.has_dualstack_ipv6():
                sock = undo.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_STREAM))
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            else:
                sock = undo.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(("", port))
            sock.listen(socket.SOMAXCONN)
        except OSError as error:
            why = error.strerror or str(error)
            raise LinkError(
                f"{place}: TCP port {port} for the peers: {why}; choose another one: --mesh-port"
            ) from error
        undo.pop_all()
        return sock
