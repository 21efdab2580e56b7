# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import asyncio
import os

from ipoibu.base.errors import LinkError
from ipoibu.daemon.interface.sync_watch import SyncWatch


class Sync:
    """Counts refreshes; a byte in the pipe is a notice."""

    def __init__(self, list_s: float) -> None:
        self.list_s = list_s
        self.refreshes = 0
        self.is_relevant = True
        self.error: Exception | None = None
        self._read_end, self.write_end = os.pipe()

    def fileno(self) -> int:
        return self._read_end

    def read_notices(self) -> bool:
        os.read(self._read_end, 100)
        return self.is_relevant

    def refresh(self) -> None:
        self.refreshes += 1
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        os.close(self._read_end)
        os.close(self.write_end)


async def until_refreshed(sync: Sync, refreshes: int) -> None:
    async with asyncio.timeout(30):
        while sync.refreshes < refreshes:
            await asyncio.sleep(0.001)


def run(list_s: float, notices: int, refreshes: int, *, is_relevant: bool = True) -> list[str]:
    failures: list[str] = []

    async def main() -> None:
        sync = Sync(list_s)
        sync.is_relevant = is_relevant
        watch = SyncWatch(sync, asyncio.get_running_loop(), failures.append)
        watch.start()
        for number in range(notices):
            await until_refreshed(sync, number + 1)
            os.write(sync.write_end, b"x")
        await until_refreshed(sync, refreshes)
        watch.close()

    asyncio.run(main())
    return failures


def test_a_refresh_comes_at_the_start_and_after_a_notice() -> None:
    assert run(1000, notices=2, refreshes=3) == []


def test_a_refresh_comes_now_and_then_without_a_notice() -> None:
    assert run(0.001, notices=0, refreshes=4) == []
    assert run(0.02, notices=1, refreshes=4, is_relevant=False) == []


def test_a_refresh_that_fails_is_reported_once() -> None:
    failures: list[str] = []

    async def main() -> None:
        sync = Sync(0.001)
        sync.error = LinkError("no answer")
        watch = SyncWatch(sync, asyncio.get_running_loop(), failures.append)
        watch.start()
        await asyncio.sleep(0.05)
        watch.close()

    asyncio.run(main())
    assert failures == ["no answer"]


def test_notices_that_cannot_be_read_are_reported_once() -> None:
    failures: list[str] = []

    class Deaf(Sync):
        def read_notices(self) -> bool:
            raise OSError("no notices")

    async def main() -> None:
        sync = Deaf(1000)
        watch = SyncWatch(sync, asyncio.get_running_loop(), failures.append)
        watch.watch()
        os.write(sync.write_end, b"x")
        await asyncio.sleep(0.05)
        watch.close()

    asyncio.run(main())
    assert failures == ["no notices"]


def test_the_result_of_each_refresh_is_followed() -> None:
    followed: list[object] = []

    class Counting(Sync):
        def refresh(self) -> int:  # type: ignore[override]
            super().refresh()
            return self.refreshes

    async def main() -> None:
        sync = Counting(0.001)
        watch = SyncWatch(
            sync, asyncio.get_running_loop(), lambda reason: None, follow=followed.append
        )
        watch.start()
        await until_refreshed(sync, 3)
        watch.close()

    asyncio.run(main())
    assert followed[:3] == [1, 2, 3]
