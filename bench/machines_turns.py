# SPDX-License-Identifier: BSD-2-Clause
"""Compare builds, and ib_ipoib, in lab machines that take turns, by the CPU time of their host:
python bench/machines_turns.py datagram|connected [options] NAME=TREE[@kernel] ...

Each build is a checkout in which `make venv build` has run; `@kernel` takes ib_ipoib in its machines. A
round boots two machines for every build, in random order, and measures one TCP stream: Gb/s, and for each
byte the time on CPU of all processes of both machines, of the receiver's and of the sender's. The machines'
own /proc/stat, by which `ipoibu bench --lab` counts, has the time that a busy host takes from them, too.
The result is the geometric mean of the rounds' ratios to the first build, with its standard error.

    python bench/machines_turns.py connected --rounds 8 ib_ipoib=.@kernel before=/tmp/before after=.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rounds import ratios, take_turns

PROC: Final = Path("/proc")
LOOK_S: Final = 0.01
SCRIPT: Final = """
call verbs_machine:on_the_wire
bench_up {contender} {mode}
meet up 60
ping -q -c 3 -i 0.2 -W 5 "10.9.0.$((3 - LAB_INDEX))" >/dev/null
meet known 40
bench_stream tcp {seconds}
[[ {contender} != ipoibu ]] || ib_down
meet done 60
"""


def processes() -> Iterator[Path]:
    return (path for path in PROC.iterdir() if path.name.isdigit())


def sessions(directory: str) -> dict[int, int]:
    """Return the session of each machine of a lab, by the machine's number."""
    found = {}
    for path in processes():
        try:
            words = (path / "cmdline").read_text(errors="replace").split("\0")
            if f"LAB_DIRECTORY={directory}" in words:
                number = next(word for word in words if word.startswith("LAB_INDEX="))
                found[int(number.partition("=")[2])] = os.getsid(int(path.name))
        except OSError:
            continue
    return found


def cpu_s(session: int) -> dict[str, float]:
    """Return the time on CPU of each process of a session."""
    from ipoibu.bench import process

    found = {}
    for path in processes():
        try:
            if os.getsid(int(path.name)) == session:
                found[path.name] = process.cpu_s([int(path.name)])
        except OSError:
            continue
    return found


class Meter(threading.Thread):
    """Measures what the machines of a lab use during the stream, which their files bracket."""

    def __init__(self, directory: Path, nice: int) -> None:
        super().__init__(daemon=True)
        self._directory = directory
        self._nice = nice
        self.ended = threading.Event()
        self.used_s: dict[int, float] = {}

    def _wait(self, name: str) -> bool:
        while not (self._directory / name).exists():
            if self.ended.wait(LOOK_S):
                return False
        return True

    def run(self) -> None:
        if not self._wait("stat-tcp-before-2"):
            return
        machines = sessions(str(self._directory))
        for session in machines.values() if self._nice else ():
            (PROC / str(session) / "autogroup").write_text(str(self._nice))
        before = {number: cpu_s(session) for number, session in machines.items()}
        if self._wait("stat-tcp-after-2"):
            for number, session in machines.items():
                after = cpu_s(session).items()
                self.used_s[number] = sum(s - before[number].get(pid, 0) for pid, s in after)


def turn(contender: str, mode: str, seconds: int, nice: int) -> dict[str, float]:
    """Boot two machines and measure, by the package of the checkout that this interpreter belongs to."""
    from ipoibu.bench import machines
    from ipoibu.bench.traffic import parse_iperf3
    from ipoibu.lab.directory import work_directory
    from ipoibu.lab.machines.judge import SCRIPTS
    from ipoibu.lab.machines.kernels import find_kernel
    from ipoibu.lab.machines.lab import Lab
    from ipoibu.lab.machines.plan import NO_FABRIC
    from ipoibu.lab.machines.roles import play
    from ipoibu.lab.machines.runner import SCENARIOS, source

    arguments = next(
        it.arguments for it in machines.TURNS if (it.contender, it.mode) == (contender, mode)
    )
    script = source(*SCRIPTS, SCENARIOS / "bench_host.sh")
    script += SCRIPT.format(contender=contender, mode=mode, seconds=seconds)
    with work_directory("bench") as directory:
        lab = Lab(
            kernel=find_kernel(),
            fabric=NO_FABRIC,
            output=directory,
            kernel_arguments=[arguments] * 2,
        )
        meter = Meter(Path(directory), nice)
        meter.start()
        try:
            for result in play(lab, [script] * 2, 120 + 4 * seconds):
                result.check()
        finally:
            meter.ended.set()
            meter.join()
        gbit_s = parse_iperf3((Path(directory) / "tcp.json").read_text())[0]
    total_bytes = gbit_s * 1e9 / 8 * seconds
    receiver, sender = (1e9 * meter.used_s[number] / total_bytes for number in (1, 2))
    return {
        "gbit_s": gbit_s,
        "cpu_ns_per_byte": receiver + sender,
        "receiver_ns_per_byte": receiver,
        "sender_ns_per_byte": sender,
    }


def take(build: str, mode: str, seconds: int, nice: int) -> dict[str, float]:
    """Run one turn with the interpreter of the build, TREE[@kernel]."""
    path, _, contender = build.partition("@")
    tree = Path(path).resolve()
    words = ("--turn", "--seconds", str(seconds), "--nice", str(nice), mode, contender or "ipoibu")
    output = subprocess.run(
        [tree / ".venv/bin/python", Path(__file__).resolve(), *words],
        cwd=tree,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--turn", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("mode", choices=("datagram", "connected"))
    parser.add_argument("builds", nargs="+", metavar="NAME=TREE[@kernel]")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=2, help="of each stream")
    parser.add_argument("--nice", type=int, default=0, help="of the machines' autogroups")
    parser.add_argument("--limit", type=float, default=math.inf, help="end after so many seconds")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()
    if args.turn:
        print(json.dumps(turn(args.builds[0], args.mode, args.seconds, args.nice)))
        return
    if len(args.builds) < 2:
        parser.error("a comparison needs two builds")
    builds = dict(it.partition("=")[::2] for it in args.builds)
    figures = take_turns(
        builds,
        args.rounds,
        lambda name: take(builds[name], args.mode, args.seconds, args.nice),
        deadline_s=args.limit,
    )
    print(*ratios(figures), sep="\n")
    if args.json:
        args.json.write_text(json.dumps({"mode": args.mode, "figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
