# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu bench`: its options, and where its results go."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

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
