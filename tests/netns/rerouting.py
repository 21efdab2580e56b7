# SPDX-License-Identifier: BSD-2-Clause
"""Packets right after a change of their route: `python -m tests.netns.rerouting 200` makes 200 changes of
each kind in a lab of its own, and prints how many packets were lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Final

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

PORT: Final = 7000
GATEWAYS: Final = {4: "10.77.0.2", 6: "fd77::2"}  # the peer

# Runs in the first host, and for each line of its input makes a change and sends a packet at once by the
# right route. The daemon has mostly followed the change to the wrong route by then.
SENDER: Final = """
import json, socket, subprocess, sys, time
case = json.loads(sys.argv[1])
family = socket.AF_INET6 if ":" in case["to"] else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as sender:
    for number, line in enumerate(sys.stdin):
        for command in case["away"]:
            subprocess.run(command.split(), check=True)
        time.sleep(0.05)
        for command in case["back"]:
            subprocess.run(command.split(), check=True)
        sender.sendto(b"%d" % number, (case["to"], 7000))
"""


@dataclass(frozen=True)
class Case:
    """Changes `away` from the right route to the address `to`, and `back` again."""

    to: str
    away: list[str]
    back: list[str]
    before: list[str] = field(default_factory=list)


Cases = dict[str, Case]


def _cases(family: int, network: str, to: str, other: str, other_to: str) -> Cases:
    ip = f"ip -{family}"
    via, direct = f"via {GATEWAYS[family]} dev ib0", "dev ib0"
    right, wrong = f"to {other} table 100", f"to {other} table 99"
    tables = [
        f"{ip} route add {other} {direct} table 99",
        f"{ip} route add {other} {via} table 100",
    ]
    ours, theirs = ("10.52.0.1/24", "10.52.0.2") if family == 4 else ("fd52::1/64", "fd52::2")
    away = [f"{ip} route replace {network} {direct}"]
    return {
        f"route replaced, IPv{family}": Case(to, away, [f"{ip} route replace {network} {via}"]),
        f"route deleted and added, IPv{family}": Case(
            to, away, [f"{ip} route del {network}", f"{ip} route add {network} {via}"]
        ),
        f"address added, IPv{family}": Case(
            theirs,
            [f"{ip} address flush to {ours} dev ib0"],
            [f"{ip} address add {ours} dev ib0"],
        ),
        # The last one: where there is such a rule, the kernel is asked about each flow.
        f"rule replaced, IPv{family}": Case(
            other_to,
            [f"{ip} rule add {wrong}", f"{ip} rule del {right}"],
            [f"{ip} rule add {right}", f"{ip} rule del {wrong}"],
            before=[*tables, f"{ip} rule add {right}"],
        ),
    }


CASES: Final = {
    **_cases(4, "10.50.0.0/16", "10.50.0.1", "10.51.0.0/16", "10.51.0.1"),
    **_cases(6, "fd50::/32", "fd50::1", "fd51::/32", "fd51::1"),
}


def prepare(peer: Host) -> None:
    """Give the peer the addresses, also those behind it, for which it does not answer on the link."""
    for command in (
        "sysctl -qw net.ipv4.conf.all.arp_ignore=1",
        *(f"ip address add {it} dev lo" for it in ("10.50.0.1/32", "10.51.0.1/32")),
        *(f"ip address add {it} dev lo" for it in ("fd50::1/128", "fd51::1/128")),
        *(f"ip address add {it} dev ib0" for it in ("10.52.0.2/24", "fd52::2/64")),
    ):
        done = peer.run(command.split())
        assert done.returncode == 0, done.stderr


def lost_packets(host: Host, peer: Host, case: Case, changes: int, wait_s: float) -> int:
    """Return how many of the packets, one after each change, do not reach `peer` within `wait_s`."""
    for setup in case.before:
        assert host.run(setup.split()).returncode == 0, setup
    command = [sys.executable, "-c", SENDER, json.dumps(vars(case))]
    lost = 0
    with peer.socket(socket.AF_INET6, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("::", PORT))
        receiver.settimeout(wait_s)
        with host.namespace.popen(command, stdin=subprocess.PIPE) as sender:
            assert sender.stdin is not None
            for number in range(changes):
                sender.stdin.write(b"\n")
                sender.stdin.flush()
                try:
                    while receiver.recv(100) != b"%d" % number:
                        pass
                except TimeoutError:
                    lost += 1
            sender.stdin.close()
            assert sender.wait(60) == 0
    return lost


def main(changes: int) -> None:
    with tempfile.TemporaryDirectory() as runtime, NamespaceLab() as lab:
        os.environ["IPOIBU_RUNTIME_DIR"] = runtime
        host, peer = lab.hosts
        prepare(peer)
        for name, case in CASES.items():
            lost = lost_packets(host, peer, case, changes, 5.0)
            print(f"{name}: {lost} of {changes} lost", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
