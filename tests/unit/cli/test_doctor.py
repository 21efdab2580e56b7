# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import json

import pytest

from ipoibu.cli.main import main
from ipoibu.host.checkup import Finding, Status


def _finding(monkeypatch: pytest.MonkeyPatch, *statuses: Status) -> None:
    findings = [
        Finding(f"check{n}", status, "as it is", None if status == "ok" else "mend it")
        for n, status in enumerate(statuses)
    ]
    monkeypatch.setattr("ipoibu.host.checkup.checkup", lambda device: findings)


def test_only_a_failure_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    _finding(monkeypatch, "ok", "info", "warn")
    assert main(["doctor"]) == 0
    _finding(monkeypatch, "ok", "fail")
    assert main(["doctor"]) == 1


def test_each_finding_is_a_line_and_each_remedy_the_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _finding(monkeypatch, "ok", "fail")
    main(["doctor"])
    assert capsys.readouterr().out.splitlines() == [
        "ok    check0  as it is",
        "fail  check1  as it is",
        "              mend: mend it",
    ]


def test_json_has_stable_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _finding(monkeypatch, "fail")
    assert main(["doctor", "-j"]) == 1
    assert json.loads(capsys.readouterr().out) == [
        {"check": "check0", "status": "fail", "detail": "as it is", "remedy": "mend it"}
    ]


def test_this_machine_can_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--device", "soft:ib-not-there"]) == 1
    assert "no network device ib-not-there" in capsys.readouterr().out
