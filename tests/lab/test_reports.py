# SPDX-License-Identifier: BSD-2-Clause
"""What `ipoibu lab --guests N` leaves: a report in JUnit XML, one in TAP, and a capture of the wire."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.lab


def test_a_lab_leaves_reports_and_a_capture(lab_kernel: Path, tmp_path: Path) -> None:
    report, capture = tmp_path / "junit.xml", tmp_path / "wire.pcapng"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ipoibu.cli", "lab", "--guests", "2"),
            *("--capture", str(capture), "--junit", str(report), "--tap"),
            *("--impair", "delay 1ms", "--impair", "b:delay 2ms"),
            *("--run", "all=tc qdisc show dev vec0"),
            *("--run", "a=ping -q -c 1 -W 10 10.9.0.2"),
            *("--run", r"a=printf '1..2\nok 1 - one\nnot ok 2 - two\n'; touch /run/lab/said"),
            *("--run", "b=until test -e /run/lab/said; do sleep 0.1; done; echo no; exit 7"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("TAP version 14\n1..2\n# Subtest: a\n")
    assert "\n    1..2\n    ok 1 - one\n    not ok 2 - two\nok 1 - a\n" in done.stdout
    assert "\nnot ok 2 - b\n" in done.stdout
    assert f"{capture}: " in done.stderr
    assert " frames captured, 0 dropped\n" in done.stderr
    (suite,) = ElementTree.parse(report).getroot()
    assert [suite.get(it) for it in ("tests", "failures", "skipped")] == ["2", "1", "0"]
    first, second = suite
    assert "delay 1ms" in (first.findtext("system-out") or "")
    assert "delay 2ms" in (second.findtext("system-out") or "")
    failure = second.find("failure")
    assert failure is not None
    assert failure.get("message") == "exit status 7"
    words = [
        "tshark",
        "-r",
        str(capture),
        "-Y",
        "icmp",
        "-T",
        "fields",
        "-e",
        "frame.interface_name",
    ]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["a", "b"]
