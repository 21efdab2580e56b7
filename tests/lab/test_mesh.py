# SPDX-License-Identifier: BSD-2-Clause
"""IP over an iWARP mesh, on the kernel's Soft-iWARP."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .runner import Result, run, shell

pytestmark = pytest.mark.lab

SCENARIOS = '"$LAB_INSIDE/../scenarios'
PRELUDE = f'. {SCENARIOS}/verbs_host.sh"; . {SCENARIOS}/mesh_host.sh"\n'


def play(kernel: Path, directory: Path, scene: str, count: int, *, limit_s: int) -> list[Result]:
    """A function of mesh_host.sh in as many guests, to its good end."""
    commands = [shell(f"{PRELUDE}{scene}") for _ in range(count)]
    results = run(kernel, commands, directory=directory, timeout_s=limit_s)
    return [result.check() for result in results]


def load(directory: Path, name: str) -> Any:
    return json.loads((directory / f"{name}.json").read_text())


def test_two_hosts_ping_over_connections(lab_kernel: Path, tmp_path: Path) -> None:
    for result in play(lab_kernel, tmp_path, "mesh_pair", 2, limit_s=90):
        pings = re.findall(r"(\d) packets transmitted, (\d) received", result.output)
        assert pings == [("5", "5")] * 3, result.output
    for name in ("a", "b"):
        shown = load(tmp_path, f"show-{name}")[0]
        assert (shown["mtu"], shown["link_layer"]) == (65520, "iWARP mesh")
        stats = load(tmp_path, f"stats-{name}")[0]["stats"]
        assert stats["fabric.rx_malformed"] == stats["fabric.rx_overrun"] == 0


def received_mbit(report: dict[str, Any]) -> float:
    return float(report["end"]["sum_received"]["bits_per_second"]) / 1e6


def test_three_hosts_with_one_seed(lab_kernel: Path, tmp_path: Path) -> None:
    play(lab_kernel, tmp_path, "mesh_three", 3, limit_s=240)
    assert (
        (tmp_path / "group4").read_text() == (tmp_path / "group6").read_text() == "hello, group\n"
    )
    assert received_mbit(load(tmp_path, "forward")) > 50
    assert received_mbit(load(tmp_path, "backward")) > 50
    for name in ("a", "b", "c"):
        stats = load(tmp_path, f"stats-{name}")[0]["stats"]
        assert stats["fabric.peers"] == 2
        for trouble in ("rx_malformed", "rx_overrun", "stalled", "tx_too_big"):
            assert stats[f"fabric.{trouble}"] == 0, (name, trouble)


def test_multicast_goes_to_members_only(lab_kernel: Path, tmp_path: Path) -> None:
    """The sender's copies of a flood to a group that one of two peers has joined."""
    play(lab_kernel, tmp_path, "mesh_members", 3, limit_s=120)
    before, after = (load(tmp_path, f"{when}-b")[0]["stats"] for when in ("before", "after"))
    copies = after["fabric.tx_copies"] - before["fabric.tx_copies"]
    sent = after["tx_multicast_packets"] - before["tx_multicast_packets"]
    assert 200 <= sent <= 220  # the flood, and a few of the kernel's own to groups that all are in
    assert copies <= 200 + 2 * (sent - 200) + 8
    assert (tmp_path / "flood").read_text().count("hello") >= 190
