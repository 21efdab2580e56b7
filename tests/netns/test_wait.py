# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up` waits for a device that is not ready, and says what a port lacks that goes down."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.errors import LabError
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

# The kernel makes no link-local address in a lab; this one is not checked for duplicates.
UP = "ip link set eth0 up; ip -6 address replace fe80::200:ff:fe00:1/64 dev eth0 nodad"

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]


def test_a_host_waits_until_its_device_is_up(bare: NamespaceLab, sh: Sh, until: Until) -> None:
    first, second = bare.hosts
    sh(first, "ip link set eth0 down")
    first.options += ["--wait", "600"]
    try:
        first.start(wait=False)
        until(
            lambda: (
                "WARNING: ib0: waits up to 600 s for the device: soft:eth0: the device is down"
                in first.log()
            ),
        )
        sh(first, UP)
        first.wait_ready()
        second.start()
        sh(first, f"ping -c 1 -W 10 {second.ipv4.ip}")
    finally:
        first.stop()
        second.stop()


def test_a_host_waits_for_a_device_that_comes_late_and_not_unasked(
    bare: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, _ = bare.hosts
    sh(first, "ip link set eth0 name later")
    with pytest.raises(LabError, match=r"soft:eth0: no such network device; `ip link` lists them"):
        first.start()
    first.stop()
    first.options += ["--wait", "600"]
    try:
        first.start(wait=False)
        until(
            lambda: (
                "waits up to 600 s for the device: soft:eth0: no such network device" in first.log()
            ),
        )
        sh(first, "ip link set later down; ip link set later name eth0; " + UP)
        first.wait_ready()
    finally:
        first.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait(
    bare: NamespaceLab, sh: Sh, until: Until, number: signal.Signals
) -> None:
    first, _ = bare.hosts
    sh(first, "ip link set eth0 down")
    first.options += ["--wait", "86400"]
    first.start(wait=False)
    until(lambda: "waits up to 86400 s" in first.log())
    assert first.pid is not None
    sh(first, f"kill -{number.value} {first.pid}")
    until(lambda: first.ended() is not None)
    assert first.stop() == 0
    assert "internal error" not in first.log()


def test_no_wait_tells_at_once_what_the_device_lacks(bare: NamespaceLab, sh: Sh) -> None:
    first, _ = bare.hosts
    sh(first, "ip -6 address flush dev eth0")
    first.options += ["--wait", "0"]
    with pytest.raises(LabError, match="the device has no IP address"):
        first.start()
    first.stop()


def test_a_net_device_with_a_smaller_mtu_is_named_with_what_the_link_needs(
    bare: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, second = bare.hosts
    try:
        bare.start()
        sh(first, "ip link set eth0 mtu 1400")
        line = (
            r"WARNING: soft:eth0: the port is down: the MTU of eth0 is 1400 now, not 9000, and the"
            r" link needs (\d+): ip link set eth0 mtu \1"
        )
        until(lambda: re.search(line, first.log()))
        found = re.search(line, first.log())
        assert found is not None
        sh(first, f"ip link set eth0 mtu {int(found[1]) - 1}")
        until(lambda: f"the MTU of eth0 is {int(found[1]) - 1} now" in first.log())
        sh(first, f"ip link set eth0 mtu {found[1]}")
        until(lambda: "WARNING: soft:eth0: the port is up" in first.log())
        ping = ["ping", "-c1", "-W2", str(second.ipv4.ip)]
        until(lambda: first.run(ping).returncode == 0)
        sh(first, "ip link set eth0 down")
        until(lambda: "the port is down: eth0 is down or has no carrier" in first.log())
    finally:
        for host in bare.hosts:
            host.stop()


def test_ipv6_in_connected_mode_needs_long_enough_datagrams(bare: NamespaceLab, sh: Sh) -> None:
    first, _ = bare.hosts
    sh(first, "ip link set eth0 mtu 1300")
    first.options += ["--mode", "connected"]
    with pytest.raises(LabError) as raised:
        first.start()
    first.stop()
    assert "IPv6 needs an MTU of 1280 and that of the link's datagrams is 1224" in str(raised.value)
