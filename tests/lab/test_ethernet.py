# SPDX-License-Identifier: BSD-2-Clause
"""A container behind a bridge and a TAP of ours, on an RDMA device: the kernel's own ib_ipoib is the other
host, also where a VLAN is a partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.lab.machines.judge import PORT, SCRIPTS
from ipoibu.lab.machines.runner import run, shell, source

pytestmark = pytest.mark.lab

HANDED_OFF = """
box() { ip netns exec box "$@"; }
reaches() { box ping -q -c 1 -W 1 "$1"; }
first() {
    call verbs_machine:on_the_wire
    ip link set ib0 name kernel0
    : >/tmp/ib0.log
    ipoibu up ib0 --device rxe0 --ethernet $1 >>/tmp/ib0.log 2>&1 &
    ib_pid=$!
    until_true 40 "ib0" reports_up || { cat /tmp/ib0.log >&2; return 1; }
    ip link add br0 type bridge vlan_filtering 1
    ip link set br0 mtu "$IB_MTU" up
    ip netns add box
    ip link add v0 mtu "$IB_MTU" type veth peer name eth0 mtu "$IB_MTU" address 52:54:00:00:00:01 netns box
    ip link set v0 master br0 up
    ip link set ib0 master br0
    box ip link set eth0 up
    box ip address add 10.9.0.1/24 dev eth0
    box ip address add fd00:9::1/64 dev eth0 nodad
    meet up 60
    until_true 20 "the kernel by IPv4" reaches 10.9.0.2
    until_true 20 "the kernel by IPv6" reaches fd00:9::2
    meet reached 60
    if [[ $1 == *--vlan* ]]; then
        bridge vlan add dev ib0 vid 10
    else
        ipoibu child add ib0 0x8001
        ip link set ib0.8001 master br0
        bridge vlan del dev ib0.8001 vid 1
        bridge vlan add dev ib0.8001 vid 10 pvid untagged
    fi
    bridge vlan add dev v0 vid 10
    box ip link add link eth0 name eth0.10 type vlan id 10
    box ip link set eth0.10 up
    box ip address add 10.88.0.1/24 dev eth0.10
    meet partition 60
    until_true 20 "the kernel's child" reaches 10.88.0.2
    meet listens 60
    head -c 3000000 /dev/zero | box timeout 30 socat -u STDIN TCP:10.88.0.2:7000,retry=50,interval=0.1
    box timeout 30 socat -u TCP:10.88.0.2:7001,retry=50,interval=0.1 OPEN:/tmp/got,creat
    [[ $(stat -c %s /tmp/got) == 3000000 ]]
    reaches 10.9.0.2
    meet done 60
    [[ $(ipoibu guests ib0) == *"guest "*"10.9.0.1 "*"52:54:00:00:00:01"* ]]
    ib_down
}
second() {
    call verbs_machine:on_the_wire
    kernel_start "$1"
    meet up 60
    until_true 20 "the container by IPv4" five_pings 10.9.0.1
    until_true 20 "the container by IPv6" five_pings fd00:9::1
    five_pings 10.9.0.1 -s 1400
    meet reached 60
    echo 0x8001 >/sys/class/net/ib0/create_child
    ip link set ib0.8001 up
    ip address add 10.88.0.2/24 dev ib0.8001
    meet partition 60
    until_true 20 "the container's VLAN" five_pings 10.88.0.1
    meet listens 60
    timeout 30 socat -u TCP-LISTEN:7000 OPEN:/tmp/got,creat
    [[ $(stat -c %s /tmp/got) == 3000000 ]]
    head -c 3000000 /dev/zero | timeout 30 socat -u STDIN TCP-LISTEN:7001
    meet done 60
}
"""


@pytest.mark.parametrize("vlan", ["", " --vlan 10=0x8001"], ids=["a TAP", "in the trunk"])
@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_a_container_and_the_kernels_ipoib_reach_each_other(
    lab_kernel: Path, tmp_path: Path, mode: str, vlan: str
) -> None:
    """The VLAN of the second partition has a TAP of its own behind the bridge, or is in the trunk."""
    prelude = source(*SCRIPTS) + HANDED_OFF
    options = ("--mode connected" if mode == "connected" else "--mtu 4092") + vlan
    commands = [shell(f"{prelude}first '{options}'"), shell(f"{prelude}second {mode}")]
    for result in run(
        lab_kernel, commands, directory=tmp_path, timeout_s=150, kernel_arguments=[PORT] * 2
    ):
        result.check()


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
