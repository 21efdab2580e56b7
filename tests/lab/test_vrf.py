# SPDX-License-Identifier: BSD-2-Clause
"""An interface in a VRF, which the machine's own kernel may lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.lab import Lab

pytestmark = pytest.mark.lab

SHOW = "ip -6 address show dev ib0"
ADDRESSES = f"{SHOW} | grep -F fd00:9::2/64 && {SHOW} scope link | grep fe80"
ONE_PING = "ping -q -c 1 -W 5 {}"


def test_an_interface_works_in_a_vrf_and_out_of_it_again(lab_kernel: Path) -> None:
    """The kernel takes IPv6 addresses away each time; ipoibu restores its own. In the VRF the VRF's routes
    and addresses count, and those of no other interface."""
    with Lab(2, kernel=lab_kernel, ipoib="ipoibu", fabric="roce") as lab:
        lab.a.succeed(
            "ip address add 10.98.0.1/32 dev lo",
            "ip route add 10.97.0.0/16 dev ib0",
            "ip route add 10.99.0.0/16 dev ib0",
        )
        lab.b.succeed(
            "ip link add red type vrf table 10",
            "ip link set red up",
            "ip address add 10.97.0.2/32 dev lo",
            "ip address add 10.99.0.2/32 dev red",
            # The kernel's vrf.rst advises this; else addresses and routes outside count in the VRF, too.
            "ip rule add pref 32765 table local",
            "ip rule del pref 0",
            "ip route add unreachable default metric 4278198272 vrf red",
            "ip link set ib0 master red",
        )
        lab.b.wait_until_succeeds(ADDRESSES, timeout=60)
        lab.b.succeed(
            ONE_PING.format("-I red 10.9.0.1"),
            ONE_PING.format("-I red fd00:9::1"),
            "ip route add 10.98.0.0/16 via 10.9.0.1 vrf red",
            ONE_PING.format("-I red 10.98.0.1"),
        )
        lab.a.succeed(ONE_PING.format("10.99.0.2"))
        lab.a.fail("ping -q -c 1 -W 1 10.97.0.2")  # from the VRF
        lab.b.fail("ping -q -c 1 -W 1 10.9.0.1")  # without the VRF
        lab.b.succeed("ip link set ib0 nomaster")
        lab.b.wait_until_succeeds(ADDRESSES, timeout=60)
        lab.b.succeed(ONE_PING.format("10.9.0.1"), ONE_PING.format("fd00:9::1"))
