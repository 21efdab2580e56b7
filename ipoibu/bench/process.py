# SPDX-License-Identifier: BSD-2-Clause
"""CPU time and memory of a process, from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_CLOCK_HZ: Final = os.sysconf("SC_CLK_TCK")


def parse_cpu_s(stat: str) -> float:
    """Return the user and system time of all threads, from /proc/PID/stat (see proc(5))."""
    fields = stat.rpartition(")")[2].split()  # the name in front may contain any character
    return (int(fields[11]) + int(fields[12])) / _CLOCK_HZ


def parse_rss_bytes(status: str) -> int:
    """Return the resident memory, from the text of /proc/PID/status."""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0  # a zombie has none


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time of the processes, to a nanosecond where the kernel counts them."""
    return sum(map(_one_cpu_s, pids))


def _one_cpu_s(pid: int) -> float:
    """Return that of the threads that run now, and of all where only /proc/PID/stat has it."""
    try:
        texts = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except FileNotFoundError:  # a thread that has just ended
        return _one_cpu_s(pid)
    if not texts:
        return parse_cpu_s(Path(f"/proc/{pid}/stat").read_text())
    return sum(int(text.split()[0]) for text in texts) / 1e9


def rss_bytes(pids: Iterable[int]) -> int:
    return sum(parse_rss_bytes(Path(f"/proc/{pid}/status").read_text()) for pid in pids)
