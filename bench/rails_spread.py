# SPDX-License-Identifier: BSD-2-Clause
"""Throughput of two rails on separate wires beside one: `--rail-mode balance-xor`.

As root: `.venv/bin/python -m bench.rails_spread [--json FILE] [ROUNDS]`. Two hosts have two wires, and tbf
shapes each to 1 Gb/s in each direction. 16 TCP streams of iperf3 go from one host to the other. The
contenders take turns: the first wire alone, both in active-backup, both with flows over both.
See bench/notes/rails.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ipoibu.bench.environment import environment
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

SECOND: Final = ("--device", "soft:eth1")
CONTENDERS: Final[dict[str, Sequence[str]]] = {
    "one rail": (),
    "active-backup": SECOND,
    "balance-xor": (*SECOND, "--rail-mode", "balance-xor"),
}
MTU: Final = 9000
SHAPE: Final = "rate 1gbit burst 256kb limit 2mb"
STREAMS: Final = 16
SECONDS: Final = 5
SETTLE_S: Final = 2.0  # the hosts meet, and the streams leave slow start


def _run(host: Host, command: str) -> None:
    done = host.run(["sh", "-c", command])
    if done.returncode != 0:
        raise SystemExit(f"{command}: {done.stderr}")


@contextmanager
def _hosts(options: Sequence[str]) -> Iterator[tuple[Host, Host]]:
    """Two hosts with two shaped wires, whose interfaces have these options, too."""
    with NamespaceLab(start=False) as lab:
        first, second = lab.hosts
        other = second.namespace.path.name
        for host in lab.hosts:
            _run(host, "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad")
        _run(first, f"ip link add eth1 type veth peer name eth1 netns {other}")
        for host in lab.hosts:
            for wire in ("eth0", "eth1"):
                _run(host, f"ip link set {wire} mtu {MTU} up")
                _run(host, f"tc qdisc add dev {wire} root tbf {SHAPE}")
            host.options = list(options)
        lab.start()
        yield first, second


def throughput_mbps(options: Sequence[str]) -> float:
    """Return what all streams together carry, in Mb/s of TCP payload."""
    with _hosts(options) as (first, second):
        time.sleep(SETTLE_S)
        server = second.namespace.popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        command = ["iperf3", "-c", str(second.ipv4.ip), f"-P{STREAMS}", f"-t{SECONDS}"]
        done = first.run([*command, f"-O{SETTLE_S:g}", "-J"])
        server.kill()
        server.wait()
        report = json.loads(done.stdout)
        return float(report["end"]["sum_received"]["bits_per_second"]) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
    for _ in range(arguments.rounds):
        for contender, options in CONTENDERS.items():
            found[contender].append(round(throughput_mbps(options), 1))
    medians = {contender: statistics.median(values) for contender, values in found.items()}
    ratio = round(medians["balance-xor"] / medians["one rail"], 3)
    result: dict[str, Any] = {
        "environment": environment()
        | {"command": f"python -m bench.rails_spread {arguments.rounds}"},
        "shape": SHAPE,
        "streams": STREAMS,
        "seconds": SECONDS,
        "mbps": found,
        "ratio": ratio,
    }
    for contender, values in found.items():
        print(
            f"{contender:13} Mb/s: least {min(values)}, median {medians[contender]}, most {max(values)}"
        )
    print(f"two rails carry {ratio} times what one does")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
