# SPDX-License-Identifier: BSD-2-Clause
"""Connected mode on the kernel's Soft-RoCE, by librdmacm, and between it and the built-in HCA."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.limits import CONNECTIONS_PER_PORT_MAX
from ipoibu.lab.machines.runner import SCENARIOS, Result, shell, source
from tests.lab.bare import run
from tests.lab.reports import load, received_bytes

pytestmark = pytest.mark.lab

MTU = 65520
CASES = Path(__file__).parent / "scenarios" / "connected_host.sh"
PRELUDE = source(SCENARIOS / "verbs_host.sh", CASES)
PAIRS = [("rxe0", "rxe0"), ("rxe0", "soft:vec0"), ("soft:vec0", "rxe0")]


def play(kernel: Path, directory: Path, scene: str, *devices: str, limit_s: int) -> list[Result]:
    """Run a function of connected_host.sh in a machine for each device, and check every machine."""
    commands = [shell(f"{PRELUDE}as_host {device} {scene} {device}") for device in devices]
    results = run(kernel, commands, directory=directory, timeout_s=limit_s)
    return [result.check() for result in results]


def live(directory: Path, name: str, role: str) -> list[dict[str, Any]]:
    rows = load(directory, f"conn-{name}")
    return [row for row in rows if (row["role"], row["state"]) == (role, "live")]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_hosts_converse_by_connection(
    lab_kernel: Path, tmp_path: Path, first: str, second: str
) -> None:
    for result in play(lab_kernel, tmp_path, "connect", first, second, limit_s=150):
        pings = re.findall(r"(\d) packets transmitted, (\d) received", result.output)
        assert len(pings) == 3, result.output
        assert all(sent == received for sent, received in pings), result.output
    for name, device in (("a", first), ("b", second)):
        shown = load(tmp_path, f"show-{name}")[0]
        assert (shown["mtu"], shown["mode"]) == (MTU, "connected")
        assert shown["hwaddr"].startswith("80:")
        (ours,), (theirs,) = live(tmp_path, name, "active"), live(tmp_path, name, "passive")
        assert ours["mtu"] == MTU
        assert ours["tx_messages"] > 100
        assert theirs["rx_messages"] > 100
        if device == "rxe0":
            counters = load(tmp_path, f"stats-{name}")[0]["stats"]
            assert counters["fabric.connected_posted"] >= counters["fabric.connected_doorbells"]
            assert counters.get("tx_connection_failed", 0) == 0
            assert ours["retries"] is None  # the kernel does not report it
    ((mine,), (yours,)) = (live(tmp_path, name, "active") for name in ("a", "b"))
    assert (mine["peer"], yours["peer"]) != ("", "")
    for direction in ("forward", "backward"):
        assert received_bytes(tmp_path, direction) > 10_000_000
    udp = load(tmp_path, "udp")["end"]["sum"]
    assert udp["packets"] > 100
    assert udp["lost_percent"] < 20  # a busy machine loses some datagrams


def test_a_datagram_host_is_among_them(lab_kernel: Path, tmp_path: Path) -> None:
    """C8, C12, C13: the others learn its MTU, and traffic goes on."""
    play(lab_kernel, tmp_path, "mix", "rxe0", "rxe0", "soft:vec0", limit_s=150)
    for name in ("a", "b"):
        assert "0 received, +1 errors" in (tmp_path / f"refused-{name}").read_text()
        assert "mtu 2044" in (tmp_path / f"route-{name}").read_text()
        assert len(live(tmp_path, name, "active")) == 1
    assert received_bytes(tmp_path, "small") > 1_000_000
    assert load(tmp_path, "conn-c") == []


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_peer_that_stops_and_one_that_restarts_are_connected_again(
    lab_kernel: Path, tmp_path: Path, first: str, second: str
) -> None:
    play(lab_kernel, tmp_path, "stumble", first, second, limit_s=200)
    seconds = load(tmp_path, "stumbled")["intervals"]
    assert any(second["sum"]["bytes"] > 0 for second in seconds[6:])  # long after the stop began
    if second != "rxe0":  # on rxe0 the kernel receives what the daemon does not
        counters = load(tmp_path, "stats-stopped")[0]["stats"]
        assert counters["engine.connection_broken"] >= 1
    restarted = load(tmp_path, "show-b")[0]["hwaddr"]
    assert restarted[3:] in {row["peer"][3:] for row in live(tmp_path, "a", "active")}


def test_a_flood_of_requests_to_rdma_cm_is_refused_at_the_cap(
    lab_kernel: Path, tmp_path: Path
) -> None:
    play(lab_kernel, tmp_path, "beset", "rxe0", "soft:vec0", limit_s=250)
    accepted, refused = map(int, (tmp_path / "flood").read_text().split())
    assert 0 < accepted <= CONNECTIONS_PER_PORT_MAX
    assert accepted + refused == 150
    assert len(load(tmp_path, "conn-a")) <= CONNECTIONS_PER_PORT_MAX


def test_receives_of_messages_that_do_not_end_come_back(lab_kernel: Path, tmp_path: Path) -> None:
    """rxe of Linux 6.1 completes them in error; that of 6.12 loses them: `rx_lost`."""
    play(lab_kernel, tmp_path, "interrupt", "rxe0", "soft:vec0", limit_s=250)
    assert load(tmp_path, "stats-a")[0]["stats"]["rx_failed"] >= 1
