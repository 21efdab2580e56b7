# SPDX-License-Identifier: BSD-2-Clause
"""The commands that watch and change a running interface, on real interfaces."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Cli = Callable[..., subprocess.CompletedProcess[str]]
Until = Callable[..., Any]
Sh = Callable[[Host, str], str]


def test_monitor_prints_a_neighbour_that_a_ping_resolves(lab: NamespaceLab) -> None:
    host = lab.hosts[0]
    monitor = host.namespace.popen(
        [sys.executable, "-m", "ipoibu.cli", "monitor", "-j", "--topic", "neigh"],
        stdout=subprocess.PIPE,
    )
    pings = host.namespace.popen(["ping", "-q", "10.77.0.99"], stdout=subprocess.DEVNULL)
    try:
        assert monitor.stdout is not None
        lines = (json.loads(line) for line in monitor.stdout)
        events = (event for event in lines if event["subject"] == "10.77.0.99")
        # A monitor that begins late may see the end of the entry first; the pings make another one.
        event = next(event for event in events if event["state"] != "none")
        assert (event["dev"], event["topic"]) == ("ib0", "neigh")
        assert event["state"] in ("incomplete", "failed")
    finally:
        pings.kill()
        pings.wait()
        monitor.terminate()
        monitor.communicate(timeout=30)


def test_ping_and_path_know_the_other_host(lab: NamespaceLab, cli: Cli) -> None:
    host, other = lab.hosts
    hwaddr = other.ask("show")["hwaddr"]
    for target, ip in (("10.77.0.2", "10.77.0.2"), ("fd77::2", "fd77::2")):
        done = cli(host, "ping", "-j", "-c", "1", "-W", "10000", target)
        answer = json.loads(done.stdout)
        assert (answer["ip"], answer["hwaddr"], answer["reason"]) == (ip, hwaddr, None), answer
    by_hwaddr = json.loads(cli(host, "ping", "-j", "-c", "1", "-W", "10000", hwaddr).stdout)
    assert (by_hwaddr["hwaddr"], by_hwaddr["reason"]) == (hwaddr, None)
    silent = cli(host, "ping", "-c", "1", "-W", "10", "10.77.0.77")
    assert (silent.returncode, silent.stderr) == (1, "")
    assert silent.stdout.startswith("1: 10.77.0.77 dev ib0: no answer\n")
    cli(host, "ping", "10.77.0.2", "-c", "1")
    sh_ping = host.run(["ping", "-c", "1", "-W", "10", "10.77.0.2"])
    assert sh_ping.returncode == 0
    (path,) = json.loads(cli(host, "path", "ib0", "-j").stdout)
    assert "10.77.0.2" in path["next_hops"]


def test_top_shows_the_interface_with_its_rates(lab: NamespaceLab, cli: Cli) -> None:
    done = cli(lab.hosts[0], "top", "-j", "-n", "1", "-d", "0.1")
    (interface,) = json.loads(done.stdout)["interfaces"]
    assert (interface["dev"], interface["state"]) == ("ib0", "up")
    assert interface["rx_bytes_s"] >= 0
    table = cli(lab.hosts[0], "top", "-n", "1", "-d", "0.1")
    assert (table.returncode, "ib0" in table.stdout) == (0, True), table.stderr


def test_options_change_while_the_interface_runs(
    lab: NamespaceLab, cli: Cli, sh: Sh, until: Until
) -> None:
    host = lab.hosts[0]
    done = cli(host, "set", "ib0", "busy-poll", "50", "-j")
    assert json.loads(done.stdout) == {
        "dev": "ib0",
        "option": "busy-poll",
        "value": "50",
        "before": "auto",
    }
    assert cli(host, "set", "ib0", "busy-poll", "auto").stdout.endswith("(before: 50)\n")
    assert cli(host, "set", "ib0", "mtu", "1400").stdout == "ib0: mtu 1400 (before: 2044)\n"
    assert "mtu 1400" in sh(host, "ip link show ib0")
    shown = host.ask("show")
    assert (shown["mtu"], shown["link_mtu"]) == (1400, 2044)
    assert " mtu 1400 of 2044\n" in cli(host, "show", "ib0").stdout
    assert host.ask("metrics")["mtu"] == 1400
    sh(host, "ip link set ib0 mtu 1300")
    until(lambda: host.ask("show")["mtu"] == 1300)
    sh(host, "ip link set ib0 mtu 1400")
    until(lambda: host.ask("show")["mtu"] == 1400)
    until(lambda: "before: 1400" in cli(host, "set", "ib0", "mtu", "2044").stdout)
    for mtu in ("1279", "4092"):
        refused = cli(host, "set", "ib0", "mtu", mtu)
        assert (refused.returncode, f"MTU {mtu}: " in refused.stderr) == (1, True)
    assert cli(host, "log", "ib0", "info").stdout == "ib0: log-level info (before: warning)\n"
    assert cli(host, "log", "ib0", "warning").returncode == 0
    assert "ib0: log-level is info now, not warning" in host.log()
