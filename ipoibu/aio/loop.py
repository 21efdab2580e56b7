# SPDX-License-Identifier: BSD-2-Clause
"""Lends an event loop the UDP of an endpoint, for libraries that ask the loop for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from ipoibu.aio.creation import create_datagram_endpoint

if TYPE_CHECKING:
    from ipoibu.endpoint.api.endpoint import Endpoint


@contextmanager
def with_datagrams(loop: asyncio.AbstractEventLoop, endpoint: Endpoint) -> Iterator[None]:
    """Make `loop.create_datagram_endpoint` open sockets on the endpoint, until the end of the block.

    A library that calls it runs unchanged. Of blocks inside each other the innermost counts. Sockets on
    loopback addresses, and those of other families than IPv4 and IPv6 stay the kernel's. Of a socket that
    the caller hands over (`sock=`) we take its ends, SO_REUSEPORT, SO_BROADCAST and IPV6_V6ONLY, and close
    it. The loop keeps `getaddrinfo`, streams and everything else. `TypeError` for a loop of compiled code,
    such as uvloop's, whose methods cannot be replaced.
    """
    kernel = loop.create_datagram_endpoint
    outer = getattr(loop, "__dict__", {}).get(
        "create_datagram_endpoint"
    )  # of a block around this one

    async def create(
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        local_addr: Any = None,
        remote_addr: Any = None,
        *,
        sock: socket.socket | None = None,
        **options: Any,
    ) -> Any:
        ends = (local_addr, remote_addr)
        if sock is not None and (any(ends) or any(options.values())):
            return await kernel(protocol_factory, *ends, sock=sock, **options)  # a `ValueError`
        if sock is not None:
            ends = (_cut(sock.getsockname()), _cut(_peer(sock)))
        elif not any(ends) and options.get("family") not in (socket.AF_INET, socket.AF_INET6):
            return await kernel(protocol_factory, *ends, **options)
        if not all(it is None or _is_ours(it) for it in ends) or not _is_udp(sock):
            if sock is not None:
                return await kernel(protocol_factory, sock=sock, **options)
            return await kernel(protocol_factory, *ends, **options)
        if sock is not None:
            options = {
                "family": sock.family,
                "reuse_port": bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)),
                "allow_broadcast": bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)),
                "v6only": sock.family == socket.AF_INET6
                and bool(sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)),
            }
        made = await create_datagram_endpoint(endpoint, protocol_factory, *ends, **options)
        if sock is not None:
            sock.close()
        return made

    try:
        loop.create_datagram_endpoint = create  # type: ignore[method-assign]
    except AttributeError as problem:
        raise TypeError(f"{type(loop).__name__} lets nobody replace its methods") from problem
    try:
        yield
    finally:
        if outer is None:
            del loop.create_datagram_endpoint
        else:
            loop.create_datagram_endpoint = outer  # type: ignore[method-assign]


def _cut(address: Any) -> Any:
    """Return an address without the flow and the scope of IPv6."""
    return address[:2] if isinstance(address, tuple) else address


def _peer(sock: socket.socket) -> Any:
    with suppress(OSError):
        return sock.getpeername()
    return None


def _is_udp(sock: socket.socket | None) -> bool:
    if sock is None:
        return True
    return sock.type == socket.SOCK_DGRAM and sock.family in (socket.AF_INET, socket.AF_INET6)


def _is_ours(address: Any) -> bool:
    """Return whether an address is none of the kernel alone: loopback, or a path in the file system."""
    if not isinstance(address, tuple) or len(address) < 2:
        return False
    host = address[0]
    if host in (None, "", "<broadcast>"):
        return True
    if host == "localhost":
        return False
    try:
        ip = ip_address(str(host).partition("%")[0])
    except ValueError:
        return True  # a name
    mapped = getattr(ip, "ipv4_mapped", None)
    return not (mapped or ip).is_loopback
