# SPDX-License-Identifier: BSD-2-Clause
"""IP over a mesh of RC connections, on the kernel's Soft-iWARP."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import SCENARIOS, Result, shell, source
from tests.lab.bare import run
from tests.lab.reports import load, received_bytes

pytestmark = pytest.mark.lab

POOL_THREADS = 2  # a daemon's control pool starts them when a busy machine first needs them

CASES = Path(__file__).parent / "scenarios"
PRELUDE = source(
    SCENARIOS / "verbs_host.sh",
    CASES / "verbs_cases.sh",
    CASES / "connected_host.sh",
    CASES / "mesh_host.sh",
)


def play(kernel: Path, directory: Path, scene: str, hosts: int, limit_s: int) -> list[Result]:
    """Run a function of mesh_host.sh in so many machines, and check every machine."""
    commands = [shell(f"{PRELUDE}as_host siw0 {scene}")] * hosts
    return [r.check() for r in run(kernel, commands, directory=directory, timeout_s=limit_s)]


def counters(directory: Path, name: str) -> dict[str, int]:
    stats: dict[str, int] = load(directory, f"stats-{name}")[0]["stats"]
    return stats


def test_three_hosts_find_each_other_by_one_seed(lab_kernel: Path, tmp_path: Path) -> None:
    for result in play(lab_kernel, tmp_path, "gather", 3, 200):
        pings = re.findall(r"(\d) packets transmitted, (\d) received", result.output)
        assert len(pings) == 6, result.output
        assert all(sent == received for sent, received in pings), result.output
    hwaddrs = {name: load(tmp_path, f"show-{name}")[0]["hwaddr"] for name in "abc"}
    for name in "abc":
        shown = load(tmp_path, f"show-{name}")[0]
        assert (shown["link_layer"], shown["mtu"]) == ("iWARP", 65520)
        peers = {row["peer"] for row in load(tmp_path, f"conn-{name}")}
        assert peers == {hwaddrs[other] for other in "abc" if other != name}
        assert counters(tmp_path, name).get("fabric.tx_errors", 0) == 0
    for family in ("4", "6"):
        assert (tmp_path / f"group{family}").read_text() == "hello, group\n"
    for direction in ("forward", "backward"):
        assert received_bytes(tmp_path, direction) > 10_000_000
    udp = load(tmp_path, "udp")["end"]["sum"]
    assert udp["packets"] > 100
    assert udp["lost_percent"] < 20  # a busy machine loses some datagrams


def test_a_host_that_restarts_under_load_is_connected_again(
    lab_kernel: Path, tmp_path: Path
) -> None:
    play(lab_kernel, tmp_path, "come_back", 3, 200)
    restarted = load(tmp_path, "show-b")[0]["hwaddr"]
    for name in "ac":
        assert restarted in {row["peer"] for row in load(tmp_path, f"conn-{name}")}
        assert counters(tmp_path, name).get("fabric.defect", 0) == 0


def test_garbage_and_a_thousand_connects_leave_nothing_behind(
    lab_kernel: Path, tmp_path: Path
) -> None:
    play(lab_kernel, tmp_path, "bother", 2, 400)
    assert set(load(tmp_path, "garbage")) == {"REJECTED"}
    assert set(load(tmp_path, "chatter")) <= {"ESTABLISHED", "DISCONNECTED"}
    connects = load(tmp_path, "connects")
    assert sum(connects.values()) == 1000
    assert connects.get("ESTABLISHED", 0) > 900
    seen = counters(tmp_path, "a")
    assert seen["fabric.mesh_greeting"] + seen["fabric.mesh_version"] == 25
    assert seen["fabric.rx_bad_control"] > 0
    assert seen["fabric.mesh_operation"] > 0
    assert seen["fabric.mesh_list"] > 0
    assert seen.get("fabric.defect", 0) == seen.get("engine.defect", 0) == 0
    was, now = load(tmp_path, "held")
    for what in ("qp", "cq", "cm_id", "mr", "pd"):
        assert now[what] <= was[what], (what, was, now)
    assert now["threads"] <= was["threads"] + POOL_THREADS, (was, now)
    assert now["fds"] < was["fds"] + 10
    assert now["rss_kb"] < was["rss_kb"] + 20_000


def test_peers_are_read_from_a_file_that_changes(lab_kernel: Path, tmp_path: Path) -> None:
    play(lab_kernel, tmp_path, "look_up", 2, 120)
    (row,) = load(tmp_path, "conn-b")
    assert row["locator"] == "10.8.0.1:4792"
