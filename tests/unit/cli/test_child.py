# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import json
from typing import Any

import pytest

from ipoibu.cli.main import main
from tests.doubles.recording_client import Requests, record_requests

LISTED: dict[str, list[dict[str, Any]]] = {
    "ib0": [{"name": "ib0.8001", "parent": "ib0", "pkey": "0x8001", "vlan": 10}],
    "ib0.8001": [],
    "ib1": [{"name": "ib1.8002", "parent": "ib1", "pkey": "0x8002", "vlan": None}],
}


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Records every request; a fake daemon answers each."""
    monkeypatch.setattr("ipoibu.daemon.control.socket_paths.names", lambda: list(LISTED))
    return record_requests(
        monkeypatch,
        lambda name, command: LISTED[name] if command == "child-list" else f"{name}: {command}",
    )


def test_a_child_is_asked_for_with_its_full_key_and_options(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--address", "10.0.0.1/24", "--address", "fd00::1/64", "--mtu", "1500"]
    assert main(["child", "add", "ib0", "1", *words]) == 0
    assert capsys.readouterr().out == "ib0: child-add\n"
    assert main(["child", "del", "ib0", "0x0001"]) == 0
    assert capsys.readouterr().out == ""
    assert asked == [
        (
            "ib0",
            "child-add",
            {"pkey": "0x8001", "address": ["10.0.0.1/24", "fd00::1/64"], "mtu": "1500"},
        ),
        ("ib0", "child-del", {"pkey": "0x8001"}),
    ]


def test_a_child_is_added_with_a_name_and_removed_by_its_name(
    asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["child", "add", "ib0", "1", "--name", "storage"]) == 0
    assert asked == [("ib0", "child-add", {"pkey": "0x8001", "name": "storage"})]
    asked.clear()
    assert main(["child", "del", "ib1.8002"]) == 0
    assert asked[-1] == ("ib1", "child-del", {"pkey": "0x8002"})
    asked.clear()
    capsys.readouterr()
    assert main(["child", "del", "ib0"]) == 3
    assert {command for _, command, _ in asked} == {"child-list"}
    assert "ib0 is no child interface (there are: ib0.8001, ib1.8002)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["add", "ib0", "0"],
        ["add", "ib0", "0x8000"],
        ["add", "ib0", "0x10000"],
        ["del", "ib0", "0x8000"],
        ["add", "ib0", "1", "--address", "10.0.0.1"],
        ["add", "ib0", "1", "--mtu", "x"],
        ["add", "ib0"],
        ["grow", "ib0", "1"],
        [],
    ],
)
def test_a_wrong_word_is_a_usage_error_and_nobody_is_asked(
    words: list[str], asked: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["child", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert asked == []


def test_children_are_listed_of_one_or_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["child", "list", "ib0"]) == 0
    assert capsys.readouterr().out == "ib0.8001  ib0  0x8001  vlan 10\n"
    assert main(["child", "list", "-j"]) == 0
    assert json.loads(capsys.readouterr().out) == LISTED["ib0"] + LISTED["ib1"]
    assert main(["child", "list", "ib0.8001"]) == 0
    assert capsys.readouterr().out == ""
