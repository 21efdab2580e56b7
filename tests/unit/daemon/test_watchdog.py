# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipoibu.base.errors import Closed
from ipoibu.daemon.process.watchdog import Watchdog, Watched, interval_s


class FakeInterface:
    """Makes progress while `gate` is open; `error` says why it cannot answer."""

    name = "ib0"

    def __init__(self, error: Exception | None = None) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.error = error

    async def progress(self) -> None:
        if self.error is not None:
            raise self.error
        await self.gate.wait()


def watched(*interfaces: FakeInterface) -> list[Watched]:
    return [(it.name, it.progress) for it in interfaces]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as manager:
        manager.bind(path)
        yield manager


async def beats(manager: socket.socket, count: int) -> None:
    async with asyncio.timeout(30):
        for _ in range(count):
            notice = await asyncio.get_running_loop().sock_recv(manager, 100)
            assert notice == b"WATCHDOG=1"


def test_it_beats_while_every_interface_makes_progress(manager: socket.socket) -> None:
    async def main() -> None:
        interfaces = [FakeInterface(), FakeInterface()]
        async with Watchdog(lambda: watched(*interfaces), 0.01):
            await beats(manager, 3)

    asyncio.run(main())


def test_one_hung_interface_ends_the_beats_and_has_a_line_in_the_log(
    manager: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        interfaces = [FakeInterface(), FakeInterface()]
        async with Watchdog(lambda: watched(*interfaces), 0.01):
            await beats(manager, 1)
            interfaces[1].gate.clear()
            async with asyncio.timeout(30):
                while "ib0: no progress for 0.0 s" not in caplog.text:
                    await asyncio.sleep(0.01)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await beats(manager, 10)
            interfaces[1].gate.set()  # it was only late
            await beats(manager, 1)

    asyncio.run(main())


def test_a_child_that_ends_is_no_hang(manager: socket.socket) -> None:
    async def main() -> None:
        async with Watchdog(lambda: watched(FakeInterface(Closed("ib0.8001: not open"))), 0.01):
            await beats(manager, 2)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("microseconds", "pid", "seconds"),
    [
        (None, None, None),
        ("30000000", None, 30.0),
        ("30000000", "ours", 30.0),
        ("30000000", "1", None),  # for another process
        ("0", None, None),
        ("soon", None, None),
    ],
)
def test_the_service_manager_says_how_long_it_waits(
    monkeypatch: pytest.MonkeyPatch,
    microseconds: str | None,
    pid: str | None,
    seconds: float | None,
) -> None:
    for name, value in (("WATCHDOG_USEC", microseconds), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value.replace("ours", str(os.getpid())))
    assert interval_s() == seconds
