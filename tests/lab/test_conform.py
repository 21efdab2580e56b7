# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu conform` grades the kernel's own driver; `python -m tests.lab.grading` runs the whole suite."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.machines.mounts import ROOT

pytestmark = pytest.mark.lab

QUICK = "E2,E6,A1,R1,T1,C3,C4"


def test_the_kernel_passes_the_quick_clauses(lab_kernel: Path) -> None:
    """The tester takes the port of a machine whose ipoibu is down: its kernel leaves queue pair 1 alone."""
    ipoibu = f"cd {ROOT}; {sys.executable} -m ipoibu.cli"
    with Lab(2, kernel=lab_kernel, ipoib="ipoibu,kernel", mode="connected") as lab:
        lab.a.succeed(f"{ipoibu} down ib0")
        words = f"--device rxe0 --peer {lab.b.ipv4} --only {QUICK} --json /tmp/report.json"
        lab.a.succeed(f"{ipoibu} conform {words}")
        counts = json.loads(lab.a.get("/tmp/report.json"))["counts"]
    assert counts["fail"] == counts["warn"] == 0
    assert counts["pass"] > 30
