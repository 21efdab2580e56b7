# SPDX-License-Identifier: BSD-2-Clause
"""Boot labs of virtual machines one after the other, up to the first ping over the kernel's own ib_ipoib:
python bench/boots.py [--guests N] [--busy N] [--kernel KERNEL] [--failures DIR] [COUNT]

It prints when the last machine had passed each stage, as the median of all boots and for the quickest one,
and keeps the directory of each lab that failed. The exit code is 1 if one did. A pair takes about 1.5 s
on two quiet CPUs, so 1000 boots take about half an hour. Say how busy the host was: machines take turns on
its CPUs.

    python bench/boots.py --guests 8 5                 # how long the start takes
    python bench/boots.py --busy 1 --failures /tmp/f 1000  # whether each of them succeeds
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ipoibu.lab import Lab, LabError
from ipoibu.lab.directory import work_directory

TICKS_PER_S: Final = 100  # of times in /proc/PID/stat
STAGES: Final = {
    "process": "the host has started the machine's kernel",
    "kernel": "the kernel has started process 1",
    "agent": "process 1 has started the agent",
    "set up": "every machine has ib0 with its address, and has joined the broadcast group",
    "ping": "each machine has had an answer from the next one",
    "end": "all machines have ended",
}


def boot(guests: int, kernel: str | Path | None, directory: Path) -> dict[str, float]:
    """Boot a lab; return how many seconds after the call the last machine had passed each stage."""
    began_s = time.time()
    with Lab(guests, kernel=kernel, output=directory) as lab:
        passed = {"set up": time.time() - began_s}
        pings = [
            machine.start(f"ping -q -c 1 -W 10 {other.ipv4}")
            for machine, other in zip(lab.guests, (*lab.guests[1:], lab.a), strict=True)
        ]
        for ping in pings:
            status, output = ping.wait(60)
            assert status == 0, output + ping.errors
        passed["ping"] = time.time() - began_s
        for machine in lab.guests:
            uptime, stat = machine.succeed("cat /proc/uptime /proc/$PPID/stat").splitlines()
            kernel_began_s = time.time() - began_s - float(uptime.split()[0])
            log = (directory / machine.name / "kernel.log").read_text(errors="replace")
            init = re.search(r"^\[ *(\S+)\] Run \S+ as init", log, re.MULTILINE)
            assert init is not None
            agent_s = int(stat.rpartition(")")[2].split()[19]) / TICKS_PER_S
            for stage, seconds in {
                "process": 0.0,
                "kernel": float(init[1]),
                "agent": agent_s,
            }.items():
                passed[stage] = max(passed.get(stage, 0.0), kernel_began_s + seconds)
    passed["end"] = time.time() - began_s
    return passed


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep `count` CPUs busy meanwhile."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=5, metavar="COUNT")
    parser.add_argument("--guests", type=int, default=2, metavar="N")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="beside N busy loops")
    parser.add_argument("--kernel", metavar="KERNEL", help="a release, or the path of a kernel")
    parser.add_argument("--failures", type=Path, default=Path("boots.failures"), metavar="DIR")
    options = parser.parse_args()
    kernel = Path(options.kernel) if "/" in (options.kernel or "") else options.kernel
    boots: list[dict[str, float]] = []
    failed = 0
    began_s = time.monotonic()
    with busy(options.busy), work_directory("boots") as place:
        for number in range(1, options.count + 1):
            directory = place / str(number)
            try:
                boots.append(boot(options.guests, kernel, directory))
            except (LabError, AssertionError) as error:
                failed += 1
                directory.mkdir(exist_ok=True)
                (directory / "error").write_text(f"{error}\n")
                shutil.copytree(directory, options.failures / str(number), symlinks=True)
                print(f"boot {number} failed: {str(error).splitlines()[0]}", flush=True)
            shutil.rmtree(directory)
            if number % 100 == 0:
                print(f"{number} boots, {failed} failed", flush=True)
        used = [resource.getrusage(it) for it in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(it.ru_utime + it.ru_stime for it in used) / options.count
    seconds = time.monotonic() - began_s
    print(
        f"{options.count} boots of {options.guests} machines in {seconds:.0f} s, {failed} failed;"
        f" each used {cpu_s:.2f} s of CPU time;"
        f" {len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}"
    )
    if boots:
        quickest = min(boots, key=lambda it: it["ping"])
        print(f"{'median':>8} {'quickest':>8}")
        for stage, text in STAGES.items():
            median = statistics.median(it[stage] for it in boots)
            print(f"{median:7.2f}s {quickest[stage]:7.2f}s  {stage}: {text}")
    if failed:
        print(f"the directories of the labs that failed are in {options.failures}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
