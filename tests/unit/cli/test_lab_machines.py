# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab --guests`: its options, what it prints and its exit code. No machine boots here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from ipoibu.cli.main import main
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.judge import COMMON, LARGE
from ipoibu.lab.machines.runner import Result


class Machines:
    """Stands for two machines: `results` are theirs, and they can do all `behaviours`."""

    def __init__(self) -> None:
        self.behaviours = [COMMON + LARGE["datagram"]] * 2
        self.results = [self.result("a", 0), self.result("b", 0)]
        self.booted: list[tuple[Any, ...]] = []

    @staticmethod
    def result(name: str, status: int | None, failure: str | None = None) -> Result:
        return Result(name, status, f"output of {name}\n", "", failure, 1.0)

    def boot(
        self,
        kernel: Path,
        directory: Path,
        hosts: tuple[str, str],
        *words: str,
        copy_to: BinaryIO | None = None,
        **_: object,
    ) -> list[Result]:
        self.booted.append((hosts, *words))
        for name, behaviours in zip("ab", self.behaviours, strict=True):
            lines = [f"{behaviour}\tyes\n" for behaviour in behaviours]
            (directory / f"behaviours-{name}").write_text("".join(lines))
        return self.results


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    machines = Machines()
    monkeypatch.setattr("ipoibu.lab.machines.link.boot", machines.boot)
    monkeypatch.setattr("ipoibu.lab.machines.kernels.find_kernel", lambda: Path("/nokernel"))
    return machines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "eth0"], "--device 'eth0': expected one of rxe0, soft:vec0, siw0"),
        (["--mode", "unreliable"], "--mode 'unreliable': rxe0 has datagram, connected"),
        (["--device", "siw0", "--mode", "connected"], "--mode 'connected': siw0 has datagram"),
        (["--hosts", "3"], "--hosts is not for --guests"),
        (["--fabric", "ib"], "--fabric needs --guests N"),
        (["--run", "a=true"], "--run needs --guests N"),
        (["--mtu", "1500"], "--mtu is not for --guests"),
        (["--cpu-latency", "0"], "--cpu-latency is not for --guests"),
        (["--json"], "--guests --json needs --check"),
        (["2", "--check"], "--check is for --guests without a number"),
        (["2", "--json", "--tap"], "--tap and --json are two reports"),
        (["2", "--impair", "loss 1x"], "--impair 'loss 1x': tc says: Illegal"),
        (["2", "--impair", "c:loss 1%"], "there is no machine 'c' but a, b"),
    ],
)
def test_an_option_that_machines_do_not_have_is_refused(
    machines: Machines, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["lab", "--guests", *words]) == 2
    assert said in capsys.readouterr().err
    assert machines.booted == []


def test_a_check_that_passes_says_so(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "--guests", "--check", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert machines.booted == [(("rxe0 (InfiniBand)", "kernel"), "judge", "datagram")]
    assert [host["host"] for host in report["hosts"]] == [
        "ipoibu on rxe0 (InfiniBand)",
        "the kernel's ib_ipoib",
    ]
    assert report["ok"] is True
    assert len(report["checks"]) == 2 * len(COMMON + LARGE["datagram"])
    assert report["checks"][0] == {"host": "h1", "check": COMMON[0], "ok": True}


def test_what_a_host_did_not_do_fails_the_check(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    machines.behaviours[1] = machines.behaviours[1][1:]
    assert main(["lab", "--guests", "--check"]) == 1
    seen = capsys.readouterr()
    assert f"FAIL  h2: {COMMON[0]}" in seen.out
    assert "27 of 28 checks passed" in seen.out


def test_a_machine_that_fails_fails_the_check(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    machines.results[1] = machines.result("b", None, "Kernel panic")
    assert main(["lab", "--guests", "--check"]) == 1
    assert "machine b: Kernel panic" in capsys.readouterr().err


def test_the_exit_code_is_that_of_the_command(machines: Machines) -> None:
    machines.results[0] = machines.result("a", 7)
    assert main(["lab", "--guests", "--mode", "connected", "--", "ls", "a b"]) == 7
    [(hosts, *words)] = machines.booted
    assert hosts == ("rxe0 (InfiniBand, no ib_cm)", "kernel")
    assert words == ["lab", "connected", "ls", "a b"]


def test_a_machine_that_fails_is_an_error_of_the_lab(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    machines.results[0] = machines.result("a", None, "did not end within 5 s")
    assert main(["lab", "--guests"]) == 1
    assert "machine a: did not end within 5 s" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_refused_before_anything_boots(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "--guests", "2", "--junit", "/proc/none/report"]) == 1
    assert "/proc/none/report" in capsys.readouterr().err


def test_a_lab_that_does_not_start_is_in_the_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> Path:
        raise LabError("there is no kernel")

    monkeypatch.setattr("ipoibu.lab.machines.lab.find_kernel", refuse)
    report = tmp_path / "junit.xml"
    assert main(["lab", "--guests", "2", "--tap", "--junit", str(report), "--", "true"]) == 1
    seen = capsys.readouterr()
    assert "there is no kernel" in seen.err
    assert "1..1\nnot ok 1 - lab\n" in seen.out
    assert '<failure type="machine" message="there is no kernel">' in report.read_text()
