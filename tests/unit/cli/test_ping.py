# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.addr import DEFAULT_PKEY
from ipoibu.base.ib import PartitionParams
from ipoibu.cli.main import main
from ipoibu.endpoint.api.status import shared_paths

HWADDR = "00:00:04:4b:fe:80:00:00:00:00:00:00:00:15:5d:ff:fd:33:ff:0b"
ANSWER = {
    "dev": "ib0",
    "ip": "10.0.0.2",
    "hwaddr": HWADDR,
    "method": "arp",
    "rtt_ms": 0.5,
    "reason": None,
}
SILENCE = ANSWER | {"hwaddr": None, "rtt_ms": None, "reason": "no answer"}


class FakeClient:
    """A daemon that gives these answers in turn."""

    answers: list[dict[str, Any]]
    requests: list[tuple[str, dict[str, Any]]]

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        self.requests.append((command, arguments))
        return self.answers.pop(0)


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    FakeClient.answers, FakeClient.requests = [], []
    monkeypatch.setattr("ipoibu.daemon.control.client.Client", FakeClient)
    monkeypatch.setattr("ipoibu.daemon.control.client.running", lambda: ["ib0"])
    monkeypatch.setattr("ipoibu.cli.ping.PAUSE_S", 0.0)
    return FakeClient


def test_answers_and_silence_are_lines_with_a_summary(
    client: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers = [ANSWER, SILENCE, ANSWER | {"rtt_ms": 1.5}]
    assert main(["ping", "10.0.0.2"]) == 0
    assert capsys.readouterr().out == (
        f"1: 10.0.0.2 dev ib0 lladdr {HWADDR} ARP 0.500 ms\n"
        "2: 10.0.0.2 dev ib0: no answer\n"
        f"3: 10.0.0.2 dev ib0 lladdr {HWADDR} ARP 1.500 ms\n"
        "3 asked, 2 answered, min/avg/max 0.500/1.000/1.500 ms\n"
    )
    assert client.requests[0] == ("ping", {"target": "10.0.0.2", "timeout_ms": 1000})


def test_json_is_one_line_for_each_request_and_silence_is_exit_code_1(
    client: type[FakeClient], capsys: pytest.CaptureFixture[str]
) -> None:
    client.answers = [dict(SILENCE), dict(SILENCE)]
    assert main(["ping", "-j", "-c", "2", "-W", "50", HWADDR]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"seq": 1, **SILENCE}, {"seq": 2, **SILENCE}]


def test_several_interfaces_need_a_choice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ipoibu.daemon.control.client.running", lambda: ["ib0", "ib1"])
    assert main(["ping", "10.0.0.2"]) == 2
    assert "choose one: -I ib0 or -I ib1" in capsys.readouterr().err


def test_no_interface_is_exit_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipoibu.daemon.control.client.running", list)
    assert main(["ping", "10.0.0.2"]) == 3


@pytest.mark.parametrize(
    "words", [["host"], ["fe80::1%ib0"], ["10.0.0.2", "-c", "0"], ["10.0.0.2", "-W", "x"]]
)
def test_bad_words_are_refused_before_the_daemon_is_asked(
    words: list[str], client: type[FakeClient]
) -> None:
    assert main(["ping", *words]) == 2
    assert client.requests == []


def test_the_page_has_the_keys_of_ping_and_path() -> None:
    page = (Path(__file__).parents[3] / "docs/use/watching.md").read_text("utf-8")

    def documented(command: str) -> list[str]:
        section = page.split(f"## ipoibu {command}\n")[1].split("\n## ")[0]
        return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)

    assert documented("ping") == ["seq", *ANSWER]
    params = PartitionParams(DEFAULT_PKEY, 0, 2048)
    entry = {"ip": "10.0.0.2", "hwaddr": HWADDR}
    (path,) = shared_paths(params, 2044, [entry])
    assert documented("path") == ["dev", *path]
