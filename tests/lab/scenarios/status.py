# SPDX-License-Identifier: BSD-2-Clause
"""What several commands print about ib0, by one process: a machine takes half a second to start one."""

import contextlib
import os

from ipoibu.cli.main import main
from ipoibu.lab.machines.inside.meeting import SHARE


def write(*commands: str) -> None:
    """Write what `ipoibu COMMAND ib0 -j` prints to COMMAND-MACHINE.json for the test."""
    for command in commands:
        path = SHARE / f"{command}-{os.environ['LAB_NAME']}.json"
        with path.open("w") as file, contextlib.redirect_stdout(file):
            status = main([command, "ib0", "-j"])
        if status != 0:
            raise SystemExit(status)
