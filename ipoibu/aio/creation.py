# SPDX-License-Identifier: BSD-2-Clause
"""Makes sockets on an endpoint: `create_datagram_endpoint`, with the arguments of asyncio's."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ipoibu.aio.address import WILDCARDS, Place, SocketAddress, error, place_of
from ipoibu.aio.datagram_socket import Socket
from ipoibu.aio.host import Host, host_of
from ipoibu.aio.loop_receiver import LoopReceiver
from ipoibu.aio.transport import DatagramTransport

if TYPE_CHECKING:
    from ipoibu.endpoint.api.endpoint import Endpoint

Protocol = TypeVar("Protocol", bound=asyncio.BaseProtocol)
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_Ends = tuple[int, SocketAddress | None, SocketAddress | None]  # family, local, remote


async def create_datagram_endpoint(
    endpoint: Endpoint,
    protocol_factory: Callable[[], Protocol],
    local_addr: SocketAddress | None = None,
    remote_addr: SocketAddress | None = None,
    *,
    family: int = 0,
    proto: int = 0,
    flags: int = 0,
    reuse_port: bool | None = None,
    allow_broadcast: bool | None = None,
    v6only: bool = False,
) -> tuple[DatagramTransport, Protocol]:
    """Return a transport and a protocol for UDP on an endpoint without a TUN.

    The arguments and errors are those of `asyncio.loop.create_datagram_endpoint`. Names are resolved by the
    loop; a local address is one of the endpoint's, a wildcard, a group or a broadcast address, and port 0
    is an ephemeral one. With `allow_broadcast` a socket is not connected to `remote_addr`: it sends there,
    and hears all hosts. `reuse_port`: several sockets with it share a port; each flow goes to one of them,
    and a datagram to a group to all. `v6only`: a wildcard socket of IPv6 takes no IPv4.

    While an endpoint has sockets, they take all its packets: `recv` finds none, and the endpoint answers
    ICMP echo. All sockets of an endpoint are on one event loop, on whose thread every call is made; else
    `UsageError`. `Closed` if the endpoint is not open. See docs/use/aio.md.
    """
    loop = asyncio.get_running_loop()
    ends = await _candidates(loop, local_addr, remote_addr, family=family, proto=proto, flags=flags)
    host = host_of(endpoint)
    receiver = LoopReceiver.of(host, loop)
    problems: list[OSError] = []
    try:
        for each in ends:
            try:
                made = _socket(
                    host,
                    each,
                    reuse_port=bool(reuse_port),
                    broadcast=bool(allow_broadcast),
                    v6only=v6only,
                )
                break
            except OSError as problem:
                problems.append(problem)
        else:
            raise problems[0]
        remote = each[2] if allow_broadcast else None
        return await _transport(loop, endpoint, made, protocol_factory, receiver, remote=remote)
    finally:
        receiver.release()


def _socket(host: Host, ends: _Ends, **options: bool) -> Socket:
    family, local, remote = ends
    made = Socket(host, family, **options)
    wildcard = Place(WILDCARDS[family], 0)
    made.bind(wildcard if local is None else place_of(local, family))
    if remote is not None and not options["broadcast"]:
        try:
            made.connect(place_of(remote, family))
        except BaseException:
            made.close()
            raise
    return made


async def _transport(
    loop: asyncio.AbstractEventLoop,
    endpoint: Endpoint,
    made: Socket,
    protocol_factory: Callable[[], Protocol],
    receiver: LoopReceiver,
    *,
    remote: SocketAddress | None,
) -> tuple[DatagramTransport, Protocol]:
    try:
        protocol = protocol_factory()
    except BaseException:
        made.close()
        raise
    begun = loop.create_future()
    extra = {
        "sockname": made.sockname,
        "peername": made.peername,
        "socket": None,
        "endpoint": endpoint,
    }
    transport = DatagramTransport(
        loop, made, protocol, receiver=receiver, made=begun, extra=extra, remote=remote
    )
    try:
        await begun
    except BaseException:
        transport.close()
        raise
    return transport, protocol


async def _candidates(
    loop: asyncio.AbstractEventLoop,
    local: SocketAddress | None,
    remote: SocketAddress | None,
    **hints: int,
) -> list[_Ends]:
    """Return the families with the ends that they have, in the order of the resolver."""
    if local is None and remote is None:
        if hints["family"] not in _FAMILIES:
            raise ValueError("unexpected address family")
        return [(hints["family"], None, None)]
    found: dict[int, dict[str, SocketAddress]] = {}
    for name, address in (("local", local), ("remote", remote)):
        if address is None:
            continue
        if not isinstance(address, tuple) or len(address) != 2:
            raise TypeError("2-tuple is expected")
        for of_family, resolved in await _resolve(loop, address, **hints):
            found.setdefault(of_family, {}).setdefault(name, resolved)
    ends = [
        (of_family, pair.get("local"), pair.get("remote"))
        for of_family, pair in found.items()
        if not (local and "local" not in pair) and not (remote and "remote" not in pair)
    ]
    if not ends:
        raise ValueError("can not get address information")
    return ends


async def _resolve(
    loop: asyncio.AbstractEventLoop, address: SocketAddress, *, family: int, proto: int, flags: int
) -> list[tuple[int, Any]]:
    host, port = address
    if host is None or host == "":
        known = [it for it in _FAMILIES if family in (0, it)]
        return [(it, (str(WILDCARDS[it]), port)) for it in known]
    if host == "<broadcast>":
        return [(socket.AF_INET, ("255.255.255.255", port))]
    infos = await loop.getaddrinfo(
        host, port, family=family, type=socket.SOCK_DGRAM, proto=proto, flags=flags
    )
    if not infos:
        raise error(errno.EADDRNOTAVAIL, "getaddrinfo() returned empty list")
    return [(info[0], info[4]) for info in infos if info[0] in _FAMILIES]
