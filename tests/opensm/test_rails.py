# SPDX-License-Identifier: BSD-2-Clause
"""An interface with two devices on a subnet that OpenSM manages: each port is a member for itself.

The first host has the port and the wire of the third one, too, as its second device.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.base.addr import PKey
from ipoibu.lab import LabSubnet, NamespaceLab
from ipoibu.wire import mgid
from tests.opensm.relay import SECOND_DEVICE

pytestmark = pytest.mark.netns

RELAY: Final = str(Path(__file__).with_name("relay.py"))
ROOT: Final = Path(__file__).parents[2]
DEFAULT: Final = "Default=0x7fff : ALL=full;\n"
RED: Final = PKey(0x8001)
FIRST, SECOND = "soft:eth0@ibsim0", f"soft:eth1@{SECOND_DEVICE}"


def red(*ports: int) -> str:
    """Return a partitions.conf in which the hosts' ports are members of the link; 3 is the first host's
    second port. So is the port of `saquery`."""
    members = ", ".join(f"0x{LabSubnet.guid(port):x}=full" for port in (*ports, 4))
    return f"{DEFAULT}red=0x1, ipoib : {members};\n"


def until(is_so: Callable[[], Any], what: str, seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.1)


class Rails:
    """Two hosts under OpenSM, the first with two devices. `start` starts the daemons."""

    def __init__(self, lab: NamespaceLab, subnet: LabSubnet) -> None:
        self.lab, self.subnet = lab, subnet
        self.first, self.second = lab.hosts[:2]

    def start(self) -> None:
        for host in (self.first, self.second):
            host.start(wait=False)
        for host in (self.first, self.second):
            host.wait_ready()

    def states(self) -> dict[str, str]:
        return {rail["device"]: rail["state"] for rail in self.first.ask("show")["rails"]}

    def reaches(self, data_bytes: int = 56) -> bool:
        size = [f"-s{data_bytes}", "-Mdo"]
        command = ["ping", "-q", "-c1", "-W1", *size, str(self.first.ipv4.ip)]
        # A packet by datagram, while there is no connection, teaches the kernel its MTU.
        self.second.run(["ip", "route", "flush", "cache"])
        return self.second.run(command).returncode == 0

    def wire(self, state: str) -> None:
        """Plug or pull the first host's first wire at the switch."""
        assert self.lab.bridge is not None
        sh(self.lab.bridge.popen, f"ip link set p1 {state}")

    def members(self) -> set[int]:
        """Return the ports that OpenSM knows as members of the broadcast group."""
        query = ["saquery", "--smkey", "1", "MCMR", "--mgid", str(mgid.broadcast(RED)), "--gid"]
        gids = {number: str(self.subnet.address(number).ip) for number in (1, 2, 3)}
        return {number for number, gid in gids.items() if gid in self.subnet.query(*query, gid)}


def sh(popen: Callable[..., subprocess.Popen[bytes]], command: str) -> None:
    assert popen(["sh", "-ec", command]).wait(60) == 0


@contextlib.contextmanager
def rails(partitions: str, work: Path) -> Iterator[Rails]:
    subnet = LabSubnet(3, partitions)
    with NamespaceLab(3, subnet=subnet, start=False, options=["--pkey", "0x8001"]) as lab:
        first, _, spare = lab.hosts
        name, address = first.namespace.path.name, subnet.address(3)
        sh(spare.namespace.popen, f"ip link set eth0 down name eth1 netns {name}")
        sh(
            first.namespace.popen,
            "echo 1 >/proc/sys/net/ipv6/conf/eth1/addr_gen_mode;"
            f"ip address add {address} dev eth1 nodad; ip link set eth1 up",
        )
        path = work / "relay"
        relay = subprocess.Popen(
            [sys.executable, RELAY, "serve", str(path)],
            env={**subnet.environment(3), "PYTHONPATH": str(ROOT)},
            cwd=subnet.directory,
            stdin=subprocess.DEVNULL,
        )
        try:
            until(path.exists, "the relay does not serve")
            first.wrapper = [sys.executable, RELAY, "host", str(path)]
            first.options += ["--device", SECOND]
            yield Rails(lab, subnet)
        finally:
            first.stop()
            relay.kill()
            relay.wait()


@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_the_backup_is_a_member_and_takes_over_when_the_wire_is_pulled(
    tmp_path: Path, mode: str
) -> None:
    with rails(red(1, 2, 3), tmp_path) as two:
        for host in (two.first, two.second):
            host.options += ["--mode", mode]
        two.start()
        until(
            lambda: two.states() == {FIRST: "active", SECOND: "backup"}, "the backup does not join"
        )
        until(two.reaches, "no way to the first host")
        until(lambda: two.members() == {1, 2, 3}, "the backup is no member")
        before = two.first.ask("show")
        two.wire("down")
        until(lambda: two.states() == {FIRST: "down", SECOND: "active"}, "no change")
        until(two.reaches, "no way by the second wire")
        after = two.first.ask("show")
        assert before["addresses"] == after["addresses"]
        assert before["hwaddr"] != after["hwaddr"]
        assert two.members() == {1, 2, 3}
        if mode == "connected":
            until(lambda: two.reaches(60000), "no connection by the second wire")
        two.wire("up")
        until(lambda: two.states() == {FIRST: "backup", SECOND: "active"}, "the wire is back")
        until(two.reaches, "no way after the first wire's return")
        stats = two.first.ask("stats")
        assert stats["engine.rail_changes"] == 1
        assert "engine.renewals" not in stats
        joined = [group for group in two.first.ask("mcast") if group["state"] == "member"]
        assert str(mgid.broadcast(RED)) in {group["mgid"] for group in joined}


def test_a_lost_membership_is_a_failure_of_the_rail(tmp_path: Path) -> None:
    with rails(red(1, 2, 3), tmp_path) as two:
        two.start()
        until(two.reaches, "no way to the first host")
        two.subnet.reload(red(2, 3))
        until(lambda: two.states()[SECOND] == "active", "no change")
        until(two.reaches, "no way by the second port")
        assert "rail soft:eth0@ibsim0/1: no P_Key 0x8001; it has: 0xffff;" in two.first.log()
        two.subnet.reload(red(1, 2))  # and back
        until(lambda: two.states()[FIRST] == "active", "no change back")
        until(two.reaches, "no way by the first port")
        until(lambda: two.members() == {1, 2}, "the second port is a member still")


def test_the_start_takes_the_device_that_is_in_the_partition(tmp_path: Path) -> None:
    with rails(red(2, 3), tmp_path) as two:
        two.start()
        assert two.states()[SECOND] == "active"
        until(two.reaches, "no way to the first host")


def test_a_primary_waits_until_it_is_in_the_partition(tmp_path: Path) -> None:
    """Meanwhile the other device carries the traffic, undisturbed."""
    with rails(red(1, 2), tmp_path) as two:
        two.first.options += ["--rail-primary", SECOND]
        two.start()
        until(lambda: two.states() == {FIRST: "active", SECOND: "joining"}, "no wait")
        until(two.reaches, "no way to the first host")
        time.sleep(3)  # a rail that is avoided returns after 1 s
        stats = two.first.ask("stats")
        assert "engine.rail_changes" not in stats
        assert "engine.renewals" not in stats
        two.subnet.reload(red(1, 2, 3))
        until(lambda: two.states() == {FIRST: "backup", SECOND: "active"}, "no change")
        until(two.reaches, "no way by the second port")
        assert two.first.ask("stats")["engine.rail_changes"] == 1


def test_a_device_without_an_administrator_is_no_second_rail(tmp_path: Path) -> None:
    with rails(red(1, 2, 3), tmp_path) as two:
        two.first.options[-1] = "soft:eth1"
        two.first.start(wait=False)
        assert two.first._daemon is not None
        assert two.first._daemon.wait(120) == 2
        assert two.first.last_line() == (
            "rails soft:eth0@ibsim0 and soft:eth1: the links differ: soft:eth0@ibsim0 has a subnet"
            " administrator, and soft:eth1 has none; choose another --device"
        )
