# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab --guests`: its options, what it prints and its exit code. No machine boots here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ipoibu.cli.main import main
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.judge import COMMON, LARGE
from ipoibu.lab.machines.lab import Lab
from ipoibu.lab.machines.machine import Execution
from ipoibu.lab.machines.plan import Plan
from ipoibu.lab.machines.runner import Result


class HostMachine:
    """Stands for a machine that can do all but what `cannot` has: words of scripts."""

    def __init__(self, plan: Plan, cannot: list[str]) -> None:
        self.name, self.interface, self.description = plan.name, plan.interface, plan.description
        self.ipv4, self.ipv6 = plan.ipv4, plan.ipv6
        self.cannot = cannot
        self.ran: list[str] = []
        self.is_running = False
        self.output = self.errors = "hello"

    def execute(self, command: str, timeout: float = 0) -> Execution:
        self.ran.append(command)
        return Execution(int(any(it in command for it in self.cannot)), "what it said\n")

    def succeed(self, command: str) -> str:
        self.ran.append(command)
        return "4092\n"

    def start(self, command: str) -> HostMachine:
        return self

    def wait(self, timeout: float) -> Execution:
        return Execution(0, self.output)

    def kill(self) -> None:
        pass


class Machines:
    """Stands for the machines of a lab, none of which boots; `cannot` has what one of them cannot do."""

    def __init__(self) -> None:
        self.cannot: dict[str, list[str]] = {}
        self.labs: list[Lab] = []

    def start(self, lab: Lab) -> None:
        self.labs.append(lab)
        lab.guests = tuple(
            HostMachine(it, self.cannot.get(it.name, []))  # type: ignore[misc]
            for it in lab.plans
        )

    def close(self, lab: Lab) -> None:
        lab.results = [Result(it.name, None, "", "", "the lab ended", 1.0) for it in lab.plans]

    def ran(self, index: int) -> list[str]:
        machine: Any = self.labs[0].guests[index]
        return [str(command) for command in machine.ran]


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    machines = Machines()

    def start(lab: Lab) -> None:
        machines.start(lab)

    def close(lab: Lab) -> None:
        machines.close(lab)

    monkeypatch.setattr(Lab, "start", start)
    monkeypatch.setattr(Lab, "close", close)
    return machines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "eth0"], "--device 'eth0': expected one of rxe0, soft:vec0, siw0"),
        (["--mode", "unreliable"], "--mode 'unreliable': expected one of datagram, connected"),
        (["--device", "siw0", "--mode", "connected"], "on iwarp ipoibu has datagram mode only"),
        (
            ["--device", "siw0", "--fabric", "ib"],
            "--device siw0: a machine has none with --fabric ib",
        ),
        (["--device", "rxe0", "--fabric", "none"], "--device rxe0: a machine has none with"),
        (["--hosts", "3"], "--hosts is not for --guests"),
        (["--fabric", "ethernet"], "--fabric 'ethernet': expected one of ib, roce, iwarp, none"),
        (["--mtu", "1500"], "--mtu is not for --guests"),
        (["--cpu-latency", "0"], "--cpu-latency is not for --guests"),
        (["--ipoib", "kernel,none", "--check"], "--check needs two machines with IP over"),
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
    assert machines.labs == []


def test_guests_without_a_number_are_two(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([], ["2"]):
        assert main(["lab", "--guests", *words]) == 0
    first, second = ([it.kind for it in lab.plans] for lab in machines.labs)
    assert first == second == ["kernel", "kernel"]
    assert "$ ping -c 3 -i 0.2 -W 5 10.9.0.2\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["3", "--device", "rxe0"], ["ipoibu", "kernel", "ipoibu"]),
        (["--device", "soft:vec0"], ["ipoibu:soft", "kernel"]),
        (["--device", "siw0"], ["ipoibu", "ipoibu"]),
        (["--device", "rxe0", "--fabric", "roce"], ["ipoibu", "ipoibu"]),
        (["--device", "soft:vec0", "--ipoib", "mixed"], ["kernel", "ipoibu:soft"]),
        (["--fabric", "none"], ["none", "none"]),
    ],
)
def test_a_device_says_what_ipoibu_runs_on(
    machines: Machines, words: list[str], kinds: list[str]
) -> None:
    assert main(["lab", "--guests", *words]) == 0
    assert [it.kind for it in machines.labs[0].plans] == kinds


def test_a_check_that_passes_says_so(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "--guests", "--device", "rxe0", "--check", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [host["host"] for host in report["hosts"]] == [
        "ipoibu on rxe0 as an InfiniBand port",
        "ib_ipoib on rxe0 as an InfiniBand port",
    ]
    assert report["ok"] is True
    assert len(report["checks"]) == 2 * len(COMMON + LARGE["datagram"])
    wanted = {"host": "a", "peer": "b", "check": COMMON[0], "ok": True, "detail": ""}
    assert report["checks"][0] == wanted
    assert any("interface_again ipoibu" in it for it in machines.ran(0))
    assert any("interface_again kernel" in it for it in machines.ran(1))


def test_each_machine_of_several_is_checked_with_the_next_one(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "--guests", "4", "--ipoib", "kernel,none,kernel,kernel", "--check"]) == 0
    seen = capsys.readouterr().out
    pairs = [line.partition(":")[0] for line in seen.splitlines() if COMMON[0] in line]
    ways = ["a -> c", "c -> a", "c -> d", "d -> c", "d -> a", "a -> d"]
    assert pairs == [f"ok    {way}" for way in ways]
    assert "all 84 checks passed" in seen
    assert any("all_nodes_answer 3" in it for it in machines.ran(0))


def test_what_a_host_did_not_do_fails_the_check(
    machines: Machines, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machines.cannot["b"] = ["every_size 10.9.0.1"]
    report = tmp_path / "junit.xml"
    words = ["--check", "--junit", str(report), "--run", "a=exit 7"]
    assert main(["lab", "--guests", *words]) == 1
    seen = capsys.readouterr()
    assert f"FAIL  b -> a: {COMMON[2]}" in seen.out
    assert seen.out.count("FAIL") == 1
    assert "what it said\n" in seen.err
    assert "1 of 28 checks failed" in seen.err
    assert 'message="1 of 28 checks failed"' in report.read_text()


def test_a_restart_that_fails_fails_both_ways(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    machines.cannot["a"] = ["interface_again"]
    assert main(["lab", "--guests", "--check"]) == 1
    seen = capsys.readouterr()
    assert [it for it in seen.out.splitlines() if it.startswith("FAIL")] == [
        f"FAIL  {way}: {COMMON[-2]}" for way in ("a -> b", "b -> a")
    ]


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
