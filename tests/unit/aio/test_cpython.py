# SPDX-License-Identifier: BSD-2-Clause
"""CPython's own tests of asyncio's datagrams, over `ipoibu.aio`: Debian has them in libpython3.N-testsuite.

A new test of a later CPython runs unless it is named here with the reason why it cannot.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import pytest

from ipoibu.aio import DatagramTransport, with_datagrams
from tests.doubles.endpoint_pair import hosts

LIBRARY: Final = "test.test_asyncio"
# The endpoints have IPv6, whatever this machine's kernel has.
pytest.importorskip("test.support.socket_helper").IPV6_ENABLED = True
base_events: Any = pytest.importorskip(f"{LIBRARY}.test_base_events")
events: Any = pytest.importorskip(f"{LIBRARY}.test_events")
selector_events: Any = pytest.importorskip(f"{LIBRARY}.test_selector_events")
utils: Any = pytest.importorskip(f"{LIBRARY}.utils")

THEIR_SOCKET: Final = "looks at calls of a socket of the kernel's"
OF_TRANSPORTS: Final = {
    "test_read_ready_err": THEIR_SOCKET,
    "test_read_ready_tryagain": THEIR_SOCKET,
    "test_sendto_closing": "counts by a private number what is sent after the end",
    "test_sendto_exception": "the same",
}
if sys.version_info < (3, 13):
    OF_TRANSPORTS["test_sendto_no_data"] = "we send an empty datagram, as Python 3.13 does"
OF_CREATION: Final = {
    "test_create_datagram_endpoint_cant_bind": THEIR_SOCKET,
    "test_create_datagram_endpoint_ip_addr": THEIR_SOCKET,
    "test_create_datagram_endpoint_nosoreuseport": THEIR_SOCKET,
    "test_create_datagram_endpoint_setblk_err": THEIR_SOCKET,
    "test_create_datagram_endpoint_socket_err": THEIR_SOCKET,
    "test_create_datagram_endpoint_sockopts": "asks for the socket of a transport; we have none",
    "test_datagram_send_to_non_listening_address": "sends to addresses of the kernel's sockets",
}


def only(cls: type, of: str, without: dict[str, str]) -> Callable[[type], type]:
    """Take from CPython's class those tests alone whose names contain `of`, without some."""

    def choose(ours: type) -> type:
        for name in dir(cls):
            if name.startswith("test_") and (of not in name or name in without):
                setattr(ours, name, None)
        return ours

    return choose


class Named(DatagramTransport):
    """Our transport, with asyncio's names for its parts."""

    _sock: Any

    @property
    def _buffer(self) -> Any:
        return self._waiting

    @property
    def _conn_lost(self) -> int:
        return int(self._is_lost)

    @property
    def _closing(self) -> bool:
        return self._is_closing

    @_closing.setter
    def _closing(self, closing: bool) -> None:
        self._is_closing = closing

    def _sendto_ready(self) -> None:
        self._send_waiting()
        if self._is_closing:
            utils.run_briefly(self._loop)

    def _read_ready(self) -> None:
        try:
            data, address = self._sock.recvfrom(65535)
        except OSError as problem:
            self._note_error(problem)
        else:
            self._deliver([data], address)

    def _fail(self, problem: BaseException, *message: str) -> None:
        self._fatal_error(problem, *message)

    def _fatal_error(self, problem: BaseException, *message: str) -> None:
        super()._fail(problem, *message)


class Queue:
    """Takes the place of a socket on an endpoint: hands what is sent to the socket of a test."""

    def __init__(self, sock: Any, is_connected: bool) -> None:
        self._sock = sock
        self._is_connected = is_connected
        self.close = sock.close

    def send(self, data: Any, address: Any) -> bool:
        try:
            if self._is_connected:
                self._sock.send(data)
            else:
                self._sock.sendto(data, address)
        except BlockingIOError:
            return False
        return True


@only(selector_events.SelectorDatagramTransportTests, "test_", OF_TRANSPORTS)
class TestTransport(selector_events.SelectorDatagramTransportTests):  # type: ignore[misc]
    """Of asyncio's transport on a socket."""

    def datagram_transport(self, address: Any = None) -> Named:
        loop = self.loop
        transport = Named(
            loop,
            Queue(self.sock, address is not None),  # type: ignore[arg-type]
            self.protocol,
            receiver=mock.Mock(),
            made=loop.create_future(),
            extra={"sockname": ("0.0.0.0", 1), "peername": address},
        )
        transport._sock = self.sock
        self.addCleanup(transport.abort)
        utils.run_briefly(loop)
        loop.writers = Retries(transport)
        loop.assert_writer = loop.writers.check
        return transport


class Retries(dict[int, Any]):
    """The loop's writers: true while the transport has something to send again."""

    def __init__(self, transport: Named) -> None:
        self._transport = transport

    def __bool__(self) -> bool:
        return self._transport._retry is not None

    def check(self, fd: int, callback: object) -> None:
        assert self


class OnEndpoints:
    """Lends the loop of a test sockets on two endpoints: those with a local address are bob's.

    127.0.0.1 and ::1 are the endpoint's own addresses, of a socket that is handed over, too.
    """

    loop: Any
    addCleanup: Any

    def lend(self) -> None:
        loop = self.loop
        pair = hosts()
        alice, bob = loop.run_until_complete(pair.__aenter__())
        self.addCleanup(lambda: loop.run_until_complete(pair.__aexit__(None, None, None)))
        makers = []
        for endpoint in (alice, bob):
            lent = with_datagrams(loop, endpoint)
            lent.__enter__()
            self.addCleanup(lent.__exit__, None, None, None)
            makers.append(loop.create_datagram_endpoint)

        async def create(
            factory: Any, local_addr: Any = None, remote_addr: Any = None, **rest: Any
        ) -> Any:
            number = 1 if local_addr is None and "sock" not in rest else 2
            if isinstance(rest.get("sock"), socket.socket):
                rest["sock"] = standing_for(rest["sock"], number)
            ends = (own_address(local_addr, number), own_address(remote_addr, number))
            make: Callable[..., Awaitable[Any]] = makers[number - 1]
            return await make(factory, *ends, **rest)

        loop.create_datagram_endpoint = create


def own_address(address: Any, number: int) -> Any:
    """Return an address of the endpoint with this number in place of a loopback one."""
    own = {"127.0.0.1": f"10.0.0.{number}", "::1": f"fd00::{number}"}
    if isinstance(address, tuple) and address[0] in own:
        return (own[address[0]], *address[1:])
    return address


def standing_for(sock: socket.socket, number: int) -> Any:
    if sock.family != socket.AF_INET or sock.type != socket.SOCK_DGRAM:
        return sock
    sock_name = own_address(sock.getsockname(), number)
    return SimpleNamespace(
        family=sock.family,
        type=sock.type,
        getsockopt=sock.getsockopt,
        getsockname=lambda: sock_name,
        getpeername=sock.getpeername,
        close=sock.close,
    )


@only(base_events.BaseEventLoopWithSelectorTests, "datagram", OF_CREATION)
class TestCreation(OnEndpoints, base_events.BaseEventLoopWithSelectorTests):  # type: ignore[misc]
    """Of the loop's arguments and errors."""

    def setUp(self) -> None:
        super().setUp()
        self.lend()


@only(events.EventLoopTestsMixin, "datagram", OF_CREATION)
class TestExchange(OnEndpoints, events.EventLoopTestsMixin, utils.TestCase):  # type: ignore[misc]
    """Of datagrams that cross."""

    def create_event_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop()

    def setUp(self) -> None:
        super().setUp()
        self.lend()
