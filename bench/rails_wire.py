# SPDX-License-Identifier: BSD-2-Clause
"""Requests lost at a pulled wire, in namespaces: the active rail's wire goes down at the switch.

As root: `.venv/bin/python -m bench.rails_wire [ROUNDS]`. One host has two wires to the bridge of another,
which pings it every 2 ms, 800 times; in the middle the bridge's side of the active wire goes down. The modes
take turns. Then two hosts with two separate wires, one of which both lose at once, ping every 10 ms, 400
times. See bench/notes/rails.md.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from typing import Final

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

MODES: Final = ("datagram", "connected")
WIRES: Final = ("eth0", "wire1")  # at the bridge
COUNT: Final = 800
PERIOD_S: Final = 0.002
CUT_COUNT: Final = 400
CUT_PERIOD_S: Final = 0.01


def _run(host: Host, command: str) -> None:
    done = host.run(["sh", "-c", command])
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr}")


def _lay(first: Host, second: Host) -> None:
    other = second.namespace.path.name
    _run(second, "ip link add bridge0 mtu 9000 type bridge && ip link set bridge0 up")
    _run(second, "ip link set eth0 mtu 9000 master bridge0")
    _run(first, "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad; ip link set eth0 mtu 9000")
    _run(first, f"ip link add eth1 mtu 9000 type veth peer name wire1 netns {other} mtu 9000")
    _run(second, "ip link set wire1 master bridge0 up")
    _run(first, "ip link set eth1 up")


def lost(mode: str, rounds: int) -> list[int]:
    """Return the requests that are lost in each round."""
    found = []
    with NamespaceLab(start=False) as lab:
        first, second = lab.hosts
        _lay(first, second)
        first.options, second.options = ["--device", "soft:eth1", "--mode", mode], ["--mode", mode]
        second.device = "soft:bridge0"
        lab.start()
        time.sleep(2)
        for number in range(rounds):
            active = WIRES[number % 2]
            command = ["ping", "-q", f"-i{PERIOD_S}", f"-c{COUNT}", "-W1", str(first.ipv4.ip)]
            ping = second.namespace.popen(command, stdout=subprocess.PIPE)
            time.sleep(COUNT * PERIOD_S / 2)
            _run(second, f"ip link set {active} down")
            found.append(_lost_of(ping))
            _run(second, f"ip link set {active} up")
            time.sleep(1)
    return found


def _lay_apart(hosts: tuple[Host, Host], switches: Host) -> None:
    """Join the hosts by two bridges, wire1 and wire2, whose ports are of the groups 1 and 2."""
    other = switches.namespace.path.name
    for wire in (1, 2):
        _run(switches, f"ip link add wire{wire} mtu 4200 type bridge && ip link set wire{wire} up")
        for number, host in enumerate(hosts):
            port = f"port{number}_{wire}"
            _run(host, "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad")
            _run(
                host,
                f"ip link add wire{wire} mtu 4200 type veth peer name {port} netns {other} mtu 4200"
                f" && ip link set wire{wire} up",
            )
            _run(switches, f"ip link set {port} group {wire} master wire{wire} up")


def _is_settled(host: Host) -> bool:
    return sorted(rail["state"] for rail in host.ask("show")["rails"]) == ["active", "backup"]


def lost_by_both(mode: str, rounds: int) -> list[int]:
    """Return the requests that are lost in each round, when both hosts lose the active wire at once."""
    found = []
    with NamespaceLab(3, start=False) as lab:
        first, second, switches = lab.hosts
        _lay_apart((first, second), switches)
        for host in (first, second):
            host.device, host.options = "soft:wire1", ["--device", "soft:wire2", "--mode", mode]
            host.start()
        time.sleep(2)
        for number in range(rounds):
            active = number % 2 + 1
            command = ["ping", "-q", f"-i{CUT_PERIOD_S}", f"-c{CUT_COUNT}", "-W1"]
            ping = second.namespace.popen([*command, str(first.ipv4.ip)], stdout=subprocess.PIPE)
            time.sleep(CUT_COUNT * CUT_PERIOD_S / 2)
            _run(switches, f"ip link set group {active} down")
            found.append(_lost_of(ping))
            _run(switches, f"ip link set group {active} up")
            while not (_is_settled(first) and _is_settled(second)):
                time.sleep(0.1)
            time.sleep(1)
    return found


def _lost_of(ping: subprocess.Popen[bytes]) -> int:
    report = ping.communicate()[0].decode()
    match = re.search(r"(\d+) packets transmitted, (\d+) received", report)
    if match is None:
        raise SystemExit(f"ping said: {report}")
    return int(match[1]) - int(match[2])


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for name, measure in (("one host", lost), ("both", lost_by_both)):
        for mode in MODES:
            values = measure(mode, rounds)
            least, middle, most = min(values), statistics.median(values), max(values)
            print(f"{mode:9} {name}: lost requests: least {least}, median {middle:g}, most {most}")


if __name__ == "__main__":
    main()
