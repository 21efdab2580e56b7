# SPDX-License-Identifier: BSD-2-Clause
"""A container behind a bridge and a TAP of ours, on an RDMA device: the kernel's own ib_ipoib is the other
host, also where a VLAN is a partition."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.machines.judge import PORT, SCRIPTS
from ipoibu.lab.machines.runner import shell, source
from tests.lab.bare import run

pytestmark = pytest.mark.lab

PARTITIONS = "Default=0x7fff, ipoib, mtu=5: ALL=full;\nsecond=0x1, ipoib, mtu=5: ALL=full;\n"
BEHIND = (  # a container behind the bridge
    "ip link add br0 type bridge vlan_filtering 1",
    "ip link set br0 mtu 4092 up",
    "ip netns add box",
    "ip link add v0 mtu 4092 type veth peer name eth0 mtu 4092 address 52:54:00:00:00:01 netns box",
    "ip link set v0 master br0 up",
    "ip link set ib0 master br0",
    "ip -n box link set eth0 up",
    "ip -n box address add 10.9.0.1/24 dev eth0",
    "ip -n box address add fd00:9::1/64 dev eth0 nodad",
)
CHILD = (  # the TAP of the partition's child, behind the bridge as VLAN 10
    "ipoibu child add ib0 0x8001",
    "ip link set ib0.8001 master br0",
    "bridge vlan del dev ib0.8001 vid 1",
    "bridge vlan add dev ib0.8001 vid 10 pvid untagged",
)
VLAN = (
    "bridge vlan add dev v0 vid 10",
    "ip -n box link add link eth0 name eth0.10 type vlan id 10",
    "ip -n box link set eth0.10 up",
    "ip -n box address add 10.88.0.1/24 dev eth0.10",
)
PING = "ping -q -c 1 -W 5"
FROM_BOX = f"ip netns exec box {PING}"
SEND = "head -c 3000000 /dev/zero | timeout 60 socat -u STDIN"
RECEIVE = (
    "timeout 60 socat -u {} OPEN:/tmp/got,creat,trunc; [[ $(stat -c %s /tmp/got) == 3000000 ]]"
)
CONNECT = "retry=50,interval=0.1"


@pytest.mark.parametrize("vlan", ["", " --vlan 10=0x8001"], ids=["a TAP", "in the trunk"])
@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_a_container_and_the_kernels_ipoib_reach_each_other(
    lab_kernel: Path, tmp_path: Path, mode: str, vlan: str
) -> None:
    """The VLAN of the second partition has a TAP of its own behind the bridge, or is in the trunk."""
    (tmp_path / "partitions.conf").write_text(PARTITIONS)
    options = ("--mode connected" if mode == "connected" else "--mtu 4092") + vlan
    with Lab(
        2,
        kernel=lab_kernel,
        ipoib="none,kernel",
        mode=mode,
        partitions=tmp_path / "partitions.conf",
    ) as lab:
        lab.a.succeed("ip link set ib0 name kernel0")
        lab.a.start(f"ipoibu up ib0 --device rxe0 --ethernet {options} 2>&1")
        lab.a.wait_until_succeeds("ipoibu show ib0", timeout=60)
        lab.a.succeed(*BEHIND)
        for address in ("10.9.0.2", "fd00:9::2"):
            lab.a.wait_until_succeeds(f"{FROM_BOX} {address}", timeout=60)
        lab.b.succeed(f"{PING} 10.9.0.1", f"{PING} fd00:9::1", f"{PING} -s 1400 10.9.0.1")

        lab.a.succeed(*(("bridge vlan add dev ib0 vid 10",) if vlan else CHILD), *VLAN)
        lab.b.succeed("ip address add 10.88.0.2/24 dev ib0.8001")
        lab.a.wait_until_succeeds(f"{FROM_BOX} 10.88.0.2", timeout=60)
        lab.b.succeed(f"{PING} 10.88.0.1")
        received = lab.b.start(RECEIVE.format("TCP-LISTEN:7000"))
        lab.a.succeed(
            f"{SEND.replace('timeout', 'ip netns exec box timeout')} TCP:10.88.0.2:7000,{CONNECT}"
        )
        assert received.wait(60).status == 0
        lab.b.start(f"{SEND} TCP-LISTEN:7001")
        lab.a.succeed(
            f"ip netns exec box bash -c '{RECEIVE.format(f'TCP:10.88.0.2:7001,{CONNECT}')}'"
        )
        guests = lab.a.succeed("ipoibu guests ib0")
        assert re.search(r"guest .*10\.9\.0\.1 .*52:54:00:00:00:01", guests)


OF_THEIR_OWN = """
reach() { ip netns exec "$1" ping -q -c 1 -W 1 "$2"; }
lladdr() { local shown; shown=($(ip neigh show "$1" dev ib0)); echo "${shown[2]}"; }
has() { [[ $(lladdr "$1") == "$2" ]]; }
guest() { # NAME NUMBER
    ip netns add "$1"
    ip link add "v$2" mtu "$IB_MTU" type veth \
        peer name eth0 mtu "$IB_MTU" address "52:54:00:00:00:0$2" netns "$1"
    ip link set "v$2" master br0 up
    ip netns exec "$1" ip link set eth0 up
    ip netns exec "$1" ip address add "10.9.0.1$2/24" dev eth0
}
handed_off() {
    : >/tmp/ib0.log
    ipoibu up ib0 --device soft:vec0@rxe0 --mtu "$IB_MTU" --ethernet >>/tmp/ib0.log 2>&1 &
    ib_pid=$!
    until_true 40 "ib0" reports_up || { cat /tmp/ib0.log >&2; return 1; }
    ip link add br0 type bridge
    ip link set br0 mtu "$IB_MTU" up
    ip link set ib0 master br0
    guest one 1
    guest two 2
    meet up 60
    until_true 20 "the kernel from one" reach one 10.9.0.2
    until_true 20 "the kernel from two" reach two 10.9.0.2
    meet reached 60
    ip netns exec two ip address del 10.9.0.12/24 dev eth0
    ip netns exec one sysctl -qw net.ipv4.conf.eth0.arp_notify=1
    ip netns exec one ip address add 10.9.0.12/24 dev eth0
    ip netns exec one ip link set eth0 address 52:54:00:00:00:01 # the kernel announces its addresses
    meet moved 60
    meet done 60
    ib_down
}
first() { as_host soft:vec0@rxe0 handed_off; }
second() {
    local one two
    call verbs_machine:on_the_wire
    kernel_start datagram
    meet up 60
    until_true 20 "guest one" five_pings 10.9.0.11
    until_true 20 "guest two" five_pings 10.9.0.12
    one=$(lladdr 10.9.0.11) two=$(lladdr 10.9.0.12)
    [[ ${one:12:47} == "${two:12:47}" && $one != "$two" ]] # flags and number, then the GID
    meet reached 60
    meet moved 60
    until_true 20 "the announced hardware address" has 10.9.0.12 "$one"
    five_pings 10.9.0.12
    meet done 60
}
"""


def test_the_kernel_has_a_neighbour_for_each_guest_and_follows_a_move(
    lab_kernel: Path, tmp_path: Path
) -> None:
    """Two containers behind a TAP on the built-in HCA, under the kernel's own SA client."""
    prelude = source(*SCRIPTS) + OF_THEIR_OWN
    commands = [shell(f"{prelude}{name}") for name in ("first", "second")]
    for result in run(
        lab_kernel, commands, directory=tmp_path, timeout_s=150, kernel_arguments=[PORT] * 2
    ):
        result.check()
