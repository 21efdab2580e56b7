# SPDX-License-Identifier: BSD-2-Clause
"""The routes of the net device that the built-in HCA needs, when other interfaces' routes replace them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.conftest import Cli, Until

pytestmark = [pytest.mark.netns, pytest.mark.beside]


@pytest.mark.parametrize(
    "command",
    [
        "ip -6 route replace multicast ff00::/8 dev ib0 table local metric 256",
        "ip -6 route add default via fe80::99 dev eth0;"
        " ip -6 route del multicast ff00::/8 dev eth0 table local",
        "ip -6 route del fe80::/64 dev eth0",
    ],
    ids=["groups", "groups beside a router", "link"],
)
def test_a_device_that_loses_a_route_of_its_own_gets_it_back(
    command: str, lab: NamespaceLab, cli: Cli, until: Until, sh: Callable[[Host, str], str]
) -> None:
    """A router is no way to a group: the kernel would send it the packets."""
    host, peer = lab.hosts

    def routes() -> list[str]:
        return sorted(sh(host, "ip -6 route show table all dev eth0").splitlines())

    def restored() -> int:
        return int(host.ask("stats")["fabric.tx_routes"])

    before, whole = restored(), routes()
    sh(host, command)
    try:
        until(lambda: restored() > before)
        found = json.loads(cli(host, "doctor", "--device", "soft:eth0", "-j").stdout)
        assert [it["status"] for it in found if it["check"] == "multicast"] == ["ok"]
        for each in lab.hosts:
            sh(each, "ip neigh flush dev ib0")
            assert cli(each, "neigh", "flush", "dev", "ib0").returncode == 0
        sh(host, "ping -c 1 -w 20 10.77.0.2")
        sh(peer, "ping -c 1 -w 20 fd77::1")
        sh(host, "ip -6 route flush default dev eth0")
        assert routes() == whole
    finally:
        sh(host, "ip -6 route flush default dev eth0")
