# SPDX-License-Identifier: BSD-2-Clause
"""Compare what starts cost in builds that take turns, as root:
python bench/start.py [--rounds N] NAME=TREE ...

Each build is a checkout in which `make venv build` has run. A round starts, for every build, two hosts
on one virtual cable, each with `ipoibu up` on the built-in HCA and an IPv4 and an IPv6 address; then the
same in connected mode; one host alone, without pings, in each mode; an application, one process with two
endpoints in memory; and two applications on the built-in HCA. Of each it measures

- `up_s`: from the first exec until both hosts report that they are up, or until the application has a
  packet;
- `ping_s`, `ping6_s`: from the first exec until a ping of the one host to the other is answered, by IPv4
  and by IPv6, which waits for duplicate detection of the address;
- `cpu_s`: the CPU time that a daemon has used by then;
- `rss_mib` and `pss_mib`: a daemon's memory by then, with and without what it shares with others.

The result is the median of the rounds.

    python bench/start.py --rounds 9 before=/tmp/before after=.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import select
import socket
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 120.0
CABLE_MTU: Final = "9000"
HOSTS: Final = (1, 2)
PING_PAUSE_S: Final = 0.01  # pings without a pause would take the CPUs from the hosts that start
APPLICATION: Final = """
from ipoibu import Endpoint, EndpointConfig, Gid
from ipoibu.fabric.memory import MemoryPort, MemorySwitch

switch = MemorySwitch()
pair = []
for number in 1, 2:
    port = MemoryPort(switch, Gid.parse(f"fe80::{number}"))
    endpoint = Endpoint(EndpointConfig(f"ib{number}", "memory"), port=port)
    endpoint.open()
    endpoint.address_added(f"10.0.0.{number}/24")
    pair.append(endpoint)
for endpoint in pair:
    assert endpoint.wait_up(60)
packet = bytes.fromhex("45000019000000004011" "0000" "0a000001" "0a000002") + b"hello"
pair[0].send([packet])
assert pair[1].recv(timeout=30)
print("up", flush=True)
input()
for endpoint in pair:
    endpoint.close()
"""


SOFT_APPLICATION: Final = """
import sys
from ipoibu import Endpoint, EndpointConfig

with Endpoint(EndpointConfig("ib0", "soft:eth0")) as endpoint:
    endpoint.address_added(sys.argv[1])
    assert endpoint.wait_up(60)
    print("up", flush=True)
    input()
"""


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def memory_mib(pid: int) -> dict[str, float]:
    """Return the resident and the proportional memory of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB", text, re.MULTILINE))
    return {f"{name.lower()}_mib": int(found[name]) / 1024 for name in ("Rss", "Pss")}


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mean(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


class Cable:
    """Two network namespaces with one virtual cable."""

    def __init__(self) -> None:
        self.names = [f"start{os.getpid()}-{number}" for number in HOSTS]

    def __enter__(self) -> Cable:
        for name in self.names:
            run("ip", "netns", "add", name)
        here, there = self.names
        end = ("eth0", "mtu", CABLE_MTU)
        peer = ("type", "veth", "peer", "name", "eth0", "mtu", CABLE_MTU, "netns", there)
        run("ip", "-n", here, "link", "add", *end, *peer)
        for name in self.names:
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "eth0", "addrgenmode", "eui64")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        for name in self.names:  # the kernel checks its own address before a device can use it
            while b"tentative" in subprocess.check_output(("ip", "-n", name, "addr", "show")):
                time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            run("ip", "netns", "del", name)


def ready(notices: socket.socket) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        left = max(0.0, deadline - time.monotonic())
        if not select.select([notices], [], [], left)[0]:
            raise SystemExit("a host is not up in time")
        if b"READY=1" in notices.recv(4096):
            return


def hosts(tree: Path, cable: Cable, numbers: tuple[int, ...], *options: str) -> dict[str, float]:
    """Start a daemon in the namespaces of `numbers`, and measure all when all are up."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        work.chmod(0o711)
        notices, processes = [], []
        begin = time.monotonic()
        for number in numbers:
            name = cable.names[number - 1]
            path = work / str(number)
            notices.append(stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)))
            notices[-1].bind(str(path))
            path.chmod(0o666)
            enter = ("ip", "netns", "exec", name, str(tree / ".venv/bin/ipoibu"))
            addresses = ("--address", f"10.77.0.{number}/24", "--address", f"fd77::{number}/64")
            process = subprocess.Popen(
                (*enter, "up", "ib0", "--device", "soft:eth0", *addresses, *options),
                env={**os.environ, "NOTIFY_SOCKET": str(path)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            processes.append(process.pid)
        pool = stack.enter_context(ThreadPoolExecutor(2))
        targets = {"ping_s": "10.77.0.2", "ping6_s": "fd77::2"} if len(numbers) > 1 else {}
        pings = {
            name: pool.submit(first_ping_s, cable.names[0], target, begin)
            for name, target in targets.items()
        }
        for each in notices:
            ready(each)
        up_s = time.monotonic() - begin
        found = {name: ping.result() for name, ping in pings.items()}
        return {
            "up_s": up_s,
            **found,
            **mean([{"cpu_s": cpu_s(p), **memory_mib(p)} for p in processes]),
        }


def first_ping_s(namespace: str, target: str, begin: float) -> float:
    """Return the time from `begin` to the first answer of `target`."""
    ping = ("ip", "netns", "exec", namespace, "ping", "-n", "-i", "0.02", "-c", "1", "-w", "1")
    while subprocess.run((*ping, target), check=False, capture_output=True).returncode != 0:
        if time.monotonic() - begin > TIMEOUT_S:
            raise SystemExit("a host is not reached in time")
        time.sleep(PING_PAUSE_S)
    return time.monotonic() - begin


def soft_applications(tree: Path, cable: Cable) -> dict[str, float]:
    """Run an endpoint in each namespace until both links are up."""
    with ExitStack() as stack:
        processes = []
        begin = time.monotonic()
        for number, name in zip(HOSTS, cable.names, strict=True):
            enter = ("ip", "netns", "exec", name, str(tree / ".venv/bin/python"))
            process = subprocess.Popen(
                (*enter, "-c", SOFT_APPLICATION, f"10.77.0.{number}/24"),
                cwd=tree,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.communicate, "\n")
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "up\n":
                raise SystemExit("an application is not up")
        up_s = time.monotonic() - begin
        pids = [process.pid for process in processes]
        return {"up_s": up_s, **mean([{"cpu_s": cpu_s(p), **memory_mib(p)} for p in pids])}


def application(tree: Path) -> dict[str, float]:
    """Run two endpoints in one process until one has a packet of the other."""
    begin = time.monotonic()
    with subprocess.Popen(
        (tree / ".venv/bin/python", "-c", APPLICATION),
        cwd=tree,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "up\n":
            raise SystemExit("the application has no packet")
        up_s = time.monotonic() - begin
        found = {"up_s": up_s, "cpu_s": cpu_s(process.pid), **memory_mib(process.pid)}
        process.communicate("\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("builds", nargs="+", metavar="NAME=TREE")
    arguments = parser.parse_args()
    builds = {name: Path(tree).resolve() for name, tree in (b.split("=") for b in arguments.builds)}
    figures: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    with Cable() as cable:
        for number in range(arguments.rounds + 1):
            for name, tree in random.sample(list(builds.items()), len(builds)):
                found = {
                    "datagram": hosts(tree, cable, HOSTS),
                    "connected": hosts(tree, cable, HOSTS, "--mode", "connected"),
                    "alone": hosts(tree, cable, HOSTS[:1]),
                    "alone, connected": hosts(tree, cable, HOSTS[:1], "--mode", "connected"),
                    "application": application(tree),
                    "soft": soft_applications(tree, cable),
                }
                for case, figure in found.items():
                    if number > 0:  # the first round fills caches
                        figures[case, name].append(figure)
    for (case, name), rows in sorted(figures.items()):
        medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        words = (f"{key} {value:.2f}" for key, value in medians.items())
        print(f"{case:16} {name:8} {'  '.join(words)}")


if __name__ == "__main__":
    main()
