# SPDX-License-Identifier: BSD-2-Clause
"""Throughput of one stream with the TUN's offloads and without, beside kernel VXLAN and plain veth.

    python bench/offload.py --rounds 5 --seconds 4 --output bench/results/NAME.json

All paths run over the same veth pair of one lab, interleaved, so that what else the machine does
falls on all of them; what counts is the ratio to VXLAN of the same round. Needs root and iperf3.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ipoibu.lab import INTERFACE, NETDEV, Host, Lab

MTU: Final = 2044
VXLAN: Final = "vx0"
CLOCK_HZ: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Path_:
    """A way from the first host to the second: its address there, and the daemons' options."""

    name: str
    address: str
    options: tuple[str, ...] | None = None


def sh(host: Host, command: str) -> None:
    done = host.run(command.split())
    if done.returncode != 0:
        raise SystemExit(f"{host.name}: {command}: {done.stderr.strip()}")


def add_vxlan(lab: Lab) -> bool:
    """A VXLAN over the wire of the lab, with the same MTU; False where the kernel has none."""
    for host in lab.hosts:
        number, other = host.number, 3 - host.number
        sh(host, f"ip address add 10.78.0.{number}/24 dev {NETDEV}")
        made = host.run(
            f"ip link add {VXLAN} type vxlan id 7 dstport 4789 dev {NETDEV}"
            f" local 10.78.0.{number} remote 10.78.0.{other}".split()
        )
        if made.returncode != 0:
            return False
        sh(host, f"ip link set {VXLAN} mtu {MTU} up")
        sh(host, f"ip address add 10.79.0.{number}/24 dev {VXLAN}")
        sh(host, f"ip address add fd79::{number}/64 dev {VXLAN} nodad")
    return True


def cpu_s(host: Host) -> float:
    """User and system time of the host's daemon so far."""
    if host.pid is None:
        return 0.0
    fields = Path(f"/proc/{host.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_HZ


def iperf3(lab: Lab, address: str, seconds: float, words: list[str]) -> dict[str, Any]:
    sender, receiver = lab.hosts
    server = receiver.namespace.popen(
        ["iperf3", "-s", "-1", "-B", address], stdout=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            if receiver.run(["ss", "-Hltn", "sport", "=", ":5201"]).stdout.strip():
                break
            time.sleep(0.05)
        before = [cpu_s(host) for host in lab.hosts]
        command = ["iperf3", "-c", address, "-t", f"{seconds:g}", "-J", *words]
        done = sender.run(command, timeout_s=seconds + 30)
        after = [cpu_s(host) for host in lab.hosts]
    finally:
        server.kill()
        server.wait()
    try:
        end = json.loads(done.stdout)["end"]
    except (ValueError, KeyError) as error:
        raise SystemExit(f"{' '.join(command)}: {done.stdout[-500:]}{done.stderr}") from error
    total = end.get("sum_received", end.get("sum"))
    used_s = [b - a for a, b in zip(before, after, strict=True)]
    return {
        "gbit_s": total["bits_per_second"] / 1e9,
        "lost_percent": end.get("sum", {}).get("lost_percent"),
        "retransmits": end.get("sum_sent", {}).get("retransmits"),
        "sender_ns_per_byte": used_s[0] * 1e9 / max(1, total["bytes"]),
        "receiver_ns_per_byte": used_s[1] * 1e9 / max(1, total["bytes"]),
    }


def restart(lab: Lab, options: tuple[str, ...]) -> None:
    if all(host.options == list(options) and host.pid for host in lab.hosts):
        return
    for host in lab.hosts:
        host.stop()
        host.options = list(options)
    lab.start()


def measure(rounds: int, seconds: float, udp: bool) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {}
    with Lab(2, start=False) as lab:
        second = lab.hosts[1]
        paths = [Path_("veth", "10.78.0.2")]
        if add_vxlan(lab):
            paths.append(Path_("vxlan", "10.79.0.2"))
        # One word for both directions: what the sender may segment, the receiver may merge.
        for name, word in (("ipoibu", "on"), ("ipoibu_plain", "off")):
            paths.append(Path_(name, str(second.ipv4.ip), ("--offload", word)))
        restart(lab, ("--offload", "on"))
        kinds = {"tcp": []} | ({"udp": ["-u", "-b", "0", "-l", "1400"]} if udp else {})
        for _ in range(rounds):
            for kind, words in kinds.items():
                for path in paths:
                    if path.options is not None:
                        restart(lab, path.options)
                    result = iperf3(lab, path.address, seconds, words)
                    runs.setdefault(f"{kind}.{path.name}", []).append(result)
                    print(f"{kind} {path.name:14} {result['gbit_s']:7.2f} Gb/s", file=sys.stderr)
    return summary(runs)


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    out: dict[str, Any] = {"median_gbit_s": {}, "ratio_to_vxlan": {}, "runs": runs}
    for name, results in runs.items():
        out["median_gbit_s"][name] = round(statistics.median(r["gbit_s"] for r in results), 3)
        against = runs.get(name.partition(".")[0] + ".vxlan")
        if against is not None:
            ratios = [r["gbit_s"] / v["gbit_s"] for r, v in zip(results, against, strict=True)]
            out["ratio_to_vxlan"][name] = {
                "median": round(statistics.median(ratios), 3),
                "min": round(min(ratios), 3),
                "max": round(max(ratios), 3),
            }
    return out


def environment() -> dict[str, Any]:
    cpu = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
    return {
        "kernel": platform.release(),
        "cpu": cpu[0].partition(":")[2].strip() if cpu else platform.processor(),
        "cpus": os.cpu_count(),
        "load_before": os.getloadavg(),
        "command": " ".join(["python", *sys.argv]),
        "iperf3": subprocess.run(
            ["iperf3", "--version"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[0],
        "interface": INTERFACE,
        "mtu": MTU,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--udp", action="store_true", help="UDP of 1400 bytes, too")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    report = {"environment": environment()}
    report |= measure(options.rounds, options.seconds, options.udp)
    text = json.dumps(report, indent=1)
    if options.output:
        options.output.write_text(text + "\n")
    print(json.dumps({k: v for k, v in report.items() if k != "runs"}, indent=1))


if __name__ == "__main__":
    main()
