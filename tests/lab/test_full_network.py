# SPDX-License-Identifier: BSD-2-Clause
"""What the network of a kernel of the flavour full does beyond the lean one's, most of it over ib0."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import INFINIBAND, python, shell
from tests.lab.bare import run

pytestmark = [pytest.mark.lab, pytest.mark.nightly]

# ib0 of the kernel's own ib_ipoib, and an echo from every other machine.
OVER_IB0 = """
    link_up vec0
    rdma_up rxe0 rxe vec0
    until_true 5 ib0 test -e /sys/class/net/ib0
    ip address add 10.9.0.$LAB_INDEX/24 dev ib0
    ip link set ib0 up
    peer=$((3 - LAB_INDEX))
    meet up
    until_true 20 "the peer on ib0" reach 10.9.0.$peer
"""


def alone(kernel: Path, directory: Path, script: str) -> str:
    """Run `script` in one machine; return its output."""
    return run(kernel, [shell(script)], directory=directory)[0].check().output


def over_ib0(kernel: Path, directory: Path, first: str, second: str | None = None) -> None:
    """Run a script in each of two machines that reach each other on ib0."""
    commands = [shell(f"{OVER_IB0}{script}\nmeet done") for script in (first, second or first)]
    arguments = [INFINIBAND] * 2
    for result in run(kernel, commands, kernel_arguments=arguments, directory=directory):
        result.check()


def test_nf_tables_counts_translates_and_tracks(full_kernel: Path, tmp_path: Path) -> None:
    script = """
        ip link add dum0 type dummy; ip address add 10.77.0.1/24 dev dum0; ip link set dum0 up
        nft -f - <<-END
            table inet t {
                set ports { type inet_service; elements = { 8000, 8001 }; }
                counter pings { }
                chain in {
                    type filter hook input priority 0;
                    icmp type echo-request counter name pings
                    tcp dport @ports ct state new counter accept
                }
                chain nat { type nat hook output priority -100; tcp dport 8001 redirect to :8000; }
            }
END
        ping -q -c 1 10.77.0.1; ping -q -c 1 10.77.0.1
        [[ $(nft list counter inet t pings) == *'packets 2 bytes 168'* ]]
        socat TCP-LISTEN:8000 PIPE & listening 8000
        [[ $(socat -t 5 - TCP:10.77.0.1:8001 <<<"through") == through ]]
        grep 'dport=8001.*sport=8000' /proc/net/nf_conntrack
        iptables-legacy -A OUTPUT -d 10.77.0.9 -m comment --comment lab -j REJECT
        ! ping -q -c 1 -W 1 10.77.0.9
        [[ $(iptables-legacy -vnL OUTPUT) == *' 1 '*REJECT*'/* lab */'* ]]
    """
    alone(full_kernel, tmp_path, script)


def test_keepalived_balances_by_ipvs(full_kernel: Path, tmp_path: Path) -> None:
    script = """
        for n in 1 2 3; do
            ip link add dum$n type dummy; ip address add 10.77.$n.1/24 dev dum$n; ip link set dum$n up
        done
        for n in 2 3; do
            socat TCP-LISTEN:8000,bind=10.77.$n.1,fork SYSTEM:"echo server $n" &
        done
        listening 8000
        cat >/tmp/keepalived.conf <<-END
            virtual_server 10.77.1.1 80 {
                lvs_sched rr
                lvs_method NAT
                protocol TCP
                real_server 10.77.2.1 8000 { }
                real_server 10.77.3.1 8000 { }
            }
END
        keepalived --log-console --dont-fork --check --use-file /tmp/keepalived.conf &
        both() { (($(grep -c -- '->' /proc/net/ip_vs) == 3)); } # the head line is one
        until_true 20 "two servers" both
        for n in 1 2 3 4; do socat - TCP:10.77.1.1:80; done | sort | uniq -c | tee /tmp/answers
        read -r count _ number </tmp/answers
        [[ $count.$number == 2.2 ]]
    """
    alone(full_kernel, tmp_path, script)


def test_every_usual_queueing_discipline_works(full_kernel: Path, tmp_path: Path) -> None:
    script = """
        fail() { echo "$1 did not work" >&2; exit 1; }
        ip link add dum0 type dummy; ip link add ifb0 type ifb
        ip address add 10.77.0.1/24 dev dum0
        ip link set dum0 up; ip link set ifb0 up
        ip neighbour add 10.77.0.2 lladdr 02:00:00:00:77:02 dev dum0
        for kind in fq fq_codel codel sfq cake prio 'tbf rate 1mbit burst 10k latency 50ms' \\
            'htb default 1' 'red limit 400k avpkt 1000' 'netem delay 1ms'; do
            tc qdisc replace dev dum0 root $kind
            ping -q -c 1 -W 0.1 10.77.0.2 >/dev/null || true
            [[ $(tc -s qdisc show dev dum0) == *"qdisc ${kind%% *} "*'Sent '[1-9]* ]] || fail $kind
        done
        tc qdisc add dev lo clsact
        tc filter add dev lo egress matchall action mirred egress mirror dev ifb0
        tc filter add dev lo ingress bpf da bytecode '1,6 0 0 4294967295,' flowid 1:1 action pass
        tc filter add dev lo ingress protocol ip prio 1 flower dst_ip 127.0.0.9 action drop
        ping -q -c 1 127.0.0.1
        ! ping -q -c 1 -W 0.2 127.0.0.9
        [[ $(tc -s filter show dev lo ingress) == *dropped\\ 1,* ]]
        read -r mirrored </sys/class/net/ifb0/statistics/rx_packets
        ((mirrored > 0))
    """
    alone(full_kernel, tmp_path, script)


def test_namespaces_and_cgroups_limit_what_they_hold(full_kernel: Path, tmp_path: Path) -> None:
    script = """
        [[ $(unshare --user --map-root-user --pid --fork --ipc --uts --cgroup id -u) == 0 ]]
        mount -t cgroup2 cgroup2 /sys/fs/cgroup
        cd /sys/fs/cgroup
        [[ $(<cgroup.controllers) == *cpu*io*memory*pids*rdma* ]]
        echo '+memory +pids +cpu +rdma' >cgroup.subtree_control
        mkdir small; cd small
        echo 16M >memory.max; echo 4 >pids.max; echo 'rxe0 hca_object=10' >rdma.max || true
        [[ $(bash -c 'echo $$ >cgroup.procs; for n in {1..9}; do sleep 9 & done' 2>&1) == *Resource\\ temp* ]]
        echo 1 >cgroup.kill
        populated() { [[ $(<cgroup.events) != *'populated 0'* ]]; }
        until_true 5 "the end of all" eval '! populated'
        grab='echo $$ >cgroup.procs; exec python3 -c "bytes(b\\"x\\" * (64 << 20))"'
        ! bash -c "$grab"
        [[ $(<memory.events) == *'oom_kill 1'* ]]
        [[ $(<cpu.stat) == usage_usec* ]]
    """
    alone(full_kernel, tmp_path, script)


def test_the_groups_and_paths_of_ib0_are_in_debugfs(full_kernel: Path, tmp_path: Path) -> None:
    script = """
        mount -t debugfs debugfs /sys/kernel/debug
        grep -i 'GID: *ff12:401b:ffff:0:0:0:ffff:ffff' /sys/kernel/debug/ipoib/ib0_mcg
        grep -c 'complete: *yes' /sys/kernel/debug/ipoib/ib0_path
    """
    over_ib0(full_kernel, tmp_path, script)


def test_tunnels_run_over_ib0(full_kernel: Path, tmp_path: Path) -> None:
    script = """
        wg genkey >/tmp/key
        put public-$LAB_INDEX "$(wg pubkey </tmp/key)"
        ip link add wg0 type wireguard
        wg set wg0 private-key /tmp/key listen-port 51820 peer "$(get public-$peer)" \\
            endpoint 10.9.0.$peer:51820 allowed-ips 10.1.0.0/24
        ip link add vx0 type vxlan id 7 dev ib0 remote 10.9.0.$peer dstport 4789
        ip link add ipip0 type ipip local 10.9.0.$LAB_INDEX remote 10.9.0.$peer
        ip link add gre0x type gre local 10.9.0.$LAB_INDEX remote 10.9.0.$peer
        ip link add sit0x type sit local 10.9.0.$LAB_INDEX remote 10.9.0.$peer
        number=1
        for name in wg0 vx0 ipip0 gre0x; do
            ip address add 10.$number.0.$LAB_INDEX/24 dev $name; ip link set $name up
            number=$((number + 1))
        done
        ip -6 address add fd00:5::$LAB_INDEX/64 dev sit0x; ip link set sit0x up
        meet tunnels
        for number in 1 2 3 4; do until_true 20 "tunnel $number" reach 10.$number.0.$peer; done
        until_true 20 sit reach fd00:5::$peer
        [[ $(wg show wg0 transfer) != *$'\\t0\\t'* ]]
    """
    over_ib0(full_kernel, tmp_path, script)


def test_ib0_is_in_a_vrf(full_kernel: Path, tmp_path: Path) -> None:
    script = """
        ip link add red type vrf table 10; ip link set red up
        ip link set ib0 master red
        meet enslaved
        until_true 20 "the peer from the VRF" reach 10.9.0.$peer -I red
        ! ping -q -c 1 -W 1 10.9.0.$peer
    """
    over_ib0(full_kernel, tmp_path, script)


def test_two_ports_are_one_bond(full_kernel: Path, tmp_path: Path) -> None:
    script = """
        ip link add va address 02:00:00:00:02:0$LAB_INDEX type veth peer name vb
        ip link set vb up; link_up va
        rdma_up rxe1 rxe va
        until_true 5 ib1 test -e /sys/class/net/ib1
        ip address flush dev ib0
        for port in ib0 ib1; do ip link set $port down; done
        ip link add bond0 type bond mode active-backup fail_over_mac active miimon 50
        for port in ib0 ib1; do ip link set $port master bond0; done
        ip address add 10.9.0.$LAB_INDEX/24 dev bond0; ip link set bond0 up
        echo ib0 >/sys/class/net/bond0/bonding/primary
        meet bonded
        until_true 20 "the peer by the bond" reach 10.9.0.$peer
        meet pinged
        is_active() { [[ $(<"/sys/class/net/bond0/bonding/active_slave") == "$1" ]]; }
        is_active ib0
        ip link set ib0 down
        until_true 10 "the other port" is_active ib1
        ip link set ib0 up
        until_true 10 "the first port" is_active ib0
        meet back
        until_true 20 "the peer by the bond again" reach 10.9.0.$peer
    """
    over_ib0(full_kernel, tmp_path, script)


def test_rds_uses_rdma(full_kernel: Path, tmp_path: Path) -> None:
    call = shlex.join(python("tests.lab.scenarios.rds:ask_and_answer", "10.9.0.1", "10.9.0.2"))
    over_ib0(full_kernel, tmp_path, call)
