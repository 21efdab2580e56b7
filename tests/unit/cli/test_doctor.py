# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ipoibu.cli.main import main
from ipoibu.doctor.finding import Finding, Status


def _finding(monkeypatch: pytest.MonkeyPatch, *statuses: Status) -> None:
    findings = [
        Finding(f"check{n}", status, "as it is", None if status == "ok" else "mend it")
        for n, status in enumerate(statuses)
    ]
    monkeypatch.setattr("ipoibu.doctor.machine.checkup", lambda device, pkey: findings)


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


def test_a_peer_that_is_none_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _finding(monkeypatch, "ok")
    assert main(["doctor", "--peer", "host:x"]) == 2
    assert "'host:x' is no peer" in capsys.readouterr().err
    assert main(["doctor", "--peer-key-file", "/etc/key"]) == 2
    assert "give --peer HOST, too" in capsys.readouterr().err


def _partition(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    main(["doctor", "-j", *words])
    return next(f for f in json.loads(capsys.readouterr().out) if f["check"] == "partition")


def test_a_missing_broadcast_group_is_named_with_the_line_to_add(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "partitions.conf"
    file.write_text("green=1, ipoib, mtu=5 : ALL=full;\n\nred=2 : ALL=full;\n")
    words = ("--partitions", str(file), "--pkey")
    assert _partition(capsys, *words, "0x8001") == {
        "check": "partition",
        "status": "ok",
        "detail": f"{file}:1: partition green (0x8001) has a link of MTU 4092, Q_Key 0xb1b, scope 0x2",
        "remedy": None,
    }
    assert _partition(capsys, *words, "2") == {
        "check": "partition",
        "status": "fail",
        "detail": f"{file}:3: partition red (0x8002) has no broadcast group",
        "remedy": f"add to {file}: ib8002=0x0002, ipoib : ALL=full;",
    }
    assert _partition(capsys, *words, "3")["remedy"] == (
        f"add to {file}: ib8003=0x0003, ipoib : ALL=full;"
    )
    assert _partition(capsys, *words[:2])["remedy"] == (  # of 0xffff by default
        f"add to {file}: Default=0x7fff, ipoib : ALL=full;"
    )
    file.write_text("green=1, ipoib, mtu=9 : ALL;")
    finding = _partition(capsys, *words, "1")
    assert (finding["status"], finding["remedy"]) == ("fail", None)
    assert finding["detail"].startswith(f"{file}:1: ")


def test_a_partition_that_cannot_be_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["doctor", "--partitions", str(tmp_path / "x"), "--pkey", "0x8000"]) == 2
    assert "P_Key 0x8000 is invalid" in capsys.readouterr().err
    assert main(["doctor", "--pkey", "1"]) == 2
    assert "give --device DEV or --partitions FILE, too" in capsys.readouterr().err
    assert _partition(capsys, "--partitions", str(tmp_path / "x"))["status"] == "fail"


def test_this_machine_can_be_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--device", "soft:ib-not-there"]) == 1
    assert "no network device ib-not-there" in capsys.readouterr().out


@pytest.mark.parametrize("device", ["soft:", "soft:lo/x", "soft:lo@", "", "/", "../.."])
def test_what_up_takes_for_no_device_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], device: str
) -> None:
    assert main(["doctor", "--device", device]) == 2
    assert f"{device!r} is not a device" in capsys.readouterr().err


def test_a_port_that_the_built_in_hca_does_not_have_is_found_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "-j", "--device", "soft:lo/2"]) == 1
    assert {
        "check": "port",
        "status": "fail",
        "detail": "the built-in HCA has port 1 only, not 2",
        "remedy": "use --device soft:lo",
    } in json.loads(capsys.readouterr().out)
