# SPDX-License-Identifier: BSD-2-Clause
"""The commands that watch and change a running interface, on real interfaces."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Cli = Callable[..., subprocess.CompletedProcess[str]]
Until = Callable[..., Any]
Sh = Callable[[Host, str], str]


def test_monitor_prints_a_neighbour_that_a_ping_resolves(lab: Lab, sh: Sh, until: Until) -> None:
    host = lab.hosts[0]
    monitor = host.namespace.popen(
        [sys.executable, "-m", "ipoibu.cli", "monitor", "-j", "--topic", "neigh"],
        stdout=subprocess.PIPE,
    )
    try:
        until(lambda: sh(host, "ping -c 1 -W 1 10.77.0.99; true") and _is_readable(monitor), 60)
        assert monitor.stdout is not None
        lines = (json.loads(line) for line in monitor.stdout)
        event = next(event for event in lines if event["subject"] == "10.77.0.99")
        assert (event["dev"], event["topic"]) == ("ib0", "neigh")
        assert event["state"] in ("incomplete", "failed")
    finally:
        monitor.terminate()
        monitor.communicate(timeout=30)


def _is_readable(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], 0)[0])
