# SPDX-License-Identifier: BSD-2-Clause
"""The device of the default route, and the processes of `ipoibu run`; tests/netns runs the whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ipoibu.rootless.process import Process
from ipoibu.rootless.run import default_device

ROUTE = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
LINE = "{}\t{}\t00000000\t0001\t0\t0\t0\t{}\t0\t0\t0\n"
SIX = "{} {} 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 {:>8}\n"  # noqa: E501
ZERO = "0" * 32


@pytest.mark.parametrize(
    ("four", "six", "device"),
    [
        (LINE.format("eth1", "00000000", "00000000"), "", "soft:eth1"),
        (LINE.format("eth1", "000A0A0A", "00FFFFFF"), "", None),
        (LINE.format("eth1", "00000000", "000000F0"), "", None),  # 0.0.0.0/4 is no default route
        ("", SIX.format(ZERO, "00", "eth2"), "soft:eth2"),
        ("", SIX.format(ZERO, "00", "lo"), None),
        ("", SIX.format("fd" + "0" * 30, "40", "eth2"), None),
    ],
)
def test_the_default_route_names_the_device(
    tmp_path: Path, four: str, six: str, device: str | None
) -> None:
    (tmp_path / "route").write_text(ROUTE + four)
    (tmp_path / "ipv6_route").write_text(six)
    assert default_device(tmp_path) == device


def test_without_routes_there_is_no_device(tmp_path: Path) -> None:
    assert default_device(tmp_path) is None


@pytest.mark.parametrize(("code", "status"), [("return 0", 0), ("return 9", 9)])
def test_a_process_ends_with_the_status_of_its_body(code: str, status: int) -> None:
    assert _in_a_process_of_its_own(code) == status


def test_a_process_that_dies_of_a_signal_has_a_shells_status() -> None:
    kill = f"import os; os.kill(os.getpid(), {signal.SIGTERM:d})"
    assert _in_a_process_of_its_own(kill) == 128 + signal.SIGTERM


def test_a_process_that_raises_has_failed() -> None:
    assert _in_a_process_of_its_own("raise SystemError") == 1


def _in_a_process_of_its_own(code: str) -> int:
    """Fork in a program with one thread, which pytest is not."""
    program = (
        "from ipoibu.rootless.process import Process\n"
        f"def body():\n    {code}\n"
        "process = Process(body)\n"
        "while process.poll() is None: pass\n"
        "print(process.status)\n"
    )
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, check=True, capture_output=True, timeout=30)
    return int(done.stdout)


def test_an_ended_process_gets_no_signal_and_is_waited_for_once() -> None:
    child = subprocess.Popen(["true"])
    process = Process.__new__(Process)
    process.pid = child.pid
    process.status = None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    process.signal(signal.SIGTERM)
    assert process.poll() == process.end(0) == 0
    child.returncode = 0
