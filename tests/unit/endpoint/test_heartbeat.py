# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from ipoibu import Endpoint, EndpointConfig, Gid
from ipoibu._core import MemorySwitch
from ipoibu.endpoint.datapath import heartbeat as module
from ipoibu.endpoint.datapath.datapath import Pump
from ipoibu.endpoint.datapath.heartbeat import Heartbeat
from ipoibu.fabric.memory import MemoryPort


class FakePump:
    """Loses the first `lost` questions; `is_full`: it takes no command at all."""

    def __init__(self, heartbeat: list[Heartbeat], *, lost: int = 0, is_full: bool = False) -> None:
        self._heartbeat, self._lost, self.is_full = heartbeat, lost, is_full
        self.tokens: list[int] = []

    def sync(self, token: int) -> None:
        if self.is_full:
            raise BufferError("full")
        self.tokens.append(token)
        if len(self.tokens) > self._lost:
            asyncio.get_running_loop().call_soon(self._heartbeat[0].note_answered)


def beat(pump: FakePump | None, made: list[Heartbeat]) -> None:
    async def main() -> None:
        made.append(Heartbeat())
        async with asyncio.timeout(30):
            await made[0].beat(lambda: cast("Pump | None", pump))

    asyncio.run(main())


def test_a_lost_answer_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    made: list[Heartbeat] = []
    pump = FakePump(made, lost=2)
    beat(pump, made)
    assert pump.tokens == [1, 2, 3]


def test_a_severed_path_counts_as_progress() -> None:
    beat(None, [])


def test_a_path_that_is_severed_meanwhile_counts_as_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    pumps: list[FakePump | None] = [FakePump([], is_full=True), None]

    async def main() -> None:
        await Heartbeat().beat(lambda: cast("Pump | None", pumps.pop(0)))

    asyncio.run(main())
    assert pumps == []


async def makes_progress(endpoint: Endpoint) -> bool:
    try:
        async with asyncio.timeout(0.2):
            await endpoint.aprogress()
    except TimeoutError:
        return False
    return True


def test_an_endpoint_whose_engine_or_pump_hangs_makes_no_progress() -> None:
    port = MemoryPort(MemorySwitch(7), Gid.parse("fe80::1"))
    gate = threading.Event()

    async def main() -> None:
        async with Endpoint(EndpointConfig("h1", "memory"), port=port) as endpoint:
            await endpoint.aprogress()
            interface = endpoint._opened()
            interface.loop.call_soon_threadsafe(gate.wait)
            assert not await makes_progress(endpoint)
            gate.set()
            await endpoint.aprogress()
            interface.path.pump.stop()
            assert not await makes_progress(endpoint)
            interface.path.pump.start()

    asyncio.run(main())
