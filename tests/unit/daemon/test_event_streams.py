# SPDX-License-Identifier: BSD-2-Clause
"""Streams of events over the control socket, to clients that read, are slow, or are many."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.addr import HwAddr, Qpn
from ipoibu.base.limits import MONITORS_MAX
from ipoibu.daemon.control import event_streams as event_stream
from ipoibu.daemon.control.event_streams import KEYS, event
from ipoibu.daemon.control.server import ControlServer
from ipoibu.proto.machine.transition import Topic, Transition
from tests.doubles.control_lines import next_line

HWADDR = HwAddr.parse("00:00:04:4b:fe:80:00:00:00:00:00:00:00:15:5d:ff:fd:33:ff:0b")
LINK_UP = Transition(Topic.LINK, "", "joining", "up", "the broadcast group is joined")
NEIGHBOUR = Transition(
    Topic.NEIGHBOUR,
    ipaddress.ip_address("10.0.0.2"),
    "incomplete",
    "reachable",
    "an answer gives another address",
    hwaddr=HWADDR,
)

FORMER = replace(HWADDR, qpn=Qpn(0x99))

Monitor = tuple[asyncio.StreamReader, asyncio.StreamWriter, dict[str, Any]]

pytestmark = pytest.mark.usefixtures("runtime")


def _served(endpoint: Any, talk: Callable[[ControlServer], Awaitable[None]]) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(2) as executor:
            server = ControlServer("ib0", endpoint, executor)
            await server.start()
            try:
                async with asyncio.timeout(60):
                    await talk(server)
            finally:
                for writer in _writers:
                    writer.transport.abort()
                _writers.clear()
                await server.close()

    asyncio.run(main())


_writers: list[asyncio.StreamWriter] = []


async def _monitor(server: ControlServer) -> Monitor:
    reader, writer = await asyncio.open_unix_connection(str(server.path), limit=1 << 20)
    _writers.append(writer)
    writer.write(b'{"command": "monitor"}\n')
    return reader, writer, await next_line(reader)


def test_a_monitor_without_events_gets_signs_of_life(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "CONTROL_WORKING_S", 0.001)

    async def talk(server: ControlServer) -> None:
        reader, _, _ = await _monitor(server)
        assert [await reader.readline() for _ in range(3)] == [event_stream.WORKING] * 3

    _served(endpoint, talk)


async def _until(question: Callable[[], bool]) -> None:
    while not question():
        await asyncio.sleep(0.01)


def test_an_event_has_the_documented_keys() -> None:
    assert event("ib0", 1.5, NEIGHBOUR) == {
        "time": 1.5,
        "dev": "ib0",
        "topic": "neigh",
        "subject": "10.0.0.2",
        "before": "incomplete",
        "state": "reachable",
        "cause": "an answer gives another address",
        "hwaddr": str(HWADDR),
        "detail": None,
        "former": None,
        "reason": None,
    }
    moved = event("ib0", 1.5, replace(NEIGHBOUR, former=FORMER, reason="why"))
    assert (moved["former"], moved["reason"]) == (str(FORMER), "why")
    page = (Path(__file__).parents[3] / "docs/use/watching.md").read_text("utf-8")
    table = page.split("## ipoibu monitor\n")[1].split("\n## ")[0]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == [
        *KEYS,
        "lost",
    ]


def test_events_come_in_order_until_the_client_ends(endpoint: Any) -> None:
    async def talk(server: ControlServer) -> None:
        reader, writer, answer = await _monitor(server)
        assert answer == {"ok": True, "result": None}
        (sink,) = endpoint.watchers
        await asyncio.to_thread(lambda: [sink(LINK_UP), sink(NEIGHBOUR)])
        topics = [(await next_line(reader))["topic"] for _ in range(2)]
        assert topics == ["link", "neigh"]
        writer.write_eof()
        assert await reader.read() == b""
        await _until(lambda: not endpoint.watchers)

    _served(endpoint, talk)


def test_a_slow_reader_loses_events_which_the_stream_counts(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "EVENTS_PENDING_MAX", 3)

    async def talk(server: ControlServer) -> None:
        reader, _, _ = await _monitor(server)
        (sink,) = endpoint.watchers
        for _ in range(10):  # the loop, on which this runs, cannot take any meanwhile
            sink(NEIGHBOUR)
        lines = [await next_line(reader) for _ in range(4)]
        assert [line["topic"] for line in lines] == ["neigh"] * 3 + ["lost"]
        assert lines[-1]["lost"] == 7
        assert set(lines[-1]) == {*KEYS, "lost"}
        sink(LINK_UP)
        assert (await next_line(reader))["topic"] == "link"

    _served(endpoint, talk)


def test_a_reader_that_never_reads_stalls_nobody(
    endpoint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "EVENTS_PENDING_MAX", 1000)

    async def talk(server: ControlServer) -> None:
        await _monitor(server)  # reads its answer only
        reader, _, _ = await _monitor(server)
        for _ in range(20):
            for sink in list(endpoint.watchers):
                for _ in range(1000):
                    sink(NEIGHBOUR)
            for _ in range(1000):
                assert (await next_line(reader))["topic"] == "neigh"

    _served(endpoint, talk)


def test_more_monitors_than_the_limit_are_refused(endpoint: Any) -> None:
    async def talk(server: ControlServer) -> None:
        monitors = [await _monitor(server) for _ in range(MONITORS_MAX)]
        _, _, refusal = await _monitor(server)
        assert refusal == {
            "ok": False,
            "error": f"{MONITORS_MAX} clients monitor ib0; end one of them",
        }
        monitors[0][1].close()
        await _until(lambda: server._streams._running == MONITORS_MAX - 1)
        assert (await _monitor(server))[2]["ok"]

    _served(endpoint, talk)
