# SPDX-License-Identifier: BSD-2-Clause
"""A blocking UDP socket on an endpoint, with batches."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self

from ipoibu.aio.address import WILDCARDS, Place, SocketAddress, error, place_of
from ipoibu.aio.datagram_socket import Socket
from ipoibu.aio.host import host_of
from ipoibu.aio.socket_calls import SocketCalls
from ipoibu.aio.thread_receiver import Datagram, Mailbox, ThreadReceiver
from ipoibu.base.limits import AIO_BATCH, AIO_RETRY_S

if TYPE_CHECKING:
    from ipoibu.endpoint.api.endpoint import Endpoint

Payload = bytes | bytearray | memoryview


class UdpSocket(SocketCalls):
    """UDP for threads: any thread may call, and several may wait.

    `local_addr` and `remote_addr` are tuples of an IP address as text and a port, as in
    `create_datagram_endpoint`; `family` counts without them. All sockets of an endpoint block, or all are on
    an event loop, else `UsageError`. Times are in seconds. Errors are `OSError` as by the kernel's sockets;
    of a connected socket, ICMP errors come out of the next call that receives. `Closed` if the endpoint is
    not open. See docs/use/aio.md.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        local_addr: SocketAddress | None = None,
        remote_addr: SocketAddress | None = None,
        *,
        family: int = socket.AF_INET,
        reuse_port: bool = False,
        allow_broadcast: bool = False,
        v6only: bool = False,
    ) -> None:
        for address in (remote_addr, local_addr):
            if address is not None:
                family = socket.AF_INET6 if ":" in str(address[0]) else socket.AF_INET
        host = host_of(endpoint)
        self._endpoint = endpoint
        self._is_closed = False
        with host.starting:  # no other thread ends the receiver meanwhile
            self._receiver = ThreadReceiver.of(host)
            self._mailbox = Mailbox(host.counts)
            self._socket = Socket(
                host,
                family,
                reuse_port=reuse_port,
                broadcast=allow_broadcast,
                v6only=v6only,
            )
            self._socket.on_datagrams = self._mailbox.put
            self._socket.on_error = self._socket.on_lost = self._mailbox.note_problem
            try:
                with self._receiver.lock:
                    self._bind(local_addr, remote_addr)
            except BaseException:
                self._receiver.release()
                raise

    def _bind(self, local: SocketAddress | None, remote: SocketAddress | None) -> None:
        family = self._socket.family
        wildcard = Place(WILDCARDS[family], 0)
        self._socket.bind(wildcard if local is None else place_of(local, family))
        if remote is not None:
            try:
                self._socket.connect(place_of(remote, family))
            except BaseException:
                self._socket.close()
                raise

    def getsockname(self) -> SocketAddress:
        return self._socket.sockname

    def getpeername(self) -> SocketAddress:
        """Return the peer of a connected socket; ENOTCONN for another one."""
        name = self._socket.peername
        if name is None:
            raise error(errno.ENOTCONN)
        return name

    def send(self, data: Payload) -> None:
        """Send a datagram to the peer of a connected socket; wait for room in the endpoint's queue."""
        self.send_many((data,))

    def sendto(self, data: Payload, address: SocketAddress) -> None:
        """Send a datagram to an address; wait for room in the endpoint's queue."""
        self.send_many((data,), address)

    def send_many(self, payloads: Iterable[Payload], address: SocketAddress | None = None) -> int:
        """Send datagrams to one address, in order, or to the peer; wait for room, and return their number.

        A batch costs little more than a datagram. An error ends it: the datagrams before it are sent.
        """
        batch = [bytes(it) if isinstance(it, memoryview) else it for it in payloads]
        done = 0
        while True:
            with self._receiver.lock:
                self._check_open()
                done += self._socket.send_batch(batch[done:] if done else batch, address)
            if done == len(batch):
                return done
            time.sleep(AIO_RETRY_S)

    def recv(self, timeout: float | None = None) -> bytes:
        """Return the next datagram; `TimeoutError` after `timeout` seconds, None waits for ever."""
        return self.recvfrom(timeout)[0]

    def recvfrom(self, timeout: float | None = None) -> Datagram:
        """Return the next datagram and its sender's address; `TimeoutError` as for `recv`."""
        received = self.recv_many(1, timeout)
        if not received:
            raise TimeoutError("no datagram came")
        return received[0]

    def recv_many(self, max: int = AIO_BATCH, timeout: float | None = None) -> list[Datagram]:
        """Return at most `max` datagrams with their senders' addresses; wait for the first one `timeout`
        seconds at most, 0 does not wait, and None for ever. The list is empty after the time."""
        self._check_open()
        return self._receiver.receive(self._mailbox, max, timeout)

    def _check_open(self) -> None:
        if self._is_closed:
            raise error(errno.EBADF)

    def close(self) -> None:
        """Free the port. Safe to repeat; a thread that waits in the socket gets EBADF."""
        if self._is_closed:
            return
        self._is_closed = True
        with self._receiver.lock:
            self._mailbox.note_problem(error(errno.EBADF))
            self._socket.close()
            self._receiver.lock.notify_all()
        self._receiver.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
