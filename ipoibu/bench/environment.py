# SPDX-License-Identifier: BSD-2-Clause
"""The machine and the programs behind a result."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from ipoibu import _core

_CONGESTION: Final = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_RMEM_MAX: Final = Path("/proc/sys/net/core/rmem_max")
_PROGRAMS: Final = {
    "iperf3": ["iperf3", "--version"],
    "wireguard-go": ["wireguard-go", "--version"],
    "fastd": ["fastd", "--version"],
    "slirp4netns": ["slirp4netns", "--version"],
    "passt": ["dpkg-query", "-W", "-f", "${Version}", "passt"],  # it does not know its own
}


def environment() -> dict[str, Any]:
    """Return CPU, kernel, versions, load average, and the command."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": shlex.join(["ipoibu", *sys.argv[1:]]),
        "cpu": parse_cpu(Path("/proc/cpuinfo").read_text()) or platform.machine(),
        "hypervisor": parse_hypervisor(Path("/proc/cpuinfo").read_text()),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "ipoibu": _own_version(),
        "tcp_congestion_control": _CONGESTION.read_text().strip(),
        "rmem_max_bytes": int(_RMEM_MAX.read_text()),
        "features": {name: bool(there) for name, there in _core.FEATURES.items()},
        "programs": {name: _first_line(command) for name, command in _PROGRAMS.items()},
        "load_average": [round(load, 2) for load in os.getloadavg()],
    }


def parse_cpu(text: str) -> str:
    """Return the model of the first CPU, from the text of /proc/cpuinfo, or an empty string."""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return ""


def parse_hypervisor(text: str) -> bool:
    """Return whether the CPU is a virtual one, from the text of /proc/cpuinfo of x86."""
    return any(
        "hypervisor" in line.split() for line in text.splitlines() if line.startswith("flags")
    )


def _own_version() -> str | None:
    try:
        return version("ipoibu")
    except PackageNotFoundError:
        return None


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return (done.stdout or done.stderr).strip().partition("\n")[0] or None
