# SPDX-License-Identifier: BSD-2-Clause
"""An interface in a VRF, which the machine's own kernel may lack."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.lab.machines.judge import SCRIPTS
from ipoibu.lab.machines.runner import run, shell, source

pytestmark = pytest.mark.lab

ENSLAVED = """
has_addresses() { # NAME
    [[ $(ip -6 address show dev "$1" scope link) == *fe80::200:ff:fe00:2/64* ]] &&
        [[ $(ip -6 address show dev "$1") == *fd00:9::2/64* ]]
}
first() {
    ib_up soft:vec0
    ip address add 10.98.0.1/32 dev lo
    ip route add 10.97.0.0/16 dev ib0
    ip route add 10.99.0.0/16 dev ib0
    meet up 60
    meet enslaved 60
    five_pings 10.99.0.2
    if ping -q -c 1 -W 1 10.97.0.2; then echo "reached from the VRF" >&2; return 1; fi
    meet asked 60
    meet done 60
    ib_down
}
second() {
    ib_up soft:vec0
    meet up 60
    ip link add red type vrf table 10
    ip link set red up
    ip address add 10.97.0.2/32 dev lo
    ip address add 10.99.0.2/32 dev red
    # The kernel's vrf.rst advises this; else addresses and routes outside count in the VRF, too.
    ip rule add pref 32765 table local
    ip rule del pref 0
    ip route add unreachable default metric 4278198272 vrf red
    ip link set ib0 master red
    until_true 10 "addresses in the VRF" has_addresses ib0
    five_pings 10.9.0.1 -I red
    five_pings fd00:9::1 -I red
    ip route add 10.98.0.0/16 via 10.9.0.1 vrf red
    five_pings 10.98.0.1 -I red
    meet enslaved 60
    meet asked 60
    if ping -q -c 1 -W 1 10.9.0.1; then echo "reached without the VRF" >&2; return 1; fi
    ip link set ib0 nomaster
    until_true 10 "addresses outside the VRF" has_addresses ib0
    five_pings 10.9.0.1
    five_pings fd00:9::1
    meet done 60
    ib_down
}
"""


def test_an_interface_works_in_a_vrf_and_out_of_it_again(lab_kernel: Path, tmp_path: Path) -> None:
    """The kernel takes IPv6 addresses away each time; ipoibu restores its own. In the VRF the VRF's routes
    and addresses count, and those of no other interface."""
    prelude = source(*SCRIPTS) + ENSLAVED
    scripts = [shell(f"{prelude}as_host soft:vec0 {name}") for name in ("first", "second")]
    for result in run(lab_kernel, scripts, directory=tmp_path, timeout_s=100):
        result.check()
