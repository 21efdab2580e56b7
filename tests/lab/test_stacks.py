# SPDX-License-Identifier: BSD-2-Clause
"""PyTCP and lwIP, stacks in user space, behind a bridge and a TAP of ours on an RDMA device: the kernel's own
ib_ipoib is the other host."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ipoibu.lab import Lab
from tests.stacks.guests import BRIDGE, EXCHANGES, GUESTS, MTU, Guest, peer

pytestmark = [pytest.mark.lab, pytest.mark.nightly]

NETWORKS = ("10.9.0", "fd00:9")
PEERS = ("10.9.0.2", "fd00:9::2")
PING = "ping -q -c 1 -W 5"


@pytest.mark.parametrize("guest", GUESTS, ids=lambda it: it.stack)
@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_a_stack_and_the_kernels_ipoib_converse_both_ways(
    lab_kernel: Path, mode: str, guest: Guest
) -> None:
    own = guest.addresses(*NETWORKS)
    options = shlex.join(["--mode", mode, "--ethernet", *guest.option(own)])
    serve = f"tail -f /dev/null | {shlex.join(peer('serve'))} >/tmp/peer 2>&1"
    asking = shlex.join(guest.command(*own, *PEERS))
    with Lab(2, kernel=lab_kernel, ipoib="none,kernel", mode=mode) as lab:
        lab.a.succeed("ip link set ib0 name kernel0")
        lab.a.start(f"ipoibu up ib0 --device rxe0 {options} 2>&1")
        lab.a.wait_until_succeeds("ipoibu show ib0", timeout=60)
        lab.a.succeed(*BRIDGE)
        lab.b.succeed(f"ip link set ib0 mtu {MTU}")
        lab.b.start(serve)
        lab.b.wait_until_succeeds("grep -q serving /tmp/peer", timeout=60)
        lab.a.start(f"tail -f /dev/null | {asking} >/tmp/guest 2>&1")
        lab.a.wait_until_succeeds("grep -q serving /tmp/guest", timeout=150)
        said = lab.a.succeed("cat /tmp/guest").splitlines()
        assert said == [f"holds {' '.join(own)}", *EXCHANGES, "serving"]
        for address in own:
            lab.b.succeed(f"{PING} {address}", f"{PING} -s 4000 {address}")
        said = lab.b.succeed(shlex.join(peer("ask", *own))).splitlines()
        assert said == EXCHANGES
