# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab doctor`: what it checks, and its exit code."""

from __future__ import annotations

import json
import sys

import pytest

from ipoibu.cli.main import main
from ipoibu.doctor.finding import Finding

CHECKS = [
    "lab_namespaces",
    "tun",
    "lab_ibsim",
    "machine_processor",
    "machine_seccomp",
    "machine_ptrace",
    "machine_memory",
    "machine_path",
    "machine_kernel",
    "machine_userland",
    "machine_boot",
    "machine_programs",
    "machine_verbs",
    "machine_opensm",
]


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask apt nothing: it takes a second."""
    monkeypatch.setattr("ipoibu.lab.machines.kernels.check_kernel", lambda: (0, "built /k/linux"))


def test_it_checks_what_hosts_and_machines_need(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["lab", "doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)
    assert [finding["check"] for finding in findings] == CHECKS
    assert code == (1 if "fail" in [finding["status"] for finding in findings] else 0)
    assert all(finding["remedy"] for finding in findings if finding["status"] in ("warn", "fail"))


def test_a_host_that_lacks_something_is_exit_code_1_and_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = Finding("machine_ptrace", "fail", "no process may trace its child", "mend it")
    monkeypatch.setattr("ipoibu.doctor.lab.tracing", lambda be_traced, is_needed: finding)
    assert main(["lab", "doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("fail  machine_ptrace     no process may trace its child")
    assert lines[at + 1].strip() == "mend: mend it"


def test_a_copy_without_compiled_modules_has_machines_with_a_userland(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ipoibu.doctor.machine", None)
    monkeypatch.setattr("ipoibu.lab.machines.mounts.lacking", lambda *, runs_ipoibu: ["rdma"])
    monkeypatch.setattr("ipoibu.lab.userland.image.cached", lambda: ["/u  Debian bookworm"])
    main(["lab", "doctor", "--json"])
    found = {each["check"]: each for each in json.loads(capsys.readouterr().out)}
    assert "tun" not in found
    assert "no C core" in found["lab_namespaces"]["detail"]
    assert found["machine_userland"] == {
        "check": "machine_userland",
        "status": "ok",
        "detail": "machines have the userland /u  Debian bookworm, because the host lacks rdma",
        "remedy": None,
    }
    assert {"machine_boot", "machine_programs", "machine_verbs"} & set(found) == {"machine_boot"}


def test_it_runs_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "doctor", "--", "true"]) == 2
    assert capsys.readouterr().err == "ipoibu: lab doctor runs no COMMAND\n"
