# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu bench --lab`: what is handed on to the source tree's own program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import ipoibu
from ipoibu.cli.main import main


def test_the_lab_gets_the_same_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[list[str], Path]] = []

    def run(words: list[str], cwd: Path, check: bool) -> SimpleNamespace:
        asked.append((words, cwd))
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--lab", "--quick", "--only", "ethernet", "--json", "out.json"]) == 1
    [(words, cwd)] = asked
    assert words[:3] == [sys.executable, "-m", "tests.lab.bench"]
    assert words[3:7] == ["--rounds", "1", "--seconds", "1"]
    assert words[7:] == ["--only", "ethernet", "--json", str(tmp_path / "out.json")]
    assert (cwd / "tests/lab/bench.py").exists()


def test_an_installation_says_that_the_lab_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ipoibu, "__file__", str(tmp_path / "ipoibu/__init__.py"))
    assert main(["bench", "--lab"]) == 2
    assert "--lab needs ipoibu's source tree" in capsys.readouterr().err
    for option, value in (("--plot", "x"), ("--streams", "2")):
        assert main(["bench", "--lab", option, value]) == 2
        assert f"{option} is not for --lab" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--plot"])
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
