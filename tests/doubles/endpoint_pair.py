# SPDX-License-Identifier: BSD-2-Clause
"""Endpoints on one link in this process, and protocols that note what they hear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ipoibu import Endpoint, EndpointConfig, Gid
from ipoibu.fabric.memory import MemoryPort, MemorySwitch

PATIENCE_S = 30.0  # a busy machine may stop any thread


@asynccontextmanager
async def hosts(count: int = 2) -> AsyncIterator[list[Endpoint]]:
    """Open endpoints 10.0.0.N and fd00::N, N from 1."""
    switch = MemorySwitch()
    async with AsyncExitStack() as stack:
        made = []
        for number in range(1, count + 1):
            port = MemoryPort(switch, Gid.parse(f"fe80::{number}"))
            config = EndpointConfig(f"host{number}", "memory", dad_ipv4="off", dad_ipv6="off")
            endpoint = await stack.enter_async_context(Endpoint(config, port=port))
            endpoint.address_added(f"10.0.0.{number}/24")
            endpoint.address_added(f"fd00::{number}/64")
            made.append(endpoint)
        for endpoint in made:
            assert await endpoint.await_up(PATIENCE_S)
        yield made


class Noting(asyncio.DatagramProtocol):
    """Notes every call in `calls`, and datagrams in `got`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.got: list[tuple[bytes, Any]] = []
        self.errors: list[OSError] = []
        self.lost: list[BaseException | None] = []
        self._changed = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.calls.append("datagram")
        self.got.append((data, addr))
        self._changed.set()

    def error_received(self, exc: Exception) -> None:
        self.calls.append("error")
        assert isinstance(exc, OSError)
        self.errors.append(exc)
        self._changed.set()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append("lost")
        self.lost.append(exc)
        self._changed.set()

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")
        self._changed.set()

    async def until(self, *calls: str) -> None:
        """Wait until the last calls are these."""
        async with asyncio.timeout(PATIENCE_S):
            while tuple(self.calls[-len(calls) :]) != calls:
                self._changed.clear()
                await self._changed.wait()

    async def received(self, count: int) -> list[tuple[bytes, Any]]:
        """Wait for so many datagrams; return all."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.got) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.got
