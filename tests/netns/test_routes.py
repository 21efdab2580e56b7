# SPDX-License-Identifier: BSD-2-Clause
"""The next hops of the route sync beside those of the kernel, which `ip route get` names."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns import rerouting
from tests.netns.advertising import advertise_router

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]

# Follows the routes of d0 while commands come on stdin, and prints its next hop and the kernel's of
# each packet: [source, destination, mark].
FOLLOWER = """
import ipaddress, json, socket, subprocess, sys
from ipoibu.host.netlink import Netlink
from ipoibu.host.route_sync import RouteSync
from ipoibu.base.route import key_of
from tests.doubles.prefixes import network_of

class Stack:
    routes, ask = {}, None
    def address_added(self, *address): pass
    def address_removed(self, address): pass
    def router_changed(self, is_router): pass
    def answer_routes(self, ask): self.ask = ask
    def routes_changed(self, changes):
        for prefix, target in changes:
            network = network_of(prefix)
            if target is None:
                del self.routes[network]
            else:
                self.routes[network] = target

def packet(source, destination):
    head = b"\\x45" + bytes(11) if source.version == 4 else b"\\x60" + bytes(7)
    return head + source.packed + destination.packed

def ours(stack, source, destination):
    matches = [n for n in stack.routes if n.version == destination.version and destination in n]
    if not matches:
        return []
    target = stack.routes[max(matches, key=lambda n: n.prefixlen)]
    if target.kind == "ask":
        target = stack.ask(packet(source, destination))
    hops = target.hops if target else ()
    return sorted([str(hop.via), hop.weight if len(hops) > 1 else 1] for hop in hops)

def kernels(source, destination, mark):
    words = ["ip", "-j", "route", "get", "fibmatch", str(destination), "from", str(source)]
    done = subprocess.run([*words, *(["mark", mark] if mark else [])], capture_output=True, text=True)
    if done.returncode:
        return []
    [route] = json.loads(done.stdout)
    hops = route.get("nexthops", [route])
    return sorted([str(hop.get("gateway")), hop.get("weight", 1)] for hop in hops
                  if hop.get("dev") == "d0")

stack = Stack()
with Netlink() as netlink:
    sync = RouteSync(socket.if_nametoindex("d0"), stack, netlink)
    sync.refresh()
    for line in sys.stdin:
        commands, packets = json.loads(line)
        for command in commands:
            subprocess.run(command, shell=True, check=True)
            if sync.read_notices():
                sync.refresh()
        answers = []
        for source, destination, mark in packets:
            ends = ipaddress.ip_address(source), ipaddress.ip_address(destination)
            answers.append([ours(stack, *ends), kernels(*ends, mark)])
        print(json.dumps(answers), flush=True)
"""

SETUP = """
    set -e
    ip link add d0 type veth peer name d0p; ip link add d1 type veth peer name d1p
    for d in d0 d0p d1 d1p lo; do ip link set $d up; done
    sysctl -qw net.ipv6.conf.d0.dad_transmits=0 net.ipv4.ip_forward=1
    ip address add 10.0.0.1/24 dev d0; ip address add 10.0.0.9/24 dev d0
    ip address add 10.1.0.1/24 dev d1
    ip address add fd00::1/64 dev d0 nodad; ip address add fd01::1/64 dev d1 nodad
"""
V4 = [("10.0.0.1", "8.8.8.8", ""), ("10.0.0.9", "8.8.8.8", ""), ("10.0.0.1", "8.9.0.1", "")]
V6 = [("fd00::1", "2001:db8::1", ""), ("fd00::1", "2001:db8:1::1", "")]
STEPS: list[tuple[list[str], list[tuple[str, str, str]]]] = [
    (["ip route add default via 10.0.0.2"], V4),
    (["ip route append default via 10.0.0.3", "ip route add default via 10.0.0.4 metric 9"], V4),
    (["ip route prepend 8.8.0.0/16 via 10.0.0.8", "ip route prepend 8.8.0.0/16 via 10.0.0.5"], V4),
    (["ip route del 8.8.0.0/16 via 10.0.0.5"], V4),
    (["ip route replace 8.8.0.0/16 via 10.1.0.5", "ip route del default via 10.0.0.2"], V4),
    (
        [
            "ip route replace 8.8.0.0/16 nexthop via 10.0.0.5 weight 3 nexthop via 10.1.0.6"
            " nexthop via 10.0.0.7"
        ],
        V4,
    ),
    (["ip route del 8.8.0.0/16", "ip route add 8.8.0.0/16 via 10.0.0.6 src 10.0.0.9"], V4),
    (["ip address del 10.0.0.9/24 dev d0", "ip address add 10.0.0.9/24 dev d0"], V4),
    (
        [
            "ip nexthop add id 1 via 10.0.0.5 dev d0",
            "ip nexthop add id 2 via 10.0.0.6 dev d0",
            "ip nexthop add id 3 group 1,4/2,2",
            "ip route add 8.8.0.0/16 nhid 3",
        ],
        V4,
    ),
    (["ip nexthop replace id 2 via 10.0.0.7 dev d0"], V4),
    (["ip nexthop del id 1"], V4),
    (["ip nexthop del id 2"], V4),
    (["ip -6 route add default via fe80::2 dev d0 metric 50"], V6),
    (["ip -6 route append default via fe80::3 dev d0 metric 50"], V6),
    (["ip -6 route add default via fe80::1 dev d0 metric 60 pref high"], V6),
    (["ip -6 route del default via fe80::2 dev d0 metric 50"], V6),
    (["ip -6 route replace default via fe80::4 dev d0 metric 50"], V6),
    (["ip -6 route add 2001:db8:1::/48 nexthop via fe80::5 dev d0 nexthop via fe80::6 dev d0"], V6),
    (["ip link set d0 down", "ip link set d0 up", "ip address add fd00::1/64 dev d0 nodad"], V6),
    (["ip -6 route add 2001:db8:1::/48 dev d0"], V6),
    (["ip -6 route replace 2001:db8:1::/48 via fe80::5 dev d0"], V6),
    (["ip -6 route append 2001:db8:1::/48 dev d0"], V6),
    (["ip -6 route replace 2001:db8:1::/48 via fe80::6 dev d0"], V6),
    (["ip -6 route del 2001:db8:1::/48 dev d0", "ip -6 route del 2001:db8:1::/48"], V6),
    (["ip -6 route add 2001:db8:1::/48 nexthop via fe80::5 dev d0 nexthop via fe80::6 dev d0"], V6),
    (["ip -6 route replace 2001:db8:1::/48 dev d0"], V6),
    (["ip -6 route append 2001:db8:1::/48 via fe80::7 dev d0"], V6),
    (["ip -6 route replace 2001:db8:1::/48 dev d0 mtu 1400"], V6),
    (["ip route add default via 10.0.0.2"], V4),
    (["ip rule add from 10.0.0.9 table 100", "ip route add default via 10.0.0.7 table 100"], V4),
    (["ip route replace default via 10.0.0.8 table 100"], V4),
    (["ip rule add to 8.9.0.0/16 table 101", "ip route add 8.9.0.0/16 via 10.0.0.6 table 101"], V4),
    (["ip rule del from 10.0.0.9 table 100", "ip rule del to 8.9.0.0/16 table 101"], V4),
    (["ip route del default", "ip rule add fwmark 7 table 100"], [("10.0.0.1", "8.8.8.8", "7")]),
]


def test_every_next_hop_is_the_kernels() -> None:
    """Metric, order, weight, nexthop objects, rules and tables; on a veth, with the kernel's own ARP."""
    script = f"{SETUP}\nexec {sys.executable} -c '{FOLLOWER}'"
    compared = 0
    words = ["unshare", "-n", "sh", "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for commands, packets in STEPS:
            child.stdin.write(json.dumps([commands, packets]) + "\n")
            child.stdin.flush()
            for ours, kernels in json.loads(child.stdout.readline()):
                if kernels:  # else the packet never reaches the interface
                    compared += 1
                    assert ours == kernels, commands
        child.stdin.close()
        assert child.wait(60) == 0
    assert compared > 50


def test_a_dead_router_is_left_for_another_one(sh: Sh, until: Until) -> None:
    """RFC 4191: the router of high preference first. RFC 4861 §6.3.6, §7.2.5: not when it is dead."""
    with NamespaceLab(hosts=3) as lab:
        client, high, low = lab.hosts
        reaches = ["ping", "-c1", "-W1", "fd99::1"]
        for router, flags in ((high, 0x08), (low, 0x18)):
            sh(router, "ip address add fd99::1/128 dev lo")
            sh(router, "sysctl -qw net.ipv6.conf.all.forwarding=1")
            advertise_router(router, flags)
        until(lambda: sh(client, "ip -6 route show default").count("via") == 2)
        until(lambda: client.run(reaches).returncode == 0)
        assert high.pid is not None
        os.kill(high.pid, signal.SIGSTOP)
        try:
            assert client.run(reaches).returncode != 0  # it was the one in use
            began = time.monotonic()
            until(lambda: client.run(reaches).returncode == 0)
            print(f"left after {time.monotonic() - began:.1f} s")
            assert sh(client, "ip -6 route show default").count("via") == 1
        finally:
            os.kill(high.pid, signal.SIGCONT)


def test_no_packet_right_after_a_change_of_its_route_is_lost() -> None:
    """The kernel has the new route some milliseconds before the endpoint."""
    with NamespaceLab() as lab:
        host, peer = lab.hosts
        rerouting.prepare(peer)
        lost = {
            name: rerouting.lost_packets(host, peer, case, 6, 60.0)
            for name, case in rerouting.CASES.items()
        }
        assert lost == dict.fromkeys(lost, 0)
