# SPDX-License-Identifier: BSD-2-Clause
"""`python -m ipoibu.lab.ibsim_host NETNS ARGUMENT ...`: ipoibu as a host of ibsim, in a network namespace.

The sockets of ibsim exist in its own namespace only, and a process keeps its open sockets. So `run`
opens the simulated port first, enters the namespace of the host then, and runs the program `ipoibu` in
this process at last.
"""

from __future__ import annotations

import os
import runpy
import sys

from ipoibu.base.errors import IpoibuError
from ipoibu.fabric.sa.umad import devices
from ipoibu.lab.namespace import enter


def run(netns: str, *arguments: str) -> int:
    """Return the exit code of `ipoibu ARGUMENT ...`, or 1 if ibsim or the namespace is missing."""
    try:
        if not devices():
            print("ipoibu: ibsim has no port for this host", file=sys.stderr)
            return 1
        fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        enter(fd)  # before there is any other thread
        os.close(fd)
    except (IpoibuError, OSError) as error:
        print(f"ipoibu: {error}", file=sys.stderr)
        return 1
    sys.argv[1:] = arguments
    runpy.run_module("ipoibu.cli", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
