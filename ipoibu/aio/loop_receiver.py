# SPDX-License-Identifier: BSD-2-Clause
"""Takes an endpoint's packets on an event loop, while there are sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ipoibu.aio.host import Host, Receiver, refuse_other_receiver
from ipoibu.base.errors import Closed
from ipoibu.base.limits import AIO_BATCH, AIO_LOOK_S


class LoopReceiver(Receiver):
    """The receiver of a host on one loop; all calls are made there."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop
        self._queue = host.endpoint.packet_queue
        self._fd = -1  # registered with the loop
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, host: Host, loop: asyncio.AbstractEventLoop) -> LoopReceiver:
        """Return the receiver of this host, which runs on `loop`; `UsageError` if it runs elsewhere."""
        with host.starting:
            receiver = host.receiver
            if not isinstance(receiver, cls) or receiver._loop is not loop:
                refuse_other_receiver(host, "those of this event loop")
                receiver = cls(host, loop)
                receiver._start()
            return receiver

    def _start(self) -> None:
        self._host.start()
        self._host.receiver = self
        self._host.schedule = self._soon
        self._fd = self._queue.fd
        self._loop.add_reader(self._fd, self._receive)
        self._timer = self._loop.call_later(AIO_LOOK_S, self._look)
        self._soon(self._receive)

    def release(self) -> None:
        """End unless there are sockets."""
        if self._host.receiver is self and not len(self._host.ports):
            self._stop()

    def _stop(self) -> None:
        host = self._host
        host.receiver = None
        if self._timer is not None:
            self._timer.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._queue.disarm()
        host.stop()

    @property
    def is_dead(self) -> bool:
        return self._loop.is_closed()

    def abandon(self) -> None:
        """Free the ports of transports that nobody closed while their loop ran."""
        for socket in self._host.ports:
            self._host.drop(socket)
            socket.groups.leave_all()
        self._stop()

    def _soon(self, function: Callable[[], None]) -> None:
        self._loop.call_soon(function)

    def _receive(self) -> None:
        if self._host.receiver is not self:
            return
        queue = self._queue
        queue.disarm()
        try:
            self._host.dispatch(self._loop.time(), queue.recv_runs(AIO_BATCH))
        except Closed as problem:
            self._host.lose(problem)
            return
        if self._host.receiver is self and queue.arm():
            self._soon(self._receive)

    def _look(self) -> None:
        host = self._host
        if host.receiver is not self:
            return
        try:
            host.look(self._loop.time())
        except Closed as problem:
            host.lose(problem)
            return
        self._timer = self._loop.call_later(AIO_LOOK_S, self._look)
