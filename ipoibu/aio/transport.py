# SPDX-License-Identifier: BSD-2-Clause
"""The transport of asyncio on a socket of an endpoint."""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from typing import Any

from ipoibu.aio.address import SocketAddress
from ipoibu.aio.datagram_socket import Socket
from ipoibu.aio.loop_receiver import LoopReceiver
from ipoibu.aio.socket_calls import SocketCalls
from ipoibu.base.limits import (
    AIO_RETRY_S,
    AIO_WRITE_HEADER_BYTES,
    AIO_WRITE_HIGH_BYTES,
    AIO_WRITE_LOW_BYTES,
)

_Waiting = tuple[bytes, SocketAddress | None]


class DatagramTransport(SocketCalls, asyncio.DatagramTransport, asyncio.Transport):
    """A `asyncio.DatagramTransport`; the loop's thread makes all calls. As asyncio's own it is a
    `asyncio.Transport`, too.

    `get_extra_info` knows "sockname", "peername" (None unless connected) and "endpoint"; "socket" is None,
    as there is none. A datagram waits here only while the endpoint's queue is full. An empty datagram is
    sent, as by Python 3.13 and later.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        socket: Socket,
        protocol: asyncio.BaseProtocol,
        *,
        receiver: LoopReceiver,
        made: asyncio.Future[None],
        extra: dict[str, Any],
        remote: SocketAddress | None = None,
    ) -> None:
        super().__init__(extra)
        self._about = extra
        self._remote = remote  # of a socket that is not connected
        self._loop = loop
        self._socket = socket
        self._receiver = receiver
        self._protocol: Any = protocol
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._retry: asyncio.TimerHandle | None = None
        self._high, self._low = AIO_WRITE_HIGH_BYTES, AIO_WRITE_LOW_BYTES
        self._has_begun = False
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False
        socket.on_datagrams = self._deliver
        socket.on_error = self._note_error
        socket.on_lost = self._fail
        loop.call_soon(self._begin, made)

    def _begin(self, made: asyncio.Future[None]) -> None:
        self._has_begun = True
        try:
            self._protocol.connection_made(self)
        finally:
            if not made.done():
                made.set_result(None)

    def __repr__(self) -> str:
        state = "closed" if self._is_lost else "closing" if self._is_closing else "open"
        return f"<{type(self).__name__} {state} {self._about['sockname']}>"

    # -- asyncio's transport ---------------------------------------------------------------------

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send a datagram; the transport keeps a copy if the endpoint's queue is full. Errors go to
        `error_received`; `ValueError` for another address than `remote_addr`."""
        if not isinstance(data, (bytes, bytearray)):
            if not isinstance(data, memoryview):
                kind = type(data).__name__
                raise TypeError(f"data is bytes, bytearray or memoryview, not {kind}")
            data = data.tobytes()
        peer = self._about["peername"] or self._remote
        if peer is not None:
            if addr not in (None, peer):
                raise ValueError(f"Invalid address: must be None or {peer}")
            addr = self._remote
        if self._is_lost:
            return
        if not self._waiting:
            if self._try_to_send(data, addr):
                return
            self._retry = self._loop.call_later(AIO_RETRY_S, self._send_waiting)
        self._waiting.append((bytes(data), addr))
        self._waiting_bytes += len(data) + AIO_WRITE_HEADER_BYTES
        self._pause_above_high()

    def _try_to_send(self, data: bytes | bytearray, addr: Any) -> bool:
        """Send a datagram; return False if the queue is full, and it waits for another try. One whose error
        the protocol has heard needs none."""
        try:
            return self._socket.send(data, addr)
        except OSError as problem:
            self._protocol.error_received(problem)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as problem:
            self._fail(problem, "Fatal write error on datagram transport")
        return True

    def _send_waiting(self) -> None:
        self._retry = None
        while self._waiting:
            data, addr = self._waiting[0]
            if not self._try_to_send(data, addr):
                break
            if self._is_lost:
                return
            self._waiting.popleft()
            self._waiting_bytes -= len(data) + AIO_WRITE_HEADER_BYTES
        self._resume_below_low()
        if self._waiting and not self._is_lost:
            self._retry = self._loop.call_later(AIO_RETRY_S, self._send_waiting)
        elif self._is_closing and not self._is_lost:
            self._lose(None)

    def close(self) -> None:
        """Send what waits, then close; no more datagrams are delivered."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._waiting:
            self._lose(None)

    def abort(self) -> None:
        """Close at once, and forget what waits."""
        self._lose(None)

    # -- flow control ----------------------------------------------------------------------------

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (self._low, self._high)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set above how many waiting bytes the protocol is paused, and below how many it goes on."""
        if high is None:
            high = AIO_WRITE_HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._pause_above_high()

    def _pause_above_high(self) -> None:
        if self._waiting_bytes > self._high and not self._is_paused:
            self._is_paused = True
            self._tell(self._protocol.pause_writing, "protocol.pause_writing() failed")

    def _resume_below_low(self) -> None:
        if self._is_paused and self._waiting_bytes <= self._low:
            self._is_paused = False
            self._tell(self._protocol.resume_writing, "protocol.resume_writing() failed")

    # -- what comes ------------------------------------------------------------------------------

    def _deliver(self, payloads: list[bytes], address: SocketAddress) -> None:
        if not self._has_begun:  # the packets lay in the queue already: `_begin` runs first
            self._loop.call_soon(self._deliver, payloads, address)
            return
        for payload in payloads:
            if self._is_closing:
                return
            self._tell(
                self._protocol.datagram_received, "datagram_received() failed", payload, address
            )

    def _note_error(self, problem: OSError) -> None:
        if not self._is_closing:
            self._tell(self._protocol.error_received, "error_received() failed", problem)

    def _tell(self, method: Any, message: str, *args: Any) -> None:
        """Call the protocol; its exception goes to the loop's handler, and the others get their turn."""
        try:
            method(*args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as problem:
            self._report(message, problem)

    def _report(self, message: str, problem: BaseException) -> None:
        self._loop.call_exception_handler(
            {
                "message": message,
                "exception": problem,
                "transport": self,
                "protocol": self._protocol,
            }
        )

    def _fail(self, problem: BaseException, message: str = "Fatal error on transport") -> None:
        if not self._is_lost:
            if not isinstance(problem, OSError):
                self._report(message, problem)
            self._lose(problem)

    # -- the end ---------------------------------------------------------------------------------

    def _lose(self, problem: BaseException | None) -> None:
        if self._is_lost:
            return
        self._is_closing = self._is_lost = True
        if self._retry is not None:
            self._retry.cancel()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._socket.close()
        self._loop.call_soon(self._end, problem)

    def _end(self, problem: BaseException | None) -> None:
        try:
            self._protocol.connection_lost(problem)
        finally:
            self._receiver.release()

    def __del__(self) -> None:
        if not self._is_lost:
            warnings.warn(
                f"unclosed transport {self!r}", ResourceWarning, source=self, stacklevel=2
            )
