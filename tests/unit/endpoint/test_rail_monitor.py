# SPDX-License-Identifier: BSD-2-Clause
"""The monitor of a rail: silence is three rounds without an answer over one data path."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import pytest

from ipoibu.base.addr import IpAddress
from ipoibu.endpoint.rails import monitor as rail_monitor
from ipoibu.endpoint.rails.monitor import RailMonitor

TARGETS = [ipaddress.ip_address(text) for text in ("10.0.0.2", "fd00::2")]


class Link:
    """The link that a monitor asks; `answers` are those that answer."""

    def __init__(self) -> None:
        self.answers: set[IpAddress] = set()
        self.path: object | None = "first"
        self.asked = 0
        self.calls: list[str] = []
        self.done = asyncio.Event()

    async def ping(self, target: IpAddress, timeout_s: float) -> dict[str, Any]:
        self.asked += 1
        if self.asked == 4 and self.path == "moves":
            self.path = "second"
        return {"rtt_ms": 0.1 if target in self.answers else None}

    def note(self, call: str) -> None:
        self.calls.append(call)
        self.done.set()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rail_monitor, "RAIL_MONITOR_S", 0.001)


async def _run(link: Link, until: asyncio.Event) -> None:
    monitor = RailMonitor(
        TARGETS,
        link.ping,
        lambda: link.path,
        lambda: link.note("heard"),
        lambda: link.note("silent"),
    )
    task = asyncio.create_task(monitor.run())
    try:
        async with asyncio.timeout(30):
            await until.wait()
    finally:
        task.cancel()


def test_one_answer_of_several_targets_is_enough() -> None:
    async def run() -> Link:
        link = Link()
        link.answers = {TARGETS[1]}
        await _run(link, link.done)
        return link

    assert asyncio.run(run()).calls[0] == "heard"


def test_three_rounds_without_an_answer_are_silence() -> None:
    async def run() -> Link:
        link = Link()
        await _run(link, link.done)
        return link

    link = asyncio.run(run())
    assert link.calls[0] == "silent"
    assert link.asked >= 3 * len(TARGETS)


def test_rounds_over_two_data_paths_do_not_add_up() -> None:
    async def run() -> Link:
        link = Link()
        link.path = "moves"  # with the fourth question, in the second round
        await _run(link, link.done)
        return link

    link = asyncio.run(run())
    assert link.calls[0] == "silent"
    assert link.asked >= (2 + 3) * len(TARGETS)


def test_nobody_is_asked_while_the_link_is_down() -> None:
    async def run() -> Link:
        link, later = Link(), asyncio.Event()
        link.path = None
        asyncio.get_running_loop().call_later(0.05, later.set)
        await _run(link, later)
        return link

    link = asyncio.run(run())
    assert (link.asked, link.calls) == (0, [])
