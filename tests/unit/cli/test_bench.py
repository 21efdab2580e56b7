# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu bench`: its options, and where its results go."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ipoibu.bench.procedures.run import Plan
from ipoibu.bench.procedures.times import RFC, SHORT
from ipoibu.cli.main import main
from ipoibu.lab.errors import LabError


def test_the_lab_gets_the_same_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[int, int, Sequence[str]]] = []

    def measure(
        rounds: int, seconds: int, only: Sequence[str], log: Callable[[str], None]
    ) -> dict[str, Any]:
        asked.append((rounds, seconds, only))
        made = {"environment": {"cpus": 2}, "median": {"ethernet": {"gbit_s": 2.5}}, "targets": []}
        return {**made, "rounds": rounds, "seconds": seconds}

    monkeypatch.setattr("ipoibu.bench.machines.measure", measure)
    monkeypatch.chdir(tmp_path)
    files = ["--json", "out.json", "--html", "out.html"]
    assert main(["bench", "--lab", "--quick", "--only", "ethernet", *files]) == 0
    assert asked == [(1, 1, ("ethernet",))]
    assert json.loads((tmp_path / "out.json").read_text())["rounds"] == 1
    assert "medians of 1 rounds of 1 s" in capsys.readouterr().out
    page = (tmp_path / "out.html").read_text("utf-8")
    assert "medians of 1 rounds of 1 s" in page
    assert "<svg" in page


def test_a_guest_that_fails_ends_the_lab_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> Path:
        raise LabError("no kernel")

    monkeypatch.setattr("ipoibu.bench.machines.find_kernel", fail)
    assert main(["bench", "--lab"]) == 1
    assert capsys.readouterr().err == "ipoibu: no kernel\n"


def test_the_lab_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--plot", "x"), ("--streams", "2")):
        assert main(["bench", "--lab", option, value]) == 2
        assert f"{option} is not for --lab" in capsys.readouterr().err
    assert main(["bench", "--lab", "--only", "nobody"]) == 2
    assert "--only: expected some of ethernet, ib_ipoib datagram" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--html", "--plot"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    def measure(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("ipoibu.bench.run.run", measure)
    monkeypatch.setattr("ipoibu.bench.plot.load", lambda: None)
    (tmp_path / "file").touch()
    assert main(["bench", option, str(tmp_path / "file/x")]) == 1
    assert capsys.readouterr().err == f"ipoibu: {tmp_path / 'file/x'}: Not a directory\n"


def test_a_procedure_gets_its_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans: list[Plan] = []

    def measure(plan: Plan, log: Callable[[str], None]) -> dict[str, Any]:
        plans.append(plan)
        machine = {"command": "", "cpu": "", "cpus": 2, "kernel": ""}
        loads = {"load_average": [0.0], "load_average_after": [0.0]}
        told = {"absent": {}, "failed": {}, "shorter_than_the_rfc": [], "accepted_loss_percent": 0}
        report = {"environment": machine | loads, "procedure": plan.procedure, "rounds": 1}
        told |= {"times": plan.times.as_dict(), "runs": {}, "details": {}, "streams": 1}
        return report | told

    monkeypatch.setattr("ipoibu.bench.procedures.run.run", measure)
    monkeypatch.setattr("ipoibu.lab.user_namespace.enter_user_namespace", lambda: False)
    monkeypatch.chdir(tmp_path)
    words = ["--sizes", "64,2044", "--loss", "0.1", "--repeats", "2", "--seconds", "3"]
    assert main(["bench", "--rfc2544", "--html", "out.html", *words, "--only", "plain"]) == 0
    assert main(["bench", "--rfc6349", "--rfc-times", "--streams", "4", "--rounds", "5"]) == 0
    times = SHORT.with_seconds(3).with_repeats(2)
    assert plans == [
        Plan("rfc2544", times, sizes=(64, 2044), accepted_percent=0.1, only=("plain",)),
        Plan("rfc6349", RFC, rounds=5, streams=4),
    ]
    assert "What limits these figures" in (tmp_path / "out.html").read_text("utf-8")
    assert "control" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--rfc2544 --rfc6349", "are two commands"),
        ("--rfc2544 --lab", "--lab is not for --rfc2544"),
        ("--rfc6349 --plot x", "--plot is not for --rfc6349"),
        ("--rfc2544 --streams 2", "--streams is not for --rfc2544"),
        ("--rfc6349 --sizes 64", "--sizes is for --rfc2544"),
        ("--loss 1", "--loss is for --rfc2544"),
        ("--rfc-times", "--rfc-times is for --rfc2544 and --rfc6349"),
        ("--rfc2544 --quick --rfc-times", "contradict"),
        ("--rfc2544 --sizes 63", "63"),
        ("--rfc2544 --loss 51", "51"),
        ("--rfc2544 --loss x", "'x'"),
        ("--rfc2544 --repeats 0", "'0'"),
        ("--rfc2544 --only vxlam", "'vxlam' is not measured"),
    ],
)
def test_what_contradicts_a_procedure_is_refused(
    words: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words.split()]) == 2
    assert complaint in capsys.readouterr().err
