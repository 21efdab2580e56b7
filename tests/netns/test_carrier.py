# SPDX-License-Identifier: BSD-2-Clause
"""The kernel sees the state of the port: carrier, operstate, events and speed of the interface."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.conftest import Until


def _link(host: Host, name: str = "ib0") -> dict[str, Any]:
    done = host.run(["ip", "-j", "link", "show", name])
    assert done.returncode == 0, done.stderr
    (link,) = json.loads(done.stdout)
    return dict(link)


def _has_carrier(host: Host) -> bool:
    flags = _link(host)["flags"]
    assert ("NO-CARRIER" in flags) is ("LOWER_UP" not in flags)
    return "LOWER_UP" in flags


def _speed(host: Host, name: str) -> str:
    text = host.run(["ethtool", name]).stdout
    (speed,) = re.findall(r"Speed: (.*)", text)
    return str(speed)


def test_the_interface_has_a_carrier_while_its_port_is_up(
    bare: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    bare.start()
    first, second = bare.hosts
    until(lambda: _link(first)["operstate"] == "UP")
    assert _has_carrier(first)
    assert _speed(first, "ib0") == _speed(first, "eth0")
    assert _speed(first, "ib0").endswith("Mb/s")
    gid = first.ask("show")["gid"]
    heard = tmp_path / "heard"
    with heard.open("w") as out:
        command = ["ip", "monitor", "link", "dev", "ib0"]
        monitor = first.namespace.popen(command, stdout=out)
    try:
        # It hears nothing until it listens, so give it something to hear.
        until(lambda: first.run(["ip", "link", "set", "ib0", "alias", "x"]) and heard.read_text())
        assert first.run(["ip", "link", "set", "eth0", "down"]).returncode == 0
        until(lambda: not _has_carrier(first))
        assert _link(first)["operstate"] == "DOWN"
        until(lambda: not _has_carrier(second))  # a veth loses its carrier with its peer
        assert first.run(["ip", "link", "set", "eth0", "up"]).returncode == 0
        first.run(["ip", "-6", "address", "add", f"{gid}/64", "dev", "eth0", "nodad"])
        until(lambda: _has_carrier(first) and _has_carrier(second))
        until(lambda: re.search("NO-CARRIER.*LOWER_UP", heard.read_text(), re.DOTALL))
    finally:
        monitor.terminate()
        monitor.wait(60)
    assert _link(first)["operstate"] == "UP"
    until(lambda: first.run(["ping", "-c1", "-W1", "10.77.0.2"]).returncode == 0)


def test_applications_learn_from_the_routes_that_the_port_is_down(
    bare: NamespaceLab, until: Until
) -> None:
    bare.start()
    first = bare.hosts[0]
    assert first.run(["ip", "link", "set", "eth0", "down"]).returncode == 0
    until(lambda: not _has_carrier(first))
    routes = json.loads(first.run(["ip", "-j", "route", "show", "dev", "ib0"]).stdout)
    assert routes
    assert all("linkdown" in route["flags"] for route in routes)
