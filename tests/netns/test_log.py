# SPDX-License-Identifier: BSD-2-Clause
"""The log of a running `ipoibu up` tells what happened to neighbours, groups, connections and packets."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., object]


def _has(host: Host, pattern: str) -> Callable[[], object]:
    """A condition: the host's log has a line that matches."""
    return lambda: re.search(pattern, host.log(), re.MULTILINE)


def test_neighbours_groups_and_connections_come_and_go(sh: Sh, until: Until) -> None:
    with NamespaceLab(options=["--log-level", "debug", "--mode", "connected"]) as lab:
        host, other = lab.hosts
        until(lambda: host.run(["ping", "-c1", "-W2", str(other.ipv4.ip)]).returncode == 0)
        hwaddr = other.ask("show")["hwaddr"]
        until(_has(host, rf"DEBUG: ib0: neighbour {other.ipv4.ip} learnt: {hwaddr}: "))
        assert "INFO: ib0: joined group ff12:401b:ffff::ffff:ffff" in host.log()
        until(_has(host, r"INFO: ib0: connected to 00:.*, active$"))
        host.run(["ping", "-c", "1", "-W", "1", "10.77.0.99"])
        until(_has(host, r"INFO: ib0: neighbour 10\.77\.0\.99 failed: no host answers$"))
        other.stop()
        until(_has(host, r"INFO: ib0: the connection to 00:.*, active, ended: .*: the peer"))
        other.start()
        until(lambda: other.run(["ping", "-c1", "-W2", str(host.ipv4.ip)]).returncode == 0)
        until(
            _has(host, rf"WARNING: ib0: neighbour {other.ipv4.ip} moved from {hwaddr} to [^ ]+: "),
        )


def test_a_host_with_a_larger_mtu_is_named_as_the_cause(bare: NamespaceLab, until: Until) -> None:
    small, large = bare.hosts
    small.options += ["--mtu", "2044"]
    large.options += ["--mtu", "4092"]
    try:
        bare.start()
        until(lambda: _ping(large, small, 1000).returncode == 0)
        _ping(large, small, 4000)
        line = (
            r"WARNING: ib0: dropped a packet from fe80::[0-9a-f:]+, fabric\.drop_too_long: another"
            r" host of the link probably has a larger MTU than ours, 2044: give all hosts of the link"
            r" the same --mtu$"
        )
        until(_has(small, line))
    finally:
        for host in bare.hosts:
            host.stop()


def _ping(host: Host, other: Host, size: int) -> subprocess.CompletedProcess[str]:
    return host.run(["ping", "-c", "1", "-W", "2", "-M", "do", "-s", str(size), str(other.ipv4.ip)])
