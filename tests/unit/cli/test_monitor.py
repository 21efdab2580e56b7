# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ipoibu.cli import monitor
from ipoibu.cli.main import main
from ipoibu.daemon.control.client import DaemonEnded
from ipoibu.proto.machine.transition import Topic

NEIGH: dict[str, Any] = {
    "time": 1_700_000_000.25,
    "dev": "ib0",
    "topic": "neigh",
    "subject": "10.0.0.2",
    "before": "incomplete",
    "state": "reachable",
    "cause": "an answer gives another address",
    "hwaddr": "00:..:02",
    "detail": None,
    "former": None,
    "reason": None,
}
LOST = dict.fromkeys(NEIGH) | {"time": 1.0, "dev": "ib0", "topic": "lost", "lost": 7}
SA = NEIGH | {
    "topic": "sa",
    "subject": "mlx5_0/1",
    "before": None,
    "state": "silent",
    "hwaddr": None,
}


class FakeClient:
    """The daemon of an interface that has these events, and then ends."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def events(self) -> Iterator[dict[str, Any]]:
        yield from (NEIGH | {"dev": self.name}, LOST, SA)
        raise DaemonEnded(f"{self.name}: the daemon ended")


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipoibu.daemon.control.client.Client", FakeClient)


def _without_time(line: str) -> str:
    return re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ", "", line)


def test_an_event_is_one_line() -> None:
    assert _without_time(monitor.text(NEIGH)) == (
        "ib0 neigh 10.0.0.2 incomplete -> reachable lladdr 00:..:02: an answer gives another address"
    )
    moved = monitor.text(NEIGH | {"former": "00:..:01"})
    assert "lladdr 00:..:02 before 00:..:01: an answer" in moved
    ended = {
        "topic": "conn",
        "before": "live",
        "state": "none",
        "reason": "the peer ended the connection",
    }
    assert monitor.text(NEIGH | ended).endswith("another address: the peer ended the connection")
    assert _without_time(monitor.text(LOST)) == "ib0 lost 7 events: this reader is too slow"
    assert "sa mlx5_0/1 silent: an answer" in monitor.text(SA)
    guest = {
        "topic": "guest",
        "detail": "refused",
        "before": None,
        "state": "held",
        "reason": "52:..:1",
    }
    line = monitor.text(NEIGH | guest | {"cause": "another guest has the address"})
    assert line.endswith(
        " guest 10.0.0.2 refused held lladdr 00:..:02: another guest has the address: 52:..:1"
    )


def test_one_interface_is_printed_until_its_daemon_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "ib0", "-j"]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [NEIGH, LOST, SA]
    assert err == "ipoibu: ib0: the daemon ended\n"


def test_a_topic_selects_events_and_never_hides_a_loss(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["monitor", "ib0", "-j", "--topic", "sa"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["topic"] for line in lines] == ["lost", "sa"]


def test_all_interfaces_are_printed_also_those_that_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = iter([["ib0"], ["ib0", "ib1"]])
    monkeypatch.setattr("ipoibu.daemon.control.socket_paths.names", lambda: next(names, []))
    found: set[str] = set()
    for event in monitor.events(None):
        found.add(event["dev"])
        if found == {"ib0", "ib1"}:
            return


def test_the_topics_are_those_of_the_engine() -> None:
    assert {topic.value for topic in Topic} == set(monitor.TOPICS)
