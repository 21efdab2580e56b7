# SPDX-License-Identifier: BSD-2-Clause
"""The packets of an endpoint without a TUN: as bytes, or in frames of the data path's memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable

from ipoibu import _core
from ipoibu.base.errors import Closed, UsageError
from ipoibu.endpoint.api.arguments import Packet, count_of, frames_of, packets_of, seconds_of
from ipoibu.endpoint.api.life import Life


class Packets(Life):
    """The part of `Endpoint` that sends and receives."""

    def _embedded(self) -> _core.QueueDevice:
        self._opened()
        if self._queue is None:
            raise UsageError(f"{self.config.name}: its packets are the device's")
        if self._queue.is_in_c:
            raise UsageError(f"{self.config.name}: its packets are those of threads in C")
        return self._queue

    def c_queue(self) -> object:
        """Return the packet queue for threads in C: a capsule named "ipoibu.packet_queue.v1", also while the
        endpoint is not open. From then on the methods here that send and receive are refused. See
        docs/use/c-device.md.
        """
        if self._queue is None:
            raise UsageError(f"{self.config.name}: its packets are the device's")
        if self.sockets is not None:
            raise UsageError(f"{self.config.name}: its packets are those of its sockets")
        try:
            return self._queue.to_c()
        except ValueError as error:
            raise UsageError(f"{self.config.name}: {error}: call c_queue before") from error

    sockets: object = None
    """What `ipoibu.aio` keeps here: the host of the sockets on this endpoint."""

    @property
    def packet_queue(self) -> _core.QueueDevice:
        """The queue under `send` and `recv`, for a stack that takes all packets itself. `UsageError` if the
        endpoint has a TUN."""
        return self._embedded()

    def send(self, packets: Iterable[Packet]) -> int:
        """Queue IP packets, each at most `mtu` bytes, in order; return how many fitted, counted from the
        first.

        The method copies the packets and never blocks. This is a datagram service: a queued packet may
        still get lost, which `stats` counts.
        """
        return self._embedded().send(packets_of(packets, self._opened().path.mtu_bytes))

    def recv(self, max: int = 64, timeout: float | None = None) -> list[bytes]:
        """Return at most `max` received IP packets; wait for the first one `timeout` seconds at most.

        The list is empty after the time; with a `timeout` of 0 the method does not wait. Only one thread at
        a time may receive.
        """
        return self._inbox.receive(
            self._embedded, _core.QueueDevice.recv, count_of(max), seconds_of(timeout, "timeout")
        )

    def reserve(self, max: int = 64) -> list[_core.Frame]:
        """Return up to `max` frames of the data path's memory to fill: write through views, and set
        `length` to that of the packet. The list is empty while the data path has all frames. See
        docs/use/embedding.md.
        """
        return self._embedded().reserve(count_of(max))

    def send_frames(self, frames: Iterable[_core.Frame]) -> int:
        """Queue reserved frames in order, without a copy; return how many fitted, counted from the first.
        Those no longer belong to the caller.

        `BufferError` if a view of a frame exists; the method has then taken the earlier frames.
        """
        return self._embedded().send_frames(frames_of(frames))

    def recv_frames(self, max: int = 64, timeout: float | None = None) -> list[_core.Frame]:
        """Return at most `max` received packets in their frames, without a copy: views of the frames read
        the packets in place. `timeout` counts as for `recv`.

        A frame goes back when the caller drops it and its views, or by `release`. While the caller holds
        half of all frames (512 of datagrams, 64 of connections), the pump copies further packets. Frames
        stay readable after `close`.
        """
        return self._inbox.receive(
            self._embedded,
            _core.QueueDevice.recv_frames,
            count_of(max),
            seconds_of(timeout, "timeout"),
        )

    async def asend(self, packets: Iterable[Packet]) -> int:
        """Queue all IP packets, waiting for room on the caller's event loop; return their number."""
        batch = packets_of(packets, self._opened().path.mtu_bytes)
        done = self._embedded().send(batch)
        while done < len(batch):
            await asyncio.sleep(0.0005)
            done += self.send(batch[done:])
        return done

    async def arecv(self, max: int = 64) -> list[bytes]:
        """Return at most `max` received IP packets; wait for the first one on the caller's event loop."""
        return await self._inbox.areceive(self._embedded, _core.QueueDevice.recv, count_of(max))

    async def batches(self, max: int = 64) -> AsyncGenerator[list[bytes], None]:
        """Yield received packets as `arecv` returns them, until the endpoint is closed:
        `async for packets in endpoint.batches()`."""
        with contextlib.suppress(Closed):
            while True:
                yield await self.arecv(max)

    async def frame_batches(self, max: int = 64) -> AsyncGenerator[list[_core.Frame], None]:
        """Yield received packets in their frames, as `recv_frames` returns them, until the endpoint is
        closed."""
        with contextlib.suppress(Closed):
            while True:
                yield await self.arecv_frames(max)

    async def arecv_frames(self, max: int = 64) -> list[_core.Frame]:
        """Return at most `max` received packets in their frames; wait for the first one on the caller's
        event loop."""
        return await self._inbox.areceive(
            self._embedded, _core.QueueDevice.recv_frames, count_of(max)
        )
