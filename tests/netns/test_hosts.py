# SPDX-License-Identifier: BSD-2-Clause
"""Labs of two, three and eight hosts through `ipoibu lab --check`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.check import Outcome, check, ping, tcp

pytestmark = pytest.mark.netns


def _lab(*words: str, timeout_s: float = 250) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ipoibu.cli", "lab", "--check", *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def test_two_hosts_pass_the_check_in_words() -> None:
    done = _lab()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 hosts up in ")
    assert lines[-1] == "12 of 12 checks passed"
    for word in ("ping ipv4", "ping ipv6", "multicast ipv4", "multicast ipv6", "tcp ipv4"):
        assert any(line.startswith(f"ok    {word}  h1 -> h2") for line in lines)


def _json(*words: str) -> dict[str, Any]:
    done = _lab("--json", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


@pytest.mark.parametrize("hosts", [3, 8])
def test_more_hosts_on_a_bridge_pass_the_check(hosts: int) -> None:
    report = _json("--hosts", str(hosts))
    assert report["ok"]
    assert len(report["hosts"]) == hosts
    assert set(report["hosts"][0]) == {
        "name",
        "namespace",
        "netdev",
        "interface",
        "ipv4",
        "ipv6",
        "show",
    }
    # each ordered pair pings and receives multicast, each neighbour in the ring takes TCP, twice
    assert len(report["checks"]) == 2 * (2 * hosts * (hosts - 1) + hosts)
    assert {tuple(sorted(each)) for each in report["checks"]} == {
        ("check", "detail", "family", "from", "ok", "seconds", "to")
    }


def test_options_of_the_lab_reach_the_hosts() -> None:
    report = _json("--mtu", "4092")
    assert [host["show"]["mtu"] for host in report["hosts"]] == [4092, 4092]
    report = _json("--mtu", "1500", "--faults", "loss=0.02,seed=3")
    assert [host["show"]["mtu"] for host in report["hosts"]] == [1500, 1500]


def test_the_check_fails_where_a_host_is_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipoibu.lab.check.PATIENCE_S", 0.6)
    with NamespaceLab() as lab:
        first, second = lab.hosts
        second.kill()
        outcomes: list[Outcome] = list(check(lab))
        assert not any(outcome.ok for outcome in outcomes)
        second.start()
        monkeypatch.undo()
        assert ping(first, second, "ipv4").ok
        assert tcp(first, second, "ipv6", 100_000).ok
