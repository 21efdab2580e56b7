# SPDX-License-Identifier: BSD-2-Clause
"""The HTTP server of `ipoibu up --metrics`, for Prometheus' scrapes.

The application is prometheus_client's; clients, requests and threads are bounded here, and the client that
keeps us waiting the longest makes room for a new one. The daemon opens the listening socket before its
sandbox, which permits no further one.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import os
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any, Final, NamedTuple, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import IpoibuError, UsageError
from ipoibu.base.limits import DEAF_S, METRICS_CLIENTS_MAX, METRICS_REQUEST_S, METRICS_REQUESTS_MAX
from ipoibu.daemon.metrics.metrics import Observation, registry
from ipoibu.daemon.process.client_places import ClientPlaces
from ipoibu.daemon.process.descriptors import SHORTAGE

_BACKLOG: Final = 128
_FOREVER_S: Final = 86_400.0  # the server's thread need not wake up by itself


class ListenAddress(NamedTuple):
    """The address and port at which the server listens."""

    ip: IpAddress
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `ADDRESS:PORT`, with brackets around an IPv6 address."""
        host, colon, port = text.rpartition(":")
        try:
            ip = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        except ValueError:
            ip = None
        is_bracketed = host.startswith("[") and host.endswith("]")
        if ip is None or not colon or is_bracketed != (ip.version == 6):
            raise UsageError(
                f"{text!r} is no address with a port (expected such as 127.0.0.1:9838 or [::1]:9838)"
            )
        if not port.isdecimal() or not port.isascii() or not 1 <= int(port[:6]) <= 65535:
            raise UsageError(f"{text!r}: a port is a number from 1 to 65535")
        return cls(ip, int(port))

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if self.ip.version == 6 else f"{self.ip}:{self.port}"


class MetricsServer:
    """Listens from its construction on, answers from `start` on.

    `IpoibuError` if the address cannot be had, or prometheus_client is missing.
    """

    def __init__(self, address: ListenAddress) -> None:
        registry(tuple)  # the library is there
        self._listener = _listen(address)
        self._server = _Server(self._listener)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_FOREVER_S,),
            name="ipoibu-metrics",
            daemon=True,
        )

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def start(self, observations: Callable[[], Iterable[Observation]]) -> None:
        """Answer requests by what `observations`, which any thread may call, returns."""
        from prometheus_client import make_wsgi_app

        self._server.set_app(_few_at_a_time(make_wsgi_app(registry(observations))))
        self._thread.start()

    def close(self) -> None:
        """Answer no more. Safe to repeat."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the server's thread
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


def _listen(address: ListenAddress) -> socket.socket:
    family = socket.AF_INET6 if address.ip.version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((str(address.ip), address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        reason = os.strerror(error.errno or 0)
        raise IpoibuError(f"--metrics {address}: cannot listen there: {reason}") from error
    return listener


def _few_at_a_time(app: Callable[..., Any]) -> Callable[..., Any]:
    free = threading.BoundedSemaphore(METRICS_REQUESTS_MAX)

    def limited(*request: Any) -> Any:
        with free:
            return app(*request)

    return limited


class _Handler(WSGIRequestHandler):
    timeout = METRICS_REQUEST_S
    server: _Server

    def parse_request(self) -> bool:
        """The client has sent its request."""
        is_one = super().parse_request()
        self.server.clients.end_of_wait(self.request)
        return is_one

    def setup(self) -> None:
        super().setup()
        self.wfile = _Answer(self.wfile, self.request, self.server.clients)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: scrapes are regular."""

    def address_string(self) -> str:
        """Return the client's address, without asking a name server."""
        return str(self.client_address[0])


class _Answer(io.BufferedIOBase):
    """Writes an answer, for which the client may keep us waiting."""

    def __init__(
        self, inner: io.BufferedIOBase, client: socket.socket, clients: ClientPlaces[socket.socket]
    ) -> None:
        self._inner = inner
        self._client = client
        self._clients = clients

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        with self._clients.waiting(self._client):
            return self._inner.write(data)


class _Server(ThreadingMixIn, WSGIServer):
    """Serves each client on a thread of its own. A client that had to make room leaves its thread at once."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = (
            str(listener.getsockname()[0]),
            self.server_address[1],
        )
        self.setup_environ()
        self.clients = ClientPlaces(METRICS_CLIENTS_MAX, _end)
        self._room = threading.BoundedSemaphore(2 * METRICS_CLIENTS_MAX)
        self._closing = threading.Event()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if SHORTAGE.is_one(error):  # the listener stays readable
                self._closing.wait(DEAF_S)
            raise

    def shutdown(self) -> None:
        self._closing.set()
        super().shutdown()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.clients.enter(request):
            self.clients.begin_to_wait(request)
            if self._room.acquire(timeout=METRICS_REQUEST_S):
                try:
                    super().process_request(request, client_address)
                except RuntimeError:  # the thread could not start
                    self._room.release()
                    raise
                return
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        deadline = threading.Timer(METRICS_REQUEST_S, _end, (request,))
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._room.release()

    def shutdown_request(self, request: Any) -> None:
        self.clients.leave(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away."""


def _end(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
