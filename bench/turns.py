# SPDX-License-Identifier: BSD-2-Clause
"""Compare builds by labs that take turns, second by second, as root:
python bench/turns.py tcp|super|packets|ping [options] NAME=TREE[@OPTION...] ...

Each build is a checkout in which `make venv build` has run; its two hosts, made by `ipoibu lab
OPTION...`, stay up for the whole comparison. A round measures every build once, in random order, so what
the machine does meanwhile meets all of them alike. The result is the geometric mean of the rounds'
ratios to the first build, with its standard error: about 0.01 after 20 rounds, where `ipoibu bench` of
two checkouts in turn needs 25 rounds for 0.03.

    python bench/turns.py tcp before=/tmp/before after=. quiet=.@--sandbox@off

Of datagrams, `delivered_s` counts those that the data path delivered to the second host's kernel, and
`arrived_s` those of them for which iperf3 had time: on a small machine the sender takes that time.

A virtual cable carries a train of datagrams whole, as if it were one of 64 KiB. With --wire datagrams
it carries them one by one, as a real wire does, since the sending device does not offload their segmentation.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from rounds import ratios, take_turns

PEER: Final = "10.77.0.2"
PORT: Final = "5201"
PINGS: Final = 3000
CABLE: Final = "eth0"  # in each host
SECONDS: Final = "1.5"
STREAMS: Final = {
    "tcp": (),
    "super": ("-u", "-b", "0", "-l", "60K"),
    "packets": ("-u", "-b", "0", "-l", "64"),
}


class Build:
    """A checkout with its two hosts."""

    wire = "trains"

    def __init__(self, argument: str) -> None:
        self.name, _, rest = argument.partition("=")
        tree, *self._options = rest.split("@")
        self._tree = Path(tree).resolve()
        self._processes: list[subprocess.Popen[str]] = []
        self._hosts: list[str] = []

    def __enter__(self) -> Self:
        """Start the lab and an iperf3 server in its second host."""
        program = str(self._tree / ".venv/bin/ipoibu")
        lab = subprocess.Popen(
            [program, "lab", *self._options], cwd=self._tree, stdout=subprocess.PIPE, text=True
        )
        self._processes.append(lab)
        assert lab.stdout is not None
        for line in lab.stdout:
            if host := re.search(r"namespace (\S+)", line):
                self._hosts.append(host[1])
            if line.startswith("end the lab"):
                break
        else:
            raise SystemExit(f"{self.name}: the lab did not start")
        for host in self._hosts if self.wire == "datagrams" else ():
            enter = ["ip", "netns", "exec", host]
            switch = ["ethtool", "-K", CABLE, "tx-udp-segmentation", "off"]
            subprocess.run([*enter, *switch], check=True)
        server = ["ip", "netns", "exec", self._hosts[1], "iperf3", "-s", "-p", PORT]
        quiet = subprocess.DEVNULL
        self._processes.append(subprocess.Popen(server, stdout=quiet, stderr=quiet, text=True))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End the server and the lab."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait()

    def received(self) -> int:
        """Return how many packets the second host's data path has delivered."""
        program = str(self._tree / ".venv/bin/ipoibu")
        output = self.run(program, "stats", "ib0", host=1)
        found = re.search(r"\srx_packets\s+(\d+)", output)
        return int(found[1]) if found else 0

    def run(self, *command: str, host: int = 0) -> str:
        """Return what `command` prints in a host, by default the first."""
        enter = ("ip", "netns", "exec", self._hosts[host])
        result = subprocess.run((*enter, *command), capture_output=True, check=False, text=True)
        if result.returncode != 0:
            raise SystemExit(f"{self.name}: {' '.join(command)}: {result.stdout}{result.stderr}")
        return result.stdout

    def measure(self, what: str) -> dict[str, float]:
        """Return one round's figures."""
        if what == "ping":
            output = self.run("ping", "-q", "-i", "0", "-c", str(PINGS), PEER)
            least, mean = re.findall(r"[\d.]+", output.splitlines()[-1].partition("=")[2])[:2]
            return {"min_us": 1e3 * float(least), "mean_us": 1e3 * float(mean)}
        before, before_s = self.received(), busy_s()
        report = self.run("iperf3", "-c", PEER, "-p", PORT, "-t", SECONDS, "-J", *STREAMS[what])
        cpu_s = busy_s() - before_s
        end: dict[str, Any] = json.loads(report)["end"]
        if what == "tcp":
            received = end["sum_received"]
            speed = received["bits_per_second"] / 1e9
            return {"gbit_s": speed, "cpu_ns_per_byte": 1e9 * cpu_s / received["bytes"]}
        total = end["sum"]
        arrived = total["packets"] - total["lost_packets"]
        return {
            "arrived_s": arrived / total["seconds"],
            "delivered_s": (self.received() - before) / total["seconds"],
            "cpu_us_per_packet": 1e6 * cpu_s / total["packets"],
        }


def busy_s() -> float:
    """Return the CPU time that the machine has used, in seconds."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _waiting, *rest = map(int, file.readline().split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=[*STREAMS, "ping"])
    parser.add_argument("builds", nargs="+", metavar="NAME=TREE[@OPTION...]", type=Build)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--wire", choices=["trains", "datagrams"], default="trains", help="what the cables carry"
    )
    parser.add_argument("--json", type=Path, help="append the rows to this file, a line each")
    args = parser.parse_args()
    if len(args.builds) < 2 or args.rounds < 2:
        parser.error("a comparison needs two builds and two rounds")
    with ExitStack() as stack:
        for build in args.builds:
            build.wire = args.wire
            stack.enter_context(build)
        builds = {build.name: build for build in args.builds}
        for build in args.builds:
            build.measure(args.what)  # warms up
        figures = take_turns(builds, args.rounds, lambda name: builds[name].measure(args.what))
    rows = list(ratios(figures))
    print(*rows, sep="\n")
    if args.json:
        with args.json.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"what": args.what, **asdict(row)}) + "\n" for row in rows)


if __name__ == "__main__":
    main()
