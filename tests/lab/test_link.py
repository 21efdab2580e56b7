# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab --guests --device`: ipoibu beside the kernel, from the command line to the exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ipoibu.lab.machines.judge import COMMON, LARGE

pytestmark = pytest.mark.lab


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ipoibu.cli", "lab", "--guests", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_hosts_on_soft_iwarp_pass_the_check(lab_kernel: Path) -> None:
    done = lab("--device", "siw0", "--check", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["ok"]
    for name in ("a", "b"):
        passed = [check["check"] for check in report["checks"] if check["host"] == name]
        assert sorted(passed) == sorted(COMMON + LARGE["datagram"])


def test_the_link_is_shown_from_both_sides(lab_kernel: Path) -> None:
    done = lab("--device", "rxe0")
    assert done.returncode == 0, done.stdout + done.stderr
    first, rest = done.stdout.split("\nb  ib_ipoib on rxe0")
    second, reach = rest.split("\n$ ping", 1)
    assert "ib0: device rxe0 port 1 InfiniBand state up mode datagram mtu 4092" in first
    # IPv4 and IPv6; a busy machine loses some datagrams.
    assert len(re.findall(r"3 packets transmitted, [123] received", reach)) == 2
    assert "lladdr 80:00:" in reach  # the kernel's flag of connected mode, RFC 4755
    assert "ipoib pkey 0xffff mode datagram" in second


def test_a_command_runs_beside_ipoibu(lab_kernel: Path) -> None:
    done = lab(
        "--device", "rxe0", "--mode", "connected", "--", "bash", "-c", "ipoibu show ib0; exit 7"
    )
    assert done.returncode == 7, done.stdout + done.stderr
    assert "mode connected mtu 65520" in done.stdout
