# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu conform` grades `ipoibu up` on real packets; the whole suite runs with the nightly tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import NETDEV

pytestmark = pytest.mark.netns

QUICK = "E2,E3,E6,A1,R1,R3,T1,N2,C3,C4,C7"


@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_ipoibu_passes_the_quick_clauses(tmp_path: Path, mode: str) -> None:
    file = tmp_path / "report.json"
    with NamespaceLab(options=["--mode", mode], start=False) as lab:
        tester, host = lab.hosts
        host.start()
        words = ["--device", f"soft:{NETDEV}", "--peer", str(host.ipv4.ip), "--only", QUICK]
        command = [sys.executable, "-m", "ipoibu.cli", "conform", *words, "--json", str(file)]
        done = tester.namespace.popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output = done.communicate(timeout=120)[0].decode()
    assert done.returncode == 0, output
    counts = json.loads(file.read_text())["counts"]
    assert counts["fail"] == counts["warn"] == 0, output
    assert counts["pass"] > 50
    tested = {it["id"]: it["outcome"] for it in json.loads(file.read_text())["clauses"]}
    assert tested["C4"] == ("pass" if mode == "connected" else "not applicable")
