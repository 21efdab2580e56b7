# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu status` and `ipoibu down`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ipoibu.cli import down
from ipoibu.cli.main import main
from tests.doubles.recording_client import Requests, record_requests


def _shown(name: str, state: str = "up", parent: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "pid": 4711,
        "device": "soft:eth0",
        "mode": "datagram",
        "mtu": 2044,
        "parent": parent,
        "addresses": [{"address": "10.0.0.1", "state": "preferred"}] if parent is None else [],
    }


SHOWN = {"ib0": _shown("ib0"), "ib0.8001": _shown("ib0.8001", parent="ib0")}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Requests:
    def answer(name: str, command: str) -> Any:
        if command == "child-list":
            return (
                [{"name": "ib0.8001", "parent": "ib0", "pkey": "0x8001"}] if name == "ib0" else []
            )
        return SHOWN[name]

    monkeypatch.setattr("ipoibu.daemon.control.socket_paths.names", lambda: list(SHOWN))
    return record_requests(monkeypatch, answer)


@pytest.mark.usefixtures("asked")
def test_the_status_of_all_is_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ib0       up  process 4711  soft:eth0  datagram  mtu 2044  10.0.0.1",
        "ib0.8001  up  process 4711  soft:eth0  datagram  mtu 2044  no address",
    ]
    assert main(["status", "ib0", "-j"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    keys = ["name", "state", "pid", "device", "mode", "mtu", "parent", "addresses"]
    assert list(row) == keys


def test_an_interface_that_is_down_is_exit_code_1(
    asked: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHOWN, "ib0.8001", _shown("ib0.8001", "down", "ib0"))
    assert main(["status"]) == 1
    assert main(["status", "ib0"]) == 0


def test_no_interface_is_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IPOIBU_RUNTIME_DIR", str(tmp_path))
    assert main(["status"]) == 3
    assert main(["status", "ib7"]) == 3
    assert main(["down", "ib7"]) == 3
    assert "no interface of ipoibu runs" in capsys.readouterr().err


def test_an_interface_ends_by_itself_and_a_child_by_its_parent(asked: Requests) -> None:
    assert main(["down", "ib0.8001", "ib0"]) == 0
    assert [each for each in asked if each[1] not in ("show", "child-list")] == [
        ("ib0", "child-del", {"pkey": "0x8001"}),
        ("ib0", "down", {}),
    ]


def test_a_process_that_does_not_end_is_named(
    asked: Requests, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(down, "DOWN_WAIT_S", 0.0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        monkeypatch.setattr("ipoibu.daemon.control.client.Client.pid", process.pid)
        assert main(["down", "ib0"]) == 1
        process.communicate()
    assert f"ib0 ({process.pid}) has not ended in 0 s" in capsys.readouterr().err
